// The file of --config: name = value lines. All behind the = is one value, as it would be on the command line, but for
// lists in brackets where an option may be repeated. What is wrong is an error that names the file, the line, the key
// and the nearest name. For arguments.cc, which knows the library.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace distrun::launcher {

class ConfigFile : public CLI::ConfigTOML {
 public:
  explicit ConfigFile(const CLI::App& app) : app_(app) {}
  // Keys may be spelt as the settings are (fusion_threshold) or as the flags are (fusion-threshold).
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;

 private:
  const CLI::App& app_;  // owns this
};

}  // namespace distrun::launcher
