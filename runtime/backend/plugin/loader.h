// Finds the plug-ins of this process and makes a factory of each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/factory.h"

namespace distrun::backend::plugin {

struct Plugins {
  // One per name. A plug-in that cannot be loaded is one whose offers are unavailable, with the reason.
  std::vector<std::unique_ptr<Factory>> factories;
  std::vector<std::string> warnings;  // files that have no name of their own to be reported under
};

// The files of the setting `plugins` first, then those in `folder` named libdistrun_backend_*.so, by name. The first
// file of a name wins.
Plugins load_plugins(const Settings& settings, const std::string& folder);

// "plugins" beside the file that this code is in (libdistrun.so, or a program that has it linked in).
std::string default_folder();

}  // namespace distrun::backend::plugin
