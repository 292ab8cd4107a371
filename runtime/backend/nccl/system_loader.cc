// The process's own way to libraries. In a file of its own, which the tests replace.
#include <dlfcn.h>
#include <unistd.h>

#include "runtime/backend/nccl/libraries.h"

namespace distrun::backend::nccl_plugin {

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
              }};
}

}  // namespace distrun::backend::nccl_plugin
