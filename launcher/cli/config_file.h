// Reads the file of --config: lines of the form name = value. Everything after the = is one value, as on the command
// line. Options that may be repeated also take a list in brackets. An error names the file, the line, the key and the
// nearest name. Only arguments.cc includes this, since it already includes the command-line library.
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
  const CLI::App& app_;  // owns this object
};

}  // namespace distrun::launcher
