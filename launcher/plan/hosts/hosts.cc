#include "launcher/plan/hosts/hosts.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "launcher/plan/hosts/hostlist.h"
#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

constexpr std::string_view kBetweenWords = " \t\v\f";

std::optional<Fault> shifted(std::optional<Fault> fault, std::size_t by) {
  if (fault) fault->column += by;
  return fault;
}

std::optional<Fault> read_slots(std::string_view text, std::size_t column, std::optional<int>& slots) {
  slots = parse_number(text, 0, kMaxRanks);
  if (slots) return std::nullopt;
  return Fault{column, in_quotes(text) + " is not a number of slots. Write a whole number, as in host:4"};
}

// Accepts a zone ("fe80::1%eth0").
bool is_ipv6(std::string_view text) {
  const std::string address(text.substr(0, text.find('%')));
  if (address.size() < text.size() && check_host_name(text.substr(address.size() + 1))) return false;
  // inet_pton stops at a NUL and would ignore the rest of the text.
  if (address.find_first_not_of("0123456789abcdefABCDEF:.") != std::string::npos) return false;
  in6_addr ignored{};
  return ::inet_pton(AF_INET6, address.c_str(), &ignored) == 1;
}

// One host or hostlist, not yet expanded: "me@node[1-4]:8".
struct Mention {
  std::string_view name;
  std::size_t name_column = 0;
  bool address = false;  // IPv6: not a hostlist
  HostSlots host;        // without its name
};

// "[fe80::1]" and "[fe80::1]:4".
std::optional<Fault> read_bracketed(std::string_view text, std::size_t column, Mention& out) {
  const std::size_t close = text.find(']');
  out.name = text.substr(1, close - 1);
  out.name_column = column + 1;
  out.address = true;
  if (!is_ipv6(out.name)) return Fault{column + 1, in_quotes(out.name) + " is not an IPv6 address"};
  if (close + 1 == text.size()) return std::nullopt;
  if (text[close + 1] != ':') return Fault{column + close + 1, "expected ':' and a number of slots here"};
  return read_slots(text.substr(close + 2), column + close + 2, out.host.slots);
}

// An IPv6 address without brackets. It cannot have slots: in "::1:4", 4 may be part of the address.
std::optional<Fault> read_bare_address(std::string_view text, std::size_t column, Mention& out) {
  const std::size_t last = text.rfind(':');
  if (!is_ipv6(text)) {
    return Fault{column, in_quotes(text) +
                             " is neither host:slots nor an IPv6 address. Write an IPv6 address with slots "
                             "in brackets, as in [fe80::1]:4"};
  }
  if (is_ipv6(text.substr(0, last)) && parse_number(text.substr(last + 1), 1, kMaxRanks)) {
    const std::string address(text.substr(0, last));
    const std::string slots(text.substr(last));
    return Fault{column + last, "this may be a part of the address or a number of slots. Write [" + std::string(text) +
                                    "] or [" + address + "]" + slots};
  }
  out.name = text;
  out.name_column = column;
  out.address = true;
  return std::nullopt;
}

// "user@name:slots" that starts at `column` of its line. The name is checked later, when it is expanded.
std::optional<Fault> read_mention(std::string_view text, std::size_t column, Mention& out) {
  // As in ssh, the host follows the last '@'.
  if (const std::size_t at = text.rfind('@'); at != std::string_view::npos) {
    const std::string_view user = text.substr(0, at);
    if (auto fault = check_user_name(user)) return shifted(std::move(fault), column);
    out.host.user = user;
    text.remove_prefix(at + 1);
    column += at + 1;
  }
  const std::size_t close = text.find(']');
  const bool bracketed = text.starts_with('[');
  if (bracketed && close == std::string_view::npos) return Fault{column, "this '[' has no matching ']'"};
  if (bracketed && text.substr(0, close).find(':') != std::string_view::npos) return read_bracketed(text, column, out);
  const std::size_t colon = text.find(':', text.find_last_of(']') + 1);
  if (colon != std::string_view::npos && text.find(':', colon + 1) != std::string_view::npos) {
    return read_bare_address(text, column, out);
  }
  out.name = text.substr(0, colon);
  out.name_column = column;
  if (colon == std::string_view::npos) return std::nullopt;
  return read_slots(text.substr(colon + 1), column + colon + 1, out.host.slots);
}

// The hosts of a list or file in the order of their first mention.
class Collector {
 public:
  std::optional<Fault> add(const Mention& mention) {
    std::vector<std::string> names;
    if (mention.address) {
      names.emplace_back(mention.name);
    } else if (auto fault = expand_hostlist_item(mention.name, kMaxHosts, names)) {
      return shifted(std::move(fault), mention.name_column);
    }
    // A list may repeat a range of many names without limit.
    mentions_ += names.size();
    if (mentions_ > kMaxRanks) {
      return Fault{mention.name_column, "there are more than " + std::to_string(kMaxRanks) + " slots"};
    }
    for (std::string& name : names) {
      if (auto fault = add_one(mention, std::move(name))) return fault;
    }
    return std::nullopt;
  }

  [[nodiscard]] std::vector<HostSlots> take() {
    const bool any_slots = std::any_of(found_.begin(), found_.end(), [](const Found& f) { return f.numbered; });
    const bool repeated = std::any_of(found_.begin(), found_.end(), [](const Found& f) { return f.bare > 1; });
    std::vector<HostSlots> out;
    out.reserve(found_.size());
    for (Found& found : found_) {
      const int slots = found.with_slots + found.bare;
      // In PBS's format a host appears several times without slots, and each mention is one slot.
      const bool counted = found.numbered || found.bare > 1 || (repeated && !any_slots);
      if (counted) found.host.slots = slots;
      out.push_back(std::move(found.host));
    }
    return out;
  }

 private:
  struct Found {
    HostSlots host;
    bool numbered = false;  // some mention has slots
    int with_slots = 0;     // sum of the given slots
    int bare = 0;           // mentions without slots
  };

  std::optional<Fault> add_one(const Mention& mention, std::string name) {
    const auto [known, is_new] = index_.emplace(name, found_.size());
    if (is_new) {
      if (found_.size() == kMaxHosts) {
        return Fault{mention.name_column, "there are more than " + std::to_string(kMaxHosts) + " hosts"};
      }
      found_.push_back({.host = {.name = std::move(name), .user = mention.host.user}});
    }
    Found& found = found_[known->second];
    // With two users, two agents would both count the GPUs and local ranks of one machine.
    if (found.host.user != mention.host.user) {
      return Fault{mention.name_column, found.host.name + " was named before with another user"};
    }
    found.numbered = found.numbered || mention.host.slots;
    found.with_slots += mention.host.slots.value_or(0);
    found.bare += mention.host.slots ? 0 : 1;
    found.host.max_slots = std::max(found.host.max_slots, mention.host.max_slots);
    const int slots = found.with_slots + found.bare;
    if (slots > kMaxRanks) {
      return Fault{mention.name_column, found.host.name + " has more than " + std::to_string(kMaxRanks) + " slots"};
    }
    if (found.host.max_slots > 0 && slots > found.host.max_slots) {
      return Fault{mention.name_column, found.host.name + " has more slots than its max_slots"};
    }
    return std::nullopt;
  }

  std::size_t mentions_ = 0;
  std::vector<Found> found_;
  std::unordered_map<std::string, std::size_t> index_;
};

// Attributes after the host in a line of a hostfile: "slots=4", "slots = 4".
struct Attribute {
  std::string_view key;
  std::size_t column = 0;
  std::string_view value;
  std::size_t value_column = 0;
};

Attribute next_attribute(std::string_view line, std::size_t& at) {
  const auto skip_blanks = [line](std::size_t from) {
    return std::min(line.find_first_not_of(kBetweenWords, from), line.size());
  };
  Attribute out{.column = at};
  std::size_t end = std::min(line.find_first_of(" \t\v\f=", at), line.size());
  out.key = line.substr(at, end - at);
  at = skip_blanks(end);
  out.value_column = end;
  if (at < line.size() && line[at] == '=') {
    out.value_column = skip_blanks(at + 1);
    end = std::min(line.find_first_of(kBetweenWords, out.value_column), line.size());
    out.value = line.substr(out.value_column, end - out.value_column);
    at = skip_blanks(end);
  }
  return out;
}

template <std::size_t kCount>
bool one_of(std::string_view word, const std::array<std::string_view, kCount>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The attributes of Open MPI and Hydra.
std::optional<Fault> take_attribute(const Attribute& attribute, HostSlots& host) {
  static constexpr std::array<std::string_view, 3> kSlots = {"slots", "cpu", "count"};
  static constexpr std::array<std::string_view, 12> kMost = {"max_slots", "max-slots", "slots_max", "slots-max",
                                                             "max_cpu",   "max-cpu",   "cpu_max",   "cpu-max",
                                                             "max_count", "max-count", "count_max", "count-max"};
  static constexpr std::array<std::string_view, 4> kUser = {"user", "username", "user_name", "user-name"};
  if (one_of(attribute.key, kSlots)) {
    if (host.slots) return Fault{attribute.column, "the slots of this host are given twice"};
    return read_slots(attribute.value, attribute.value_column, host.slots);
  }
  if (one_of(attribute.key, kMost)) {
    std::optional<int> most;
    if (auto fault = read_slots(attribute.value, attribute.value_column, most)) return fault;
    if (*most == 0) {
      return Fault{attribute.value_column, "max_slots is 1 or more. To leave this host out, write slots=0"};
    }
    host.max_slots = *most;
    return std::nullopt;
  }
  if (one_of(attribute.key, kUser)) {
    if (!host.user.empty()) return Fault{attribute.column, "the user of this host is given twice"};
    if (auto fault = check_user_name(attribute.value)) return shifted(std::move(fault), attribute.value_column);
    host.user = attribute.value;
    return std::nullopt;
  }
  if (attribute.key == "binding") return std::nullopt;  // of Hydra; --bind-to decides here
  return Fault{attribute.column, in_quotes(attribute.key) +
                                     " is not valid. Write a line as: host [slots=N] [max_slots=N] [user=NAME], or "
                                     "host:N"};
}

std::optional<Fault> read_line(std::string_view line, Collector& hosts) {
  const std::size_t start = line.find_first_not_of(kBetweenWords);
  if (start == std::string_view::npos) return std::nullopt;
  const std::size_t end = std::min(line.find_first_of(kBetweenWords, start), line.size());
  Mention mention;
  if (auto fault = read_mention(line.substr(start, end - start), start, mention)) return fault;
  std::size_t at = std::min(line.find_first_not_of(kBetweenWords, end), line.size());
  while (at < line.size()) {
    if (auto fault = take_attribute(next_attribute(line, at), mention.host)) return fault;
  }
  return hosts.add(mention);
}

// A blank in one item of -H. Most often the user means a list of hosts.
std::optional<Fault> find_blank(std::string_view item) {
  const std::size_t blank = item.find_first_of(kBetweenWords);
  if (blank == std::string_view::npos || item.find('[') != std::string_view::npos) return std::nullopt;
  return Fault{blank, "separate the hosts by commas without blanks, as in -H host1:4,host2:4"};
}

// The column of the first bracket of a JSON list or object, or nothing. "[1-2]" and "[fe80::1]" are hosts.
std::optional<std::size_t> start_of_json(std::string_view text) {
  const auto next = [text](std::size_t from) { return text.find_first_not_of(" \t\r\n", from); };
  const std::size_t first = next(0);
  if (first == std::string_view::npos) return std::nullopt;
  if (text[first] == '{') return first;
  const std::size_t second = text[first] == '[' ? next(first + 1) : std::string_view::npos;
  if (second == std::string_view::npos) return std::nullopt;
  return std::string_view("{[]\"'").find(text[second]) != std::string_view::npos ? std::optional(first) : std::nullopt;
}

}  // namespace

std::optional<Fault> check_user_name(std::string_view name) {
  constexpr std::string_view kSigns = "._-@\\+=/";
  if (name.empty()) return Fault{0, "a user name is missing before '@'"};
  if (name.front() == '-') return Fault{0, "a user name cannot start with '-'"};
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || kSigns.find(c) != std::string_view::npos) continue;
    return Fault{i, in_quotes(first_character(name.substr(i))) + " cannot be part of a user name"};
  }
  if (name.back() == '\\') return Fault{name.size() - 1, "a user name cannot end with '\\'"};
  if (name.size() > kMaxHostName) return Fault{kMaxHostName, "a user name has at most 253 characters"};
  return std::nullopt;
}

std::string leave_out_without_slots(std::vector<HostSlots>& hosts) {
  std::vector<HostSlots> out;
  for (const HostSlots& host : hosts) {
    if (host.slots == 0) out.push_back({.name = host.name, .user = host.user});
  }
  if (out.empty()) return {};
  std::erase_if(hosts, [](const HostSlots& host) { return host.slots == 0; });
  return shortened(as_option(out)) + (out.size() == 1 ? " is left out: it has" : " are left out: they have") +
         " 0 slots";
}

std::string spelt(const HostSlots& host) {
  const std::string name = host.name.find(':') == std::string::npos ? host.name : '[' + host.name + ']';
  return host.user.empty() ? name : host.user + '@' + name;
}

std::string as_option(const std::vector<HostSlots>& hosts) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < hosts.size();) {
    const HostSlots& first = hosts[i];
    const bool address = first.name.find(':') != std::string::npos;
    std::vector<std::string> names;
    while (i < hosts.size() && hosts[i].user == first.user && hosts[i].slots == first.slots &&
           (names.empty() || (!address && hosts[i].name.find(':') == std::string::npos))) {
      names.push_back(hosts[i++].name);
    }
    const std::string user = first.user.empty() ? "" : first.user + '@';
    const std::string slots = first.slots ? ':' + std::to_string(*first.slots) : "";
    for (const std::string& item : address ? names : compress_hostlist(names)) {
      out.push_back(user + (address ? '[' + item + ']' : item) + slots);
    }
  }
  return join(out, ",");
}

std::vector<HostSlots> merge_same_names(std::vector<HostSlots> hosts) {
  std::vector<HostSlots> out;
  std::unordered_map<std::string, std::size_t> index;
  for (HostSlots& host : hosts) {
    const auto [known, is_new] = index.emplace(host.name, out.size());
    if (is_new) {
      out.push_back(std::move(host));
    } else {
      HostSlots& first = out[known->second];
      if (first.slots || host.slots) {
        first.slots = std::min(first.slots.value_or(1) + host.slots.value_or(1), kMaxRanks);
      }
    }
  }
  return out;
}

Result<std::vector<HostSlots>> parse_hosts(std::string_view text) {
  if (const auto start = start_of_json(text)) {
    return Status(Errc::kInvalidArgument,
                  caret_error("-H", text, {*start, "this is JSON. Write hosts and slots, as in -H host1:4,host2:4"}));
  }
  Collector hosts;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = hostlist_item_end(text, start);
    Mention mention;
    auto fault = shifted(find_blank(text.substr(start, end - start)), start);
    if (!fault) fault = read_mention(text.substr(start, end - start), start, mention);
    if (!fault) fault = hosts.add(mention);
    if (fault) return Status(Errc::kInvalidArgument, caret_error("-H", text, *fault));
    start = end + 1;
  }
  return hosts.take();
}

Result<std::vector<HostSlots>> parse_hostfile(std::string_view text, const std::string& file) {
  const auto json = start_of_json(text);
  Collector hosts;
  std::size_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (const std::size_t start = line.find_first_of("[{"); json && start != std::string_view::npos) {
      const Fault fault{start, "this is JSON. Write one host on each line, as in: host1 slots=4"};
      return Status(Errc::kInvalidArgument, file_error(file, number, line, fault));
    }
    if (const auto fault = read_line(line.substr(0, line.find('#')), hosts)) {
      return Status(Errc::kInvalidArgument, file_error(file, number, line, *fault));
    }
  }
  auto out = hosts.take();
  if (out.empty()) {
    return Status(Errc::kInvalidArgument, file + " names no host. Write one on each line, as in: host1 slots=4");
  }
  return out;
}

}  // namespace distrun::launcher
