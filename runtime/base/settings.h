// The settings of distrun. Each row of settings.def defines one setting: the field, the launcher's flag, the DISTRUN_*
// variable, the key in a config file, the help text, its part of docs/reference/settings.md and of the start-up log
// line.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/environment.h"
#include "runtime/base/status.h"

namespace distrun {

// The fields have the names of settings.def. Durations are in seconds, sizes in bytes.
struct Settings {
#define DISTRUN_SETTING(type, name, default_value, check, scope, topic, value, brief, more) type name = default_value;
#include "runtime/base/settings.def"
#undef DISTRUN_SETTING
};

enum class SettingScope { kJob, kRank };  // kJob: all ranks use rank 0's value, and other values are warned about

struct SettingRow {
  std::string_view name;      // "fusion_threshold"; flag --fusion-threshold, variable DISTRUN_FUSION_THRESHOLD
  std::string_view type;      // "bytes", "seconds", "count", "text", "flag"
  std::string_view topic;     // of `distrun help TOPIC`
  std::string_view value;     // what stands for the value in --help: "SECONDS"; empty for a flag
  std::string_view brief;     // one line of --help, without a full stop
  std::string_view more;      // paragraphs and "- " lists, for `distrun help` and the page of settings
  std::string default_value;  // as the user would type it
  std::string allowed;        // "0 to 4GiB", "auto, self, shm, tcp"
  SettingScope scope = SettingScope::kJob;
};

const std::vector<SettingRow>& setting_rows();

struct SettingsReport {
  Settings settings;
  std::vector<std::string> unknown;            // unknown DISTRUN_* names that DISTRUN_WARNED does not list
  std::vector<std::string> warnings;           // one for each unknown name, with the nearest known name
  std::map<std::string, std::string> sources;  // name -> "default", "env", "option"
};

// `overrides` are "name=value" from the caller of init. They take precedence over the environment, and that over the
// defaults. A bad value is kInvalidArgument; the text names the variable, the value and the allowed values.
Result<SettingsReport> read_settings(const Environment& environment, const std::vector<std::string>& overrides);
Status set_by_name(Settings& settings, std::string_view name, std::string_view value, std::string_view origin);
std::string value_of(const Settings& settings, std::string_view name);  // as the user would type it
std::string start_up_line(const SettingsReport& report);                // "backend=auto (default) ..."
std::string settings_page();                                            // docs/reference/settings.md

}  // namespace distrun
