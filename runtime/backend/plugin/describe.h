// What `distrun check --build` says of the backends of this machine.
#pragma once

#include <string>
#include <vector>

namespace distrun {
struct Settings;
}

namespace distrun::backend {

struct BackendList {
  struct Entry {
    std::string backend;
    bool usable = false;
    std::string reason;       // why not, or what it is
    int library_version = 0;  // 0: not known
  };
  std::vector<Entry> entries;
  std::vector<std::string> warnings;  // of plug-ins
};

// Built-in backends, plug-ins that were found, and the plug-ins of the project that were not. Loads plug-ins; makes
// nothing else.
BackendList list_backends(const Settings& settings);
BackendList list_backends(const Settings& settings, const std::string& plugin_folder);  // for tests

// A line each: "tcp: ok (reason)" or "mpi: not available (reason)".
std::string to_text(const BackendList& list);
// {"backends": [{"backend": "tcp", "usable": true, "reason": "..."}, ...], "warnings": [...]}; a "library_version"
// where one is known.
std::string to_json(const BackendList& list);

}  // namespace distrun::backend
