#include "bindings/tensorflow/tf_api.h"

#include <dlfcn.h>
#include <link.h>

#include <string_view>

namespace distrun::tensorflow {
namespace {

constexpr std::string_view kLibrary = "libtensorflow_framework.so.2";

int remember_path(dl_phdr_info* info, std::size_t, void* path) {
  const std::string_view name = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  if (!name.ends_with(kLibrary)) return 0;
  *static_cast<std::string*>(path) = name;
  return 1;
}

// Finds the library that is already loaded, so that no second TensorFlow is loaded. Before 2.20 its symbols are not in
// the global scope.
void* loaded_tensorflow() {
  if (void* found = dlopen(kLibrary.data(), RTLD_NOW | RTLD_NOLOAD); found != nullptr) return found;
  std::string path;
  dl_iterate_phdr(remember_path, &path);
  return path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
}

template <class Function>
void look_up(void* library, const char* name, Function& function, std::string& missing) {
  void* found = dlsym(library, name);
  if (found == nullptr) missing += std::string(missing.empty() ? "" : ", ") + name;
  function = reinterpret_cast<Function>(found);
}

}  // namespace

TfApi tf;

std::string resolve_tf_api() {
  void* library = loaded_tensorflow();
  if (library == nullptr) return "TensorFlow was not loaded when this library was";
  std::string missing;
#define X(result, name, arguments) look_up(library, #name, tf.name, missing);
  DISTRUN_TF_FUNCTIONS(X)
#undef X
  return missing.empty() ? "" : "this TensorFlow's C API lacks " + missing;
}

}  // namespace distrun::tensorflow
