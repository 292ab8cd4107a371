#include "launcher/plan/hosts/hostlist.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace distrun::launcher {
namespace {

constexpr std::size_t kMaxDigits = 18;  // without leading zeros; fits 64 bits with room to add

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '.' || c == '_' || c == '-';
}

struct Range {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::size_t width = 1;  // digits of the first number as written: 08-10 is 08, 09, 10
};

// "[01-04,7]", the text before it, and the current number of the expansion.
struct Bracket {
  std::string_view before;
  std::vector<Range> ranges;
  std::size_t at_range = 0;
  std::uint64_t at = 0;
};

struct Item {
  std::vector<Bracket> brackets;
  std::string_view tail;
};

void append_number(std::string& out, std::uint64_t number, std::size_t width) {
  const std::string digits = std::to_string(number);
  if (digits.size() < width) out.append(width - digits.size(), '0');
  out += digits;
}

bool all_digits(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_digit); }

bool too_long(std::string_view number) {
  return all_digits(number) && number.size() - std::min(number.find_first_not_of('0'), number.size()) > kMaxDigits;
}

std::optional<std::uint64_t> read_number(std::string_view text) {
  if (!all_digits(text) || too_long(text)) return std::nullopt;
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::optional<Fault> read_range(std::string_view text, Range& out) {
  const std::size_t dash = text.find('-');
  const std::string_view low = text.substr(0, dash);
  const std::string_view high = dash == std::string_view::npos ? low : text.substr(dash + 1);
  if (too_long(low) || too_long(high)) return Fault{0, "a number has at most 18 digits"};
  const auto first = read_number(low);
  if (!first) return Fault{0, "expected a number or a range of numbers here, as in [01-04,7]"};
  const auto last = read_number(high);
  if (!last) return Fault{dash + 1, "expected the number at which the range ends, as in [01-04]"};
  if (*last < *first) return Fault{0, "the first number of this range is the larger one. Write the smaller one first"};
  out = {.first = *first, .last = *last, .width = low.size()};
  return std::nullopt;
}

std::optional<Fault> read_ranges(std::string_view text, Bracket& out) {
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    Range range;
    if (auto fault = read_range(text.substr(start, comma - start), range)) {
      fault->column += start;
      return fault;
    }
    out.ranges.push_back(range);
    start = comma + 1;
  }
  out.at = out.ranges.front().first;
  return std::nullopt;
}

std::optional<Fault> check_characters(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_name_char(text[i]))
      return Fault{i, in_quotes(first_character(text.substr(i))) + " cannot be part of a host name"};
  }
  return std::nullopt;
}

std::optional<Fault> check_literal(std::string_view text, std::size_t column) {
  if (const std::size_t close = text.find(']'); close != std::string_view::npos) {
    return Fault{column + close, "this ']' has no '[' before it"};
  }
  auto fault = check_characters(text);
  if (fault) fault->column += column;
  return fault;
}

std::optional<Fault> check_start(std::string_view name) {
  if (name.empty()) return Fault{0, "a host name is missing here"};
  if (name.front() != '-' && name.front() != '.') return std::nullopt;
  return Fault{0, "a host name cannot start with " + in_quotes(name.substr(0, 1))};
}

std::optional<Fault> read_item(std::string_view text, Item& out) {
  if (auto fault = check_start(text)) return fault;
  std::size_t start = 0;
  for (;;) {
    const std::size_t open = std::min(text.find('[', start), text.size());
    const std::string_view literal = text.substr(start, open - start);
    if (auto fault = check_literal(literal, start)) return fault;
    if (open == text.size()) {
      out.tail = literal;
      return std::nullopt;
    }
    const std::size_t close = text.find(']', open);
    if (close == std::string_view::npos) return Fault{open, "this '[' has no matching ']'"};
    Bracket bracket{.before = literal};
    if (auto fault = read_ranges(text.substr(open + 1, close - open - 1), bracket)) {
      fault->column += open + 1;
      return fault;
    }
    out.brackets.push_back(std::move(bracket));
    start = close + 1;
  }
}

std::size_t longest_name(const Item& item) {
  std::size_t length = item.tail.size();
  for (const Bracket& bracket : item.brackets) {
    std::size_t widest = 0;
    for (const Range& range : bracket.ranges) {
      widest = std::max({widest, range.width, std::to_string(range.last).size()});
    }
    length += bracket.before.size() + widest;
  }
  return length;
}

// The number of names, or `most` + 1 if it is larger than `most`.
std::size_t count_names(const Item& item, std::size_t most) {
  std::uint64_t names = 1;
  for (const Bracket& bracket : item.brackets) {
    std::uint64_t numbers = 0;
    for (const Range& range : bracket.ranges) {
      numbers = std::min<std::uint64_t>(numbers + (range.last - range.first) + 1, most + 1);
    }
    names = std::min<std::uint64_t>(names * numbers, most + 1);
  }
  return static_cast<std::size_t>(names);
}

// Moves to the next number of a bracket. Returns false if it starts again at the first one.
bool advance(Bracket& bracket) {
  if (bracket.at < bracket.ranges[bracket.at_range].last) {
    ++bracket.at;
    return true;
  }
  bracket.at_range = (bracket.at_range + 1) % bracket.ranges.size();
  bracket.at = bracket.ranges[bracket.at_range].first;
  return bracket.at_range != 0;
}

// Moves in Slurm's order: the last bracket changes fastest, then the first, the second and so on. With three or more
// brackets this is not the usual order, but lists by host (SLURM_TASKS_PER_NODE) follow it.
bool advance(std::vector<Bracket>& brackets) {
  if (brackets.empty()) return false;
  if (advance(brackets.back())) return true;
  for (std::size_t i = 0; i + 1 < brackets.size(); ++i) {
    if (advance(brackets[i])) return true;
  }
  return false;
}

std::string name_at(const Item& item) {
  std::string name;
  for (const Bracket& bracket : item.brackets) {
    name += bracket.before;
    append_number(name, bracket.at, bracket.ranges[bracket.at_range].width);
  }
  return name += item.tail;
}

// A name that ends in a number, split into both parts.
struct Numbered {
  std::string_view prefix;
  std::string_view digits;
};

Numbered split_host(std::string_view name) {
  std::size_t start = name.size();
  while (start > 0 && name.size() - start < kMaxDigits && is_digit(name[start - 1])) --start;
  return {.prefix = name.substr(0, start), .digits = name.substr(start)};
}

bool numbered(std::string_view name, std::string_view prefix) {
  const Numbered parts = split_host(name);
  return !parts.digits.empty() && parts.prefix == prefix;
}

// Returns "3" or "01-04" for the consecutive numbers from names[at] on. Moves `at` to the first name after them.
std::string take_range(const std::vector<std::string>& names, std::size_t& at) {
  const Numbered first = split_host(names[at++]);
  std::string range(first.digits);
  std::string last = range;
  for (std::uint64_t next = read_number(first.digits).value_or(0) + 1; at < names.size(); ++at, ++next) {
    const Numbered name = split_host(names[at]);
    std::string expected;
    append_number(expected, next, first.digits.size());
    if (name.prefix != first.prefix || name.digits != expected) break;
    last = expected;
  }
  return last == range ? range : range + '-' + last;
}

}  // namespace

std::optional<Fault> check_host_name(std::string_view name) {
  if (auto fault = check_start(name)) return fault;
  if (auto fault = check_characters(name)) return fault;
  if (name.size() > kMaxHostName) return Fault{kMaxHostName, "a host name has at most 253 characters"};
  return std::nullopt;
}

std::size_t hostlist_item_end(std::string_view text, std::size_t start) {
  bool inside = false;
  for (std::size_t i = start; i < text.size(); ++i) {
    if (text[i] == '[') inside = true;
    if (text[i] == ']') inside = false;
    if (text[i] == ',' && !inside) return i;
  }
  return text.size();
}

std::optional<Fault> expand_hostlist_item(std::string_view text, std::size_t most, std::vector<std::string>& names) {
  Item item;
  if (auto fault = read_item(text, item)) return fault;
  if (longest_name(item) > kMaxHostName) return Fault{0, "a host name has at most 253 characters"};
  if (count_names(item, most) > most) return Fault{0, "there are more than " + std::to_string(kMaxHosts) + " hosts"};
  do names.push_back(name_at(item));
  while (advance(item.brackets));
  return std::nullopt;
}

Result<std::vector<std::string>> parse_hostlist(std::string_view text, std::string_view where) {
  std::vector<std::string> names;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = hostlist_item_end(text, start);
    if (auto fault = expand_hostlist_item(text.substr(start, end - start), kMaxHosts - names.size(), names)) {
      fault->column += start;
      return Status(Errc::kInvalidArgument, caret_error(where, text, *fault));
    }
    start = end + 1;
  }
  return names;
}

std::vector<std::string> compress_hostlist(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < names.size();) {
    const std::string_view prefix = split_host(names[i]).prefix;
    std::vector<std::string> ranges;
    while (i < names.size() && numbered(names[i], prefix)) ranges.push_back(take_range(names, i));
    if (ranges.empty()) {
      out.push_back(names[i++]);
    } else if (ranges.size() == 1 && ranges[0].find('-') == std::string::npos) {
      out.push_back(std::string(prefix) + ranges[0]);
    } else {
      out.push_back(std::string(prefix) + '[' + join(ranges, ",") + ']');
    }
  }
  return out;
}

}  // namespace distrun::launcher
