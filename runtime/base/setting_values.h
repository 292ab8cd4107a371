// How the value of a setting is written, parsed, checked and printed.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distrun {

// The check of a row in settings.def. `parse` returns nothing if the value is not allowed. `show` returns a value as
// the user would type it.
template <class T>
struct SettingCheck {
  std::string_view type;
  std::string allowed;
  std::function<std::optional<T>(std::string_view)> parse;
  std::function<std::string(const T&)> show;
};

// "64MiB", "128k", "1048576". Units are powers of 1024, with or without the i and the B, in upper or lower case.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
std::string show_bytes(std::uint64_t bytes);  // the largest unit that divides it: "128MiB", "1000"
// "10", "10s", "500ms", "2min", "1h", "0.5".
std::optional<double> parse_seconds(std::string_view text);
std::string show_seconds(double seconds);  // "10s", "0.5s", "0"

// "There is no backend foo. Choose gloo, shm or tcp for --backend (DISTRUN_BACKEND)." The launcher and the ranks say
// the same. `others`: those that exist. `setting`: the one that names it, as users write it.
std::string no_such_backend(const std::string& name, const std::vector<std::string>& others,
                            std::string_view setting = "--backend (DISTRUN_BACKEND)");
// The same for the setting between_hosts. It takes no backend for one rank, for one host, or for GPUs alone.
std::string no_such_backend_between_hosts(const std::string& name, std::vector<std::string> others);

SettingCheck<std::uint64_t> bytes(std::uint64_t least, std::uint64_t most);
SettingCheck<std::uint64_t> count(std::uint64_t least, std::uint64_t most);
SettingCheck<double> seconds(double least, double most);
SettingCheck<std::string> one_of(const std::initializer_list<std::string_view>& values);
template <class... Texts>
SettingCheck<std::string> one_of(const Texts&... values) {
  return one_of({std::string_view(values)...});
}
// Accepts the names of log.h in upper or lower case, and "warn" and "fatal", which Horovod and Python's logging have.
SettingCheck<std::string> log_level_name();
SettingCheck<std::string> text();
// A file, and a list of files with colons. Both may begin with ~ (from_home()).
SettingCheck<std::string> path();
SettingCheck<std::string> paths();
SettingCheck<bool> flag();
// auto, one backend, or one per device. This check does not know which backends exist, because plug-ins may add some.
// select() refuses an unknown backend and names those that the rank has.
SettingCheck<std::string> backend_choice();

// Returns the candidate with the fewest typing mistakes. Empty if no candidate is close enough.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace distrun
