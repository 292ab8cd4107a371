#include "runtime/backend/nccl/libraries.h"

#include <filesystem>

#include "runtime/backend/cuda/driver.h"

namespace distrun::backend::nccl_plugin {
namespace {

constexpr const char* kNccl = "libnccl.so.2";

// A framework that is imported later gets the library that is opened here, because the names are equal. So the Python
// environment's library comes before the system's, which may be older. `why`: the error of the first library that
// exists and cannot be opened.
void* open_nccl(const Loader& loader, std::string& why) {
  if (void* loaded = loader.open(kNccl, true); loaded != nullptr) return loaded;
  for (const std::string& path : package_paths(loader.plugin_file, kNccl)) {
    if (!loader.exists(path.c_str())) continue;
    if (void* found = loader.open(path, false); found != nullptr) return found;
    if (why.empty()) why = loader.why();
  }
  void* const found = loader.open(kNccl, false);
  if (found == nullptr && why.empty()) why = loader.why();
  return found;
}

std::string version_text(int version) {
  return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Status load_nccl(const Loader& loader, Libraries& libraries) {
  constexpr const char* kCure =
      "install the package nvidia-nccl-cu12 (nvidia-nccl-cu13 for CUDA 13) into this Python environment. Without "
      "Python, put the folder of the library into LD_LIBRARY_PATH";
  std::string why;
  void* library = open_nccl(loader, why);
  if (library == nullptr) return missing(why, kNccl, kCure);
  std::string lost;
#define DISTRUN_NCCL_FUNCTION(result, member, symbol, arguments) \
  find(loader, library, #symbol, libraries.nccl.member, lost);
  DISTRUN_NCCL_FUNCTIONS(DISTRUN_NCCL_FUNCTION)
#undef DISTRUN_NCCL_FUNCTION
  if (libraries.nccl.get_version != nullptr) libraries.nccl.get_version(&libraries.nccl_version);
  libraries.nccl_text = version_text(libraries.nccl_version);
  if (lost.empty() && libraries.nccl_version >= kNcclLeastVersion) return {};
  return {Errc::kUnsupported,
          std::string(kNccl) + " is " + libraries.nccl_text + ", and distrun needs 2.14 or newer: " + kCure};
}

}  // namespace

std::vector<std::string> package_paths(const std::string& plugin_file, const std::string& name) {
  std::vector<std::string> paths;
  for (std::filesystem::path at = plugin_file; at.has_relative_path(); at = at.parent_path()) {
    if (at.filename() != "site-packages" && at.filename() != "dist-packages") continue;
    for (const char* package : {"nccl", "cu13", "cu12"}) paths.push_back(at / "nvidia" / package / "lib" / name);
    paths.push_back(at.parent_path().parent_path() / name);
  }
  return paths;
}

Result<Libraries> load_libraries(const Loader& loader) {
  auto driver = load_driver(loader);
  if (!driver.ok()) return driver.status();
  Libraries libraries;
  libraries.cuda = *driver;
  DISTRUN_RETURN_IF_ERROR(load_nccl(loader, libraries));
  return libraries;
}

}  // namespace distrun::backend::nccl_plugin
