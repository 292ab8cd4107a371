// How a plug-in looks for libraries; the tests have their own way.
#pragma once

#include <functional>
#include <string>

#include "runtime/base/status.h"

namespace distrun::backend::cuda_parts {

struct Loader {
  std::function<bool(const char* path)> exists;                     // a file or device node
  std::function<void*(const std::string& name, bool loaded)> open;  // loaded: only what the process has loaded
  std::function<void*(void* library, const char* symbol)> find;
  std::function<std::string()> why;  // of the last open() that found nothing
  std::string plugin_file;           // that this plug-in is
};
Loader system_loader();

// `why`: what the system says of it; empty: nothing.
inline Status missing(const std::string& why, const char* name, const std::string& cure) {
  return {Errc::kUnsupported, (why.empty() ? std::string(name) + " not found" : why) + "; " + cure};
}

// `lost` is the first symbol that was not there.
template <class Function>
void find(const Loader& loader, void* library, const char* symbol, Function*& function, std::string& lost) {
  function = reinterpret_cast<Function*>(loader.find(library, symbol));
  if (function == nullptr && lost.empty()) lost = symbol;
}

}  // namespace distrun::backend::cuda_parts
