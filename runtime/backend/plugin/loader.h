// Finds the plug-ins of this process and makes a factory for each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/factory.h"

namespace distrun::backend::plugin {

struct Plugins {
  // One factory per name. If a plug-in cannot be loaded, its factory makes offers that are unavailable, with the
  // reason.
  std::vector<std::unique_ptr<Factory>> factories;
  std::vector<std::string> warnings;  // about files without a backend name, or with a name that is already taken
};

// Loads the files of the setting `plugins` first, then the files libdistrun_backend_*.so in `folder`, sorted by name.
// If two files have the same name, the first one wins.
Plugins load_plugins(const Settings& settings, const std::string& folder);

// The folder "plugins" beside the file that contains this code (libdistrun.so, or a program that links it statically).
std::string default_folder();

}  // namespace distrun::backend::plugin
