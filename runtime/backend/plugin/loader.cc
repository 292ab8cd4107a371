#include "runtime/backend/plugin/loader.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "runtime/backend/builtin/builtin.h"
#include "runtime/backend/plugin/library.h"
#include "runtime/backend/plugin/plugin_backend.h"
#include "runtime/base/settings.h"

namespace distrun::backend::plugin {
namespace {

class PluginFactory final : public Factory {
 public:
  explicit PluginFactory(std::shared_ptr<const Library> library) : library_(std::move(library)) {}
  [[nodiscard]] std::string_view name() const override { return library_->table().name; }
  [[nodiscard]] Offer offer(const GroupSpec& group, const Services& services) const override {
    return offer_of(*library_, group, services);
  }
  [[nodiscard]] Result<std::unique_ptr<Backend>> create(const GroupSpec& group, const Services& services,
                                                        TimePoint deadline) const override {
    return make_backend(library_, group, services, deadline);
  }
  [[nodiscard]] Result<std::shared_ptr<void>> mark(Device device, void* stream) const override {
    return mark_of(library_, device, stream);
  }

 private:
  std::shared_ptr<const Library> library_;
};

class BrokenFactory final : public Factory {
 public:
  BrokenFactory(std::string name, Status why) : name_(std::move(name)), why_(std::move(why)) {}
  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] Offer offer(const GroupSpec&, const Services&) const override {
    return {.backend = name_, .available = false, .reason = why_.message(), .score = 0, .capabilities = {}};
  }
  [[nodiscard]] Result<std::unique_ptr<Backend>> create(const GroupSpec&, const Services&, TimePoint) const override {
    return why_;
  }

 private:
  std::string name_;
  Status why_;
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(':', at), list.size());
    if (end > at) parts.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;  // ignored: a missing folder means no plug-ins
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (!Library::name_of_file(entry.path()).empty()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

Plugins load_plugins(const Settings& settings, const std::string& folder) {
  Plugins plugins;
  std::set<std::string> taken;
  for (const auto& factory : builtin_factories()) taken.emplace(factory->name());
  std::vector<std::string> files = split(settings.plugins);
  for (std::string& file : files_in(folder)) files.push_back(std::move(file));
  for (const std::string& file : files) {
    const std::string name = Library::name_of_file(file);
    if (name.empty()) {
      plugins.warnings.push_back("The plug-in file '" + file +
                                 "' of DISTRUN_PLUGINS is ignored: it must be named libdistrun_backend_NAME.so.");
      continue;
    }
    if (!taken.insert(name).second) {
      plugins.warnings.push_back("The plug-in file '" + file + "' is ignored: another backend has the name '" + name +
                                 "'.");
      continue;
    }
    auto library = Library::load(file);
    if (library.ok()) {
      plugins.factories.push_back(std::make_unique<PluginFactory>(*std::move(library)));
    } else {
      plugins.factories.push_back(std::make_unique<BrokenFactory>(name, library.status()));
    }
  }
  return plugins;
}

std::string default_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&load_plugins), &info) == 0 || info.dli_fname == nullptr) return "plugins";
  std::error_code error;  // resolve symbolic links: the plug-ins are beside the real file
  const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, error);
  return ((error ? std::filesystem::path(info.dli_fname) : file).parent_path() / "plugins").string();
}

}  // namespace distrun::backend::plugin
