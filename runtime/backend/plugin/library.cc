#include "runtime/backend/plugin/library.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <string_view>

#include "runtime/backend/plugin/host_group.h"

namespace distrun::backend::plugin {
namespace {

constexpr std::string_view kPrefix = "libdistrun_backend_";
constexpr std::string_view kSuffix = ".so";
constexpr std::size_t kLeastTable = offsetof(distrun_backend_table, device);  // size of the first version's table

Status check_table(const distrun_backend_table* table, const std::string& name) {
  if (table == nullptr) return {Errc::kUnsupported, "distrun_backend_open() returned no table"};
  if (table->version != DISTRUN_BACKEND_VERSION) {
    return {Errc::kUnsupported, "it was built for version " + std::to_string(table->version) +
                                    " of the plug-in interface, and this distrun has version " +
                                    std::to_string(DISTRUN_BACKEND_VERSION) + ". Build it again"};
  }
  if (table->struct_size < kLeastTable) return {Errc::kUnsupported, "its table is too short"};
  if (table->name == nullptr || name != table->name) {
    return {Errc::kUnsupported, "its name is '" + std::string(table->name == nullptr ? "" : table->name) +
                                    "', so its file must be named libdistrun_backend_" +
                                    std::string(table->name == nullptr ? "NAME" : table->name) + ".so"};
  }
  const bool complete = table->capabilities != nullptr && table->create_group != nullptr && table->start != nullptr &&
                        table->abort != nullptr && table->destroy != nullptr;
  return complete ? Status() : Status(Errc::kUnsupported, "a required function is missing in its table");
}

}  // namespace

std::string Library::name_of_file(const std::string& path) {
  std::string_view file = path;
  if (const std::size_t slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
  if (!file.starts_with(kPrefix) || !file.ends_with(kSuffix)) return {};
  if (file.size() <= kPrefix.size() + kSuffix.size()) return {};
  return std::string(file.substr(kPrefix.size(), file.size() - kPrefix.size() - kSuffix.size()));
}

Result<std::shared_ptr<const Library>> Library::load(const std::string& path) {
  const std::string name = name_of_file(path);
  if (name.empty()) {
    return Status(Errc::kInvalidArgument, "the plug-in file '" + path + "' must be named libdistrun_backend_NAME.so");
  }
  std::shared_ptr<Library> library(new Library(path));  // the constructor is private
  DISTRUN_RETURN_IF_ERROR(library->open(name));
  return std::shared_ptr<const Library>(std::move(library));
}

Status Library::open(const std::string& name) {
  // RTLD_NODELETE: libraries that a plug-in loads (MPI, CUDA) may leave threads and exit handlers. Their code must stay
  // mapped.
  handle_ = ::dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle_ == nullptr) {
    const char* why = ::dlerror();
    return {Errc::kUnsupported, why == nullptr ? path_ + " cannot be loaded" : why};
  }
  void* symbol = ::dlsym(handle_, "distrun_backend_open");
  if (symbol == nullptr) return {Errc::kUnsupported, path_ + " has no function distrun_backend_open()"};
  auto* open_plugin = reinterpret_cast<distrun_backend_open_function*>(symbol);
  std::array<char, 512> error{};
  const distrun_backend_table* table = nullptr;
  const int code = open_plugin(DISTRUN_BACKEND_VERSION, &host_table(), &table, error.data(), error.size());
  if (code != DISTRUN_BACKEND_OK)
    return status_of(code, text_of(error.data(), error.size(), path_ + " refused to open"));
  if (const Status status = check_table(table, name); !status.ok()) return status.with_context(path_);
  table_ = table;
  return {};
}

const distrun_backend_device* Library::device() const {
  return table_->struct_size > kLeastTable ? table_->device : nullptr;
}

decltype(distrun_backend_table::try_now) Library::try_now() const {
  return table_->struct_size > offsetof(distrun_backend_table, try_now) ? table_->try_now : nullptr;
}

Library::~Library() {
  if (handle_ != nullptr) ::dlclose(handle_);
}

}  // namespace distrun::backend::plugin
