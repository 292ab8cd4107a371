#include "launcher/plan/hosts.h"

#include <algorithm>

#include "launcher/plan/text.h"

namespace distrun::launcher {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

std::optional<Fault> check_name(std::string_view name, std::size_t column, bool brackets) {
  if (name.empty()) return Fault{column, "a host name is missing here"};
  if (name.front() == '-') return Fault{column, "a host name cannot start with '-'"};
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (is_name_char(name[i]) || (brackets && (name[i] == ':' || name[i] == '%'))) continue;
    return Fault{column + i, "'" + std::string(1, name[i]) + "' cannot be part of a host name"};
  }
  return std::nullopt;
}

std::optional<Fault> read_slots(std::string_view text, std::size_t column, std::optional<int>& slots) {
  slots = parse_number(text, 1, kMaxRanks);
  if (slots) return std::nullopt;
  return Fault{column,
               "'" + std::string(text) + "' is not a number of slots; write a whole number from 1 on, as in host:4"};
}

// One "user@host:slots" that starts at `column` of its line.
std::optional<Fault> read_host(std::string_view text, std::size_t column, HostSlots& out) {
  if (const std::size_t at = text.find('@'); at != std::string_view::npos) {
    if (auto fault = check_name(text.substr(0, at), column, false)) return fault;
    out.user = text.substr(0, at);
    text.remove_prefix(at + 1);
    column += at + 1;
  }
  if (!text.empty() && text.front() == '[') {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return Fault{column, "this '[' has no matching ']'"};
    out.name = text.substr(1, close - 1);
    if (auto fault = check_name(out.name, column + 1, true)) return fault;
    if (close + 1 == text.size()) return std::nullopt;
    if (text[close + 1] != ':') return Fault{column + close + 1, "expected ':' and a number of slots here"};
    return read_slots(text.substr(close + 2), column + close + 2, out.slots);
  }
  const std::size_t colon = text.find(':');
  out.name = text.substr(0, colon);
  if (colon != std::string_view::npos && text.find(':', colon + 1) != std::string_view::npos) {
    return Fault{column + colon, "an IPv6 address needs brackets, as in [::1]:4"};
  }
  if (auto fault = check_name(out.name, column, false)) return fault;
  if (colon == std::string_view::npos) return std::nullopt;
  return read_slots(text.substr(colon + 1), column + colon + 1, out.slots);
}

void add_host(std::vector<HostSlots>& hosts, const HostSlots& host, bool repeated_means_one_more) {
  for (HostSlots& known : hosts) {
    if (known.name != host.name || known.user != host.user) continue;
    // A bare repeated line is PBS's way to give one more slot.
    if (known.slots || host.slots || repeated_means_one_more) {
      known.slots = known.slots.value_or(1) + host.slots.value_or(1);
    }
    known.max_slots = std::max(known.max_slots, host.max_slots);
    return;
  }
  hosts.push_back(host);
}

// "slots=4" and "max_slots=8" behind the name.
std::optional<Fault> read_attribute(std::string_view word, std::size_t column, HostSlots& host) {
  const std::size_t equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? std::string_view{} : word.substr(equals + 1);
  const std::size_t value_column = column + std::min(equals, word.size() - 1) + 1;
  if (key == "slots") return read_slots(value, value_column, host.slots);
  if (key == "max_slots" || key == "max-slots") {
    std::optional<int> most;
    if (auto fault = read_slots(value, value_column, most)) return fault;
    host.max_slots = *most;
    return std::nullopt;
  }
  return Fault{column,
               "'" + std::string(word) + "' is not known here; a line is: host [slots=N] [max_slots=N], or host:N"};
}

std::optional<Fault> read_line(std::string_view line, HostSlots& host) {
  bool first = true;
  std::size_t at = 0;
  while ((at = line.find_first_not_of(" \t", at)) != std::string_view::npos) {
    const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
    const std::string_view word = line.substr(at, end - at);
    if (auto fault = first ? read_host(word, at, host) : read_attribute(word, at, host)) return fault;
    first = false;
    at = end;
  }
  if (host.slots && host.max_slots > 0 && *host.slots > host.max_slots) {
    return Fault{0, "slots is larger than max_slots"};
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<HostSlots>> parse_hosts(std::string_view text) {
  std::vector<HostSlots> hosts;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    HostSlots host;
    if (auto fault = read_host(text.substr(start, comma - start), start, host)) {
      return Status(Errc::kInvalidArgument, caret_error("-H", text, *fault));
    }
    add_host(hosts, host, true);
    start = comma + 1;
  }
  return hosts;
}

Result<std::vector<HostSlots>> parse_hostfile(std::string_view text, const std::string& file) {
  std::vector<HostSlots> hosts;
  std::size_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    const std::string_view content = line.substr(0, line.find('#'));
    if (trim(content).empty()) continue;
    HostSlots host;
    if (auto fault = read_line(content, host)) {
      return Status(Errc::kInvalidArgument, file_error(file, number, line, *fault));
    }
    add_host(hosts, host, true);
  }
  if (hosts.empty())
    return Status(Errc::kInvalidArgument, file + " names no host; write one per line, as in: host1 slots=4");
  return hosts;
}

}  // namespace distrun::launcher
