// The loader of a real process. A separate file, because the tests replace it.
#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>

#include "runtime/backend/cuda/loader.h"

namespace distrun::backend::cuda_parts {
namespace {

std::string plugin_file() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&plugin_file), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;  // if this fails, the name is used unchanged
  const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, error);
  return error ? info.dli_fname : file.string();
}

}  // namespace

Loader system_loader() {
  return {.exists = [](const char* path) { return ::access(path, F_OK) == 0; },
          .open =
              [](const std::string& name, bool loaded) {
                const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | (loaded ? RTLD_NOLOAD : 0);
                return ::dlopen(name.c_str(), flags);
              },
          .find = [](void* library, const char* symbol) { return ::dlsym(library, symbol); },
          .why =
              [] {
                const char* why = ::dlerror();
                return why == nullptr ? std::string() : std::string(why);
              },
          .plugin_file = plugin_file()};
}

}  // namespace distrun::backend::cuda_parts
