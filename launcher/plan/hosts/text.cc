#include "launcher/plan/hosts/text.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "runtime/base/setting_values.h"

namespace distrun::launcher {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// The size in bytes of the UTF-8 character at the start of the text. 0 if there is none (RFC 3629 forbids overlong
// forms and surrogates).
std::size_t character_size(std::string_view text) {
  const auto byte = [text](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (size == 0 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  const unsigned second = byte(1);
  const bool out_of_range = (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
                            (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
  return out_of_range ? 0 : size;
}

// The code of a character that a terminal obeys instead of showing it. Empty for all others. `character` is valid
// UTF-8.
std::string code_of_control(std::string_view character) {
  if (character == "\n") return "\\n";
  if (character == "\r") return "\\r";
  if (character == "\t") return "\\t";
  char text[8];
  const auto byte = [character](std::size_t at) {
    return static_cast<unsigned>(static_cast<unsigned char>(character[at]));
  };
  if (character.size() == 1 && is_control(character.front())) {
    std::snprintf(text, sizeof text, "\\x%02x", byte(0));
    return text;
  }
  unsigned code = character.size() == 2 ? (byte(0) & 0x1FU) << 6 | (byte(1) & 0x3FU) : 0;
  if (character.size() == 3) code = (byte(0) & 0x0FU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU);
  const bool c1 = code >= 0x80 && code <= 0x9F;
  const bool line_end = code == 0x2028 || code == 0x2029;
  const bool direction = (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  if (!c1 && !line_end && !direction) return {};
  std::snprintf(text, sizeof text, "\\u%04x", code);
  return text;
}

// The nearest beginning of a character at `at` or before.
std::size_t before_character(std::string_view text, std::size_t at) {
  while (at > 0 && at < text.size() && continues_character(text[at])) --at;
  return at;
}

// The nearest beginning of a character at `at` or after.
std::size_t after_character(std::string_view text, std::size_t at) {
  while (at < text.size() && continues_character(text[at])) ++at;
  return at;
}

std::string marked(std::string_view text, const Fault& fault) {
  constexpr std::size_t kAround = 80;
  const std::size_t column = std::min(fault.column, text.size());
  std::size_t start = column > kAround ? column - kAround : 0;
  while (start < column && continues_character(text[start])) ++start;
  const std::string_view shown = text.substr(start, column - start + kAround);
  std::string out = start > 0 ? "\n  ..." : "\n  ";
  for (const char c : shown) out += is_control(c) ? (c == '\t' ? ' ' : '?') : c;
  if (start + shown.size() < text.size()) out += "...";
  const auto before = shown.substr(0, column - start);
  const auto width =
      before.size() - static_cast<std::size_t>(std::count_if(before.begin(), before.end(), continues_character));
  return out + "\n  " + std::string(width + (start > 0 ? 3 : 0), ' ') + '^';
}

}  // namespace

std::string join(const std::vector<std::string>& items, std::string_view separator) {
  std::string out;
  for (const std::string& item : items) {
    if (&item != &items.front()) out += separator;
    out += item;
  }
  return out;
}

std::string ranges(std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!out.empty()) out += ',';
    out += std::to_string(numbers[i]);
    if (last > i) out += '-' + std::to_string(numbers[last]);
    i = last + 1;
  }
  return out;
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (const char c : ranges(ranks)) {
    out += c;
    if (c == ',') out += ' ';
  }
  return out;
}

std::vector<int> parse_ranges(std::string_view text) {
  // A limit for wrong values in a copied tree, far above any real machine.
  constexpr int kHighest = 65535;
  std::vector<int> out;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = trim(text.substr(0, comma));
    const std::size_t dash = part.find('-');
    const auto first = parse_number(part.substr(0, dash), 0, kHighest);
    const auto last = dash == std::string_view::npos ? first : parse_number(part.substr(dash + 1), 0, kHighest);
    if (first && last) {
      for (int i = *first; i <= *last; ++i) out.push_back(i);
    }
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return out;
}

std::optional<int> parse_number(std::string_view text, int lowest, int highest) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < lowest || value > highest) return std::nullopt;
  return value;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string_view first_character(std::string_view text) {
  return text.substr(0, std::max<std::size_t>(character_size(text), 1));
}

Result<std::string> unix_text(std::string_view file, std::string_view name) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (file.starts_with("\xff\xfe") || file.starts_with("\xfe\xff")) {
    return Status(Errc::kInvalidArgument,
                  std::string(name) + ": it is UTF-16 text. Save it as UTF-8, or run iconv -f UTF-16 -t UTF-8 on it");
  }
  if (file.starts_with(kMark)) file.remove_prefix(kMark.size());
  std::string out;
  out.reserve(file.size());
  for (std::size_t number = 1; !file.empty(); ++number) {
    const std::size_t end = file.find('\n');
    const std::string_view line = file.substr(0, end);
    if (const std::size_t column = line.find('\0'); column != line.npos) {
      const Fault fault{column, "this is a NUL byte, and text has none. Is it the right file? Save it as UTF-8 text"};
      return Status(Errc::kInvalidArgument, file_error(name, number, line, fault));
    }
    const bool returns = line.ends_with('\r');
    out += returns ? line.substr(0, line.size() - 1) : line;
    if (end == file.npos) break;
    out += '\n';
    file.remove_prefix(end + 1);
  }
  return out;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    out += size == 0 ? "\ufffd" : text.substr(0, size);
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    const std::string code = size == 0 ? "\ufffd" : code_of_control(text.substr(0, size));
    out += code.empty() ? text.substr(0, size) : code;
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

std::string printable_lines(std::string_view text) {
  std::string out;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    std::string_view line = text.substr(start, end - start);
    while (line.ends_with('\r')) line.remove_suffix(1);
    out += (start == 0 ? "" : "\n") + printable(line);
    start = end + 1;
  }
  return out;
}

std::string sentence(std::string text) {
  if (!text.empty() && std::string_view(".?!").find(text.back()) == std::string_view::npos) text += '.';
  return text;
}

std::string cut_middle(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  const std::size_t front = before_character(text, (most - 3) / 2);
  return text.substr(0, front) + "..." + text.substr(after_character(text, text.size() - (most - 3 - front)));
}

std::string cut_front(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  return "..." + text.substr(after_character(text, text.size() - (most - 3)));
}

std::string json_quote(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    const auto byte = static_cast<unsigned char>(text.front());
    if (size == 1 && (byte == '"' || byte == '\\')) out += '\\';
    if (size == 0 || byte < 0x20) {
      out += size == 0 ? "\\udc" : "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out + '"';
}

std::string caret_error(std::string_view where, std::string_view text, const Fault& fault) {
  return std::string(where) + ", column " + std::to_string(fault.column + 1) + ": " + fault.what + marked(text, fault);
}

std::string file_error(std::string_view file, std::size_t number, std::string_view line, const Fault& fault) {
  return std::string(file) + ':' + std::to_string(number) + ':' + std::to_string(fault.column + 1) + ": " + fault.what +
         marked(line, fault);
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMost = 60;
  const std::string_view shown = text.substr(0, before_character(text, kMost));
  return "'" + printable(shown) + (shown.size() < text.size() ? "...'" : "'");
}

std::string shortened(std::string text) {
  constexpr std::size_t kMost = 120;
  return text.size() > kMost ? text.substr(0, before_character(text, kMost)) + "..." : text;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& names) {
  std::string nearest = nearest_name(word, names);
  if (nearest.empty()) {
    std::string small(word);
    for (char& c : small) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    nearest = nearest_name(small, names);
  }
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) line += ' ' + row[i] + std::string(widths[i] - row[i].size() + 1, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", seconds);
  return text;
}

std::string counted(std::size_t count, std::string_view noun) {
  return std::to_string(count) + ' ' + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace distrun::launcher
