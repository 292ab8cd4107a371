// How a plug-in finds libraries. Tests use their own loader.
#pragma once

#include <functional>
#include <string>

#include "runtime/base/status.h"

namespace distrun::backend::cuda_parts {

struct Loader {
  std::function<bool(const char* path)> exists;                     // a file or device node
  std::function<void*(const std::string& name, bool loaded)> open;  // loaded: only if the process has loaded it
  std::function<void*(void* library, const char* symbol)> find;
  std::function<std::string()> why;  // error of the last open() that found nothing
  std::string plugin_file;           // the file of this plug-in
};
Loader system_loader();

// `why`: the system's error text; may be empty.
inline Status missing(const std::string& why, const char* name, const std::string& cure) {
  return {Errc::kUnsupported, (why.empty() ? std::string(name) + " not found" : why) + "; " + cure};
}

// `lost`: the first missing symbol.
template <class Function>
void find(const Loader& loader, void* library, const char* symbol, Function*& function, std::string& lost) {
  function = reinterpret_cast<Function*>(loader.find(library, symbol));
  if (function == nullptr && lost.empty()) lost = symbol;
}

}  // namespace distrun::backend::cuda_parts
