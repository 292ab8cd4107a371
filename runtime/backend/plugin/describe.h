// The list of backends that `distrun check --build` prints for this machine.
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
    std::string reason;       // why it is not usable, or what it is
    int library_version = 0;  // 0: unknown
  };
  std::vector<Entry> entries;
  std::vector<std::string> warnings;  // about plug-ins
};

// Lists the built-in backends, the plug-ins that were found, and the plug-ins of this project that were not found.
// Loads the plug-ins, but creates no group.
BackendList list_backends(const Settings& settings);
BackendList list_backends(const Settings& settings, const std::string& plugin_folder);  // for tests

// One line per backend: "tcp: ok (reason)" or "mpi: not available (reason)".
std::string to_text(const BackendList& list);
// {"backends": [{"backend": "tcp", "usable": true, "reason": "..."}, ...], "warnings": [...]}
// An entry also has "library_version" if the version is known.
std::string to_json(const BackendList& list);

}  // namespace distrun::backend
