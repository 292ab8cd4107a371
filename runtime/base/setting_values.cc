#include "runtime/base/setting_values.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

namespace distrun {
namespace {

struct ByteUnit {
  std::string_view letter;
  int shift;
};
constexpr std::array<ByteUnit, 4> kByteUnits = {{{"k", 10}, {"m", 20}, {"g", 30}, {"t", 40}}};

struct TimeUnit {
  std::string_view name;
  double seconds;
};
constexpr std::array<TimeUnit, 7> kTimeUnits = {
    {{"", 1.0}, {"s", 1.0}, {"sec", 1.0}, {"ms", 1e-3}, {"m", 60.0}, {"min", 60.0}, {"h", 3600.0}}};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  return out;
}

// Parses the number at the start of `text`. `rest` is the remaining text.
template <class T>
std::optional<T> leading_number(std::string_view text, std::string_view& rest) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  rest = text.substr(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::string shortest(double value) {
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool is_backend_choice(std::string_view text) {
  if (is_word(text)) return true;
  std::set<std::string_view> devices;
  for (;;) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::size_t colon = item.find(':');
    if (colon == std::string_view::npos || !is_word(item.substr(colon + 1))) return false;
    const std::string_view device = item.substr(0, colon);
    if ((device != "cpu" && device != "cuda") || !devices.insert(device).second) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

std::string same(const std::string& value) { return value; }

// Levenshtein distance, one row at a time.
std::size_t typing_mistakes(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  std::string_view rest;
  const auto number = leading_number<std::uint64_t>(text, rest);
  if (!number) return std::nullopt;
  const std::string unit = lower(rest);
  if (unit.empty() || unit == "b") return number;
  for (const auto& [letter, shift] : kByteUnits) {
    const std::string base(letter);
    if (unit != base && unit != base + "b" && unit != base + "ib") continue;
    if (*number > (std::numeric_limits<std::uint64_t>::max() >> shift)) return std::nullopt;
    return *number << shift;
  }
  return std::nullopt;
}

std::string show_bytes(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 5> kNames = {"", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes != 0 && bytes % 1024 == 0 && unit + 1 < kNames.size(); ++unit) bytes /= 1024;
  return std::to_string(bytes) + std::string(kNames.at(unit));
}

std::optional<double> parse_seconds(std::string_view text) {
  std::string_view rest;
  const auto number = leading_number<double>(text, rest);
  if (!number || !std::isfinite(*number)) return std::nullopt;
  for (const auto& [name, factor] : kTimeUnits) {
    if (rest == name) return *number * factor;
  }
  return std::nullopt;
}

std::string show_seconds(double seconds) { return seconds == 0 ? "0" : shortest(seconds) + "s"; }

SettingCheck<std::uint64_t> bytes(std::uint64_t least, std::uint64_t most) {
  return {
      .type = "bytes",
      .allowed = "a size from " + show_bytes(least) + " to " + show_bytes(most) + ", with a unit, as in 128k or 4MiB",
      .parse = [=](std::string_view value) -> std::optional<std::uint64_t> {
        const auto number = parse_bytes(value);
        return number && *number >= least && *number <= most ? number : std::nullopt;
      },
      .show = show_bytes};
}

SettingCheck<std::uint64_t> count(std::uint64_t least, std::uint64_t most) {
  return {.type = "count",
          .allowed = "a whole number from " + std::to_string(least) + " to " + std::to_string(most),
          .parse = [=](std::string_view value) -> std::optional<std::uint64_t> {
            std::string_view rest;
            const auto number = leading_number<std::uint64_t>(value, rest);
            return number && rest.empty() && *number >= least && *number <= most ? number : std::nullopt;
          },
          .show = [](const std::uint64_t& value) { return std::to_string(value); }};
}

SettingCheck<double> seconds(double least, double most) {
  return {.type = "seconds",
          .allowed = "a time from " + show_seconds(least) + " to " + show_seconds(most) + ", such as 10, 10s or 500ms",
          .parse = [=](std::string_view value) -> std::optional<double> {
            const auto number = parse_seconds(value);
            return number && *number >= least && *number <= most ? number : std::nullopt;
          },
          .show = [](const double& value) { return show_seconds(value); }};
}

std::string no_such_backend(const std::string& name, const std::vector<std::string>& others, std::string_view setting) {
  std::string choice;
  for (std::size_t i = 0; i < others.size(); ++i) {
    choice += (i == 0 ? "" : i + 1 == others.size() ? " or " : ", ") + others[i];
  }
  return "There is no backend " + name + ". " + (choice.empty() ? "Leave out" : "Choose " + choice + " for") + " " +
         std::string(setting) + ".";
}

std::string no_such_backend_between_hosts(const std::string& name, std::vector<std::string> others) {
  std::erase_if(others, [](const std::string& other) {
    return other == "self" || other == "shm" || other == "hierarchical" || other == "nccl";
  });
  return no_such_backend(name, others, "--between-hosts (DISTRUN_BETWEEN_HOSTS)");
}

SettingCheck<std::string> one_of(const std::initializer_list<std::string_view>& values) {
  const std::vector<std::string> known(values.begin(), values.end());
  std::string allowed;
  for (const std::string& value : known) allowed += (allowed.empty() ? "" : ", ") + value;
  return {.type = "text",
          .allowed = "one of " + allowed,
          .parse = [known](std::string_view value) -> std::optional<std::string> {
            const auto found = std::find(known.begin(), known.end(), value);
            return found == known.end() ? std::nullopt : std::optional<std::string>(*found);
          },
          .show = same};
}

SettingCheck<std::string> log_level_name() {
  SettingCheck<std::string> check = one_of("trace", "debug", "info", "warning", "error", "off");
  check.parse = [known = check.parse](std::string_view value) {
    const std::string word = lower(value);
    return known(word == "warn" ? "warning" : word == "fatal" ? "error" : word);
  };
  return check;
}

SettingCheck<std::string> text() {
  return {.type = "text",
          .allowed = "any text",
          .parse = [](std::string_view value) { return std::optional<std::string>(value); },
          .show = same};
}

SettingCheck<std::string> path() {
  SettingCheck<std::string> out = text();
  out.type = "path";
  out.allowed = "a path; ~ is your home folder on the host of the rank";
  return out;
}

SettingCheck<std::string> paths() {
  SettingCheck<std::string> out = text();
  out.type = "paths";
  out.allowed = "paths, separated by colons; ~ is your home folder on the host of the rank";
  return out;
}

SettingCheck<bool> flag() {
  return {.type = "flag",
          .allowed = "one of 1, 0, true, false, yes, no, on, off",
          .parse = [](std::string_view value) -> std::optional<bool> {
            const std::string word = lower(value);
            if (word == "1" || word == "true" || word == "yes" || word == "on") return true;
            if (word == "0" || word == "false" || word == "no" || word == "off") return false;
            return std::nullopt;
          },
          .show = [](const bool& value) { return std::string(value ? "true" : "false"); }};
}

SettingCheck<std::string> backend_choice() {
  return {.type = "text",
          .allowed = "auto, the name of a backend (tcp), or one per device (cpu:tcp,cuda:nccl)",
          .parse = [](std::string_view value) -> std::optional<std::string> {
            return is_backend_choice(value) ? std::optional<std::string>(value) : std::nullopt;
          },
          .show = same};
}

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t fewest = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t mistakes = typing_mistakes(word, candidate);
    if (mistakes < fewest) {
      fewest = mistakes;
      best = candidate;
    }
  }
  return best;
}

}  // namespace distrun
