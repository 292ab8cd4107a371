#include "runtime/base/settings.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>
#include <sstream>

#include "runtime/base/setting_values.h"

namespace distrun {
namespace {

constexpr std::string_view kPrefix = "DISTRUN_";

// Unknown variables that the launcher has already warned about, once for all ranks. Separated by spaces.
constexpr std::string_view kWarned = "DISTRUN_WARNED";

// The user sets this to the path of a key file. The launcher never sets it.
constexpr std::string_view kKeyFile = "DISTRUN_KEY_FILE";

// The launcher sets these for each rank (runtime/net/identity/world.h). They are known names, but not settings.
constexpr std::string_view kRankVariables[] = {"DISTRUN_RANK",       "DISTRUN_SIZE",
                                               "DISTRUN_LOCAL_RANK", "DISTRUN_LOCAL_SIZE",
                                               "DISTRUN_CROSS_RANK", "DISTRUN_CROSS_SIZE",
                                               "DISTRUN_HOST",       "DISTRUN_JOB_ID",
                                               "DISTRUN_STORE",      "DISTRUN_ADDRESS",
                                               "DISTRUN_KEY_FD",     "DISTRUN_GPUS",
                                               "DISTRUN_TF",         kWarned};

struct Entry {
  SettingRow row;
  std::function<bool(Settings&, std::string_view)> assign;  // false: the value is not allowed
  std::function<std::string(const Settings&)> show;
};

template <class T>
Entry make_entry(SettingRow row, T Settings::*field, const SettingCheck<T>& check) {
  row.type = check.type;
  row.allowed = check.allowed;
  row.default_value = check.show(Settings{}.*field);
  return {.row = std::move(row),
          .assign =
              [field, parse = check.parse](Settings& settings, std::string_view value) {
                const auto parsed = parse(value);
                if (parsed) settings.*field = *parsed;
                return parsed.has_value();
              },
          .show = [field, show = check.show](const Settings& settings) { return show(settings.*field); }};
}

const std::vector<Entry>& entries() {
  using enum SettingScope;
  static const std::vector<Entry> all = {
#define DISTRUN_SETTING(type_, name_, default_, check_, scope_, topic_, value_, brief_, more_) \
  make_entry<type_>({.name = #name_,                                                           \
                     .type = "",                                                               \
                     .topic = topic_,                                                          \
                     .value = value_,                                                          \
                     .brief = brief_,                                                          \
                     .more = more_,                                                            \
                     .default_value = "",                                                      \
                     .allowed = "",                                                            \
                     .scope = scope_},                                                         \
                    &Settings::name_, check_),
#include "runtime/base/settings.def"
#undef DISTRUN_SETTING
  };
  return all;
}

// Flags and config files may write fusion-threshold instead of fusion_threshold.
std::string field_name(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

const Entry* find_entry(std::string_view name) {
  const std::string wanted = field_name(name);
  for (const Entry& entry : entries()) {
    if (entry.row.name == wanted) return &entry;
  }
  return nullptr;
}

std::string variable_of(std::string_view name) {
  std::string out(kPrefix);
  for (const char c : name) out += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

std::string flag_of(std::string_view name) {
  std::string out = "--" + std::string(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

std::vector<std::string> words_of(const Environment& environment, std::string_view name) {
  const auto found = environment.find(std::string(name));
  std::istringstream text(found == environment.end() ? std::string() : found->second);
  return {std::istream_iterator<std::string>(text), {}};
}

void find_unknown_variables(const Environment& environment, SettingsReport& report) {
  std::vector<std::string> known(std::begin(kRankVariables), std::end(kRankVariables));
  known.emplace_back(kKeyFile);
  for (const Entry& entry : entries()) known.push_back(variable_of(entry.row.name));
  std::vector<std::string> suffixes;  // without the common prefix, which would make all names similar
  for (const std::string& name : known) suffixes.push_back(name.substr(kPrefix.size()));
  for (std::string& name : words_of(environment, kWarned)) known.push_back(std::move(name));
  const std::set<std::string> known_set(known.begin(), known.end());
  for (auto it = environment.lower_bound(std::string(kPrefix)); it != environment.end(); ++it) {
    const std::string& name = it->first;
    if (!name.starts_with(kPrefix)) break;
    if (known_set.contains(name)) continue;
    const std::string nearest = nearest_name(name.substr(kPrefix.size()), suffixes);
    report.unknown.push_back(name);
    report.warnings.push_back("the environment variable " + name + " is not a setting of distrun and has no effect; " +
                              (nearest.empty() ? "`distrun help options` lists the settings"
                                               : "did you mean " + std::string(kPrefix) + nearest + "?"));
  }
}

Status apply_overrides(const std::vector<std::string>& overrides, SettingsReport& report) {
  for (const std::string& item : overrides) {
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos) {
      return {Errc::kInvalidArgument, "the option \"" + item + "\" is not valid. Write it as name=value"};
    }
    const std::string name = field_name(item.substr(0, equals));
    DISTRUN_RETURN_IF_ERROR(set_by_name(report.settings, name, item.substr(equals + 1), "the option " + name));
    report.sources[name] = "option";
  }
  return {};
}

// Variables, config files and options of init have passed no shell.
Status expand_homes(const Environment& environment, Settings& settings) {
  for (const Entry& entry : entries()) {
    const std::string value = entry.show(settings);
    const bool list = entry.row.type == "paths";
    if (!list && entry.row.type != "path") continue;
    for (std::string_view rest = value; !rest.empty();) {
      const std::size_t end = list ? std::min(rest.find(':'), rest.size()) : rest.size();
      const std::string fault = fault_of_home(rest.substr(0, end), environment);
      if (!fault.empty()) return {Errc::kInvalidArgument, flag_of(entry.row.name) + " " + value + ": " + fault};
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    entry.assign(settings, list ? each_from_home(value, environment) : from_home(value, environment));
  }
  return {};
}

// Warns about options of init that the launcher and its agents use too. These processes read only their own
// environment, so they never see an option of init. If all ranks are on the launcher's host, host_timeout has no use;
// such ranks have no DISTRUN_ADDRESS.
void find_unused_options(const Environment& environment, const Settings& from_launcher, SettingsReport& report) {
  if (!environment.contains("DISTRUN_RANK")) return;
  for (const std::string name : {"host_timeout", "preempt_signal"}) {
    const std::string value = value_of(report.settings, name);
    const std::string launchers = value_of(from_launcher, name);
    if (value == launchers || (name == "host_timeout" && !environment.contains("DISTRUN_ADDRESS"))) continue;
    report.warnings.push_back("type distrun " + flag_of(name) + " " + value +
                              ": the launcher does not see the option " + name + "=" + value + " of init, and uses " +
                              launchers);
  }
}

}  // namespace

const std::vector<SettingRow>& setting_rows() {
  static const std::vector<SettingRow> rows = [] {
    std::vector<SettingRow> out;
    for (const Entry& entry : entries()) out.push_back(entry.row);
    return out;
  }();
  return rows;
}

Status set_by_name(Settings& settings, std::string_view name, std::string_view value, std::string_view origin) {
  const Entry* entry = find_entry(name);
  if (entry == nullptr) {
    std::vector<std::string> known;
    for (const SettingRow& row : setting_rows()) known.emplace_back(row.name);
    const std::string nearest = nearest_name(field_name(name), known);
    return {Errc::kInvalidArgument,
            std::string(origin) + ": there is no setting named " + std::string(name) +
                (nearest.empty() ? "; `distrun help options` lists the settings" : "; did you mean " + nearest + "?")};
  }
  if (entry->assign(settings, value)) return {};
  return {Errc::kInvalidArgument, std::string(origin) + " has the value \"" + std::string(value) +
                                      "\", which is not allowed. It takes " + entry->row.allowed};
}

Result<SettingsReport> read_settings(const Environment& environment, const std::vector<std::string>& overrides) {
  SettingsReport report;
  find_unknown_variables(environment, report);
  for (const SettingRow& row : setting_rows()) {
    const std::string name(row.name);
    report.sources[name] = "default";
    const auto found = environment.find(variable_of(name));
    // An empty variable counts as unset, because shells and job scripts cannot always remove a variable.
    if (found == environment.end() || found->second.empty()) continue;
    if (Status status = set_by_name(report.settings, name, found->second, "the environment variable " + found->first);
        !status.ok()) {
      return status;
    }
    report.sources[name] = "env";
  }
  const Settings from_launcher = report.settings;
  if (Status status = apply_overrides(overrides, report); !status.ok()) return status;
  find_unused_options(environment, from_launcher, report);
  if (Status status = expand_homes(environment, report.settings); !status.ok()) return status;
  return report;
}

std::string value_of(const Settings& settings, std::string_view name) {
  const Entry* entry = find_entry(name);
  DISTRUN_CHECK(entry != nullptr, "no setting named " + std::string(name));
  return entry->show(settings);
}

std::string start_up_line(const SettingsReport& report) {
  std::string line;
  for (const SettingRow& row : setting_rows()) {
    const std::string name(row.name);
    const auto source = report.sources.find(name);
    line += (line.empty() ? "" : " ") + name + "=" + value_of(report.settings, name) + " (" +
            (source == report.sources.end() ? "default" : source->second) + ")";
  }
  return line;
}

std::string settings_page() {
  std::string page =
      "# Settings\n\n"
      "Every setting of the runtime, for readers who look one up.\n"
      "Generated from `runtime/base/settings.def` by `scripts/settings_page`; `scripts/check` compares it.\n"
      "\n## Set a setting\n\n"
      "There are four ways. If you use several, the first one of this list counts:\n\n"
      "1. the option of `init`: `hvd.init(settings={\"backend\": \"tcp\"})`\n"
      "2. the flag: `distrun --backend tcp`\n"
      "3. the environment variable: `DISTRUN_BACKEND=tcp`\n"
      "4. the config file: `backend = tcp`, with `distrun --config FILE`\n\n"
      "Notes:\n\n"
      "- Scope *job*: the value of rank 0 counts for all ranks. Scope *rank*: each rank's own value counts.\n"
      "- A value that is not allowed is an error. An unknown `DISTRUN_*` variable is a warning.\n"
      "- An empty variable counts as unset.\n";
  for (const SettingRow& row : setting_rows()) {
    const std::string name(row.name);
    page += "\n## " + name + "\n\n" + std::string(row.brief) + ".\n\n" + std::string(row.more) + "\n\n- flag `" +
            flag_of(name) + "`, variable `" + variable_of(name) + "`\n- takes " + row.allowed + "\n- default " +
            (row.default_value.empty() ? "empty" : "`" + row.default_value + "`") +
            "\n- scope: " + (row.scope == SettingScope::kJob ? "job" : "rank") + "\n";
  }
  page +=
      "\n## Variables that the launcher sets\n\nThey say which rank a process is (`runtime/net/identity/world.h`). Do "
      "not "
      "set them by hand.\n\n";
  for (const std::string_view variable : kRankVariables) page += "- `" + std::string(variable) + "`\n";
  page += "\n## " + std::string(kKeyFile) +
          "\n\nThis variable is yours; the launcher never sets it. It names the key file:\n\n" +
          "- of `distrun agent --connect` without `--key-file`\n" +
          "- of a rank that another launcher gave the variables above, without `DISTRUN_KEY_FD`\n\n" +
          "The launcher removes it from the environment of its ranks.\n";
  return page;
}

}  // namespace distrun
