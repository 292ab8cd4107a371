// Text helpers of the launcher: lists, JSON strings, tables and the caret under a bad character. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

std::string join(const std::vector<std::string>& items, std::string_view separator);
// Ascending numbers as people write them: "0-3,5".
std::string ranges(std::vector<int> numbers);
// The reverse, as the kernel writes CPU lists; unreadable parts are left out.
std::vector<int> parse_ranges(std::string_view text);
// A whole decimal number within the limits, or nothing.
std::optional<int> parse_number(std::string_view text, int lowest, int highest);
std::string_view trim(std::string_view text);
template <class List>
bool contains(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// What is no UTF-8 is written as Python reads it in arguments and variables: byte 0xe9 as "\udce9".
std::string json_quote(std::string_view text);
// With U+FFFD for each byte that is no UTF-8, for readers that take no other text.
std::string valid_utf8(std::string_view text);

// A fault at a column (0-based) of the text that is being read.
struct Fault {
  std::size_t column = 0;
  std::string what;
};

// "where, column 11: what" and below it the text with a caret under the column. What a terminal would not show as it is
// becomes '?', and of a long text only the part around the column is shown.
std::string caret_error(std::string_view where, std::string_view text, const Fault& fault);
// The same for line `number` of a file: "file:2:11: what".
std::string file_error(std::string_view file, std::size_t number, std::string_view line, const Fault& fault);

// In quotes; what a terminal would not show as it is by its code ('\n', '\x1b'), a long text cut.
std::string in_quotes(std::string_view text);
// At most 120 bytes of it, then "...".
std::string shortened(std::string text);

// Columns aligned by spaces; the first row is the heading. Each line starts with two spaces and ends with '\n'.
std::string table(const std::vector<std::vector<std::string>>& rows);

// "10", "0.5".
std::string seconds_text(double seconds);

// "1 rank", "3 ranks".
std::string counted(std::size_t count, std::string_view noun);
// The verb behind it.
inline std::string_view verb(std::size_t count, std::string_view of_one, std::string_view of_many) {
  return count == 1 ? of_one : of_many;
}

}  // namespace distrun::launcher
