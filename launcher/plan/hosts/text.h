// Text helpers of the launcher: lists, JSON strings, tables, and errors with a caret. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace distrun::launcher {

std::string join(const std::vector<std::string>& items, std::string_view separator);
// Ascending numbers in short form: "0-3,5".
std::string ranges(std::vector<int> numbers);
// "rank 2", "ranks 0-3, 6"
std::string rank_list(const std::vector<int>& ranks);
// The reverse, for the CPU lists of the kernel. Skips parts that cannot be read.
std::vector<int> parse_ranges(std::string_view text);
// A whole decimal number within the limits. Returns nothing for other texts.
std::optional<int> parse_number(std::string_view text, int lowest, int highest);
std::string_view trim(std::string_view text);
// The text of a file as Unix programs write it: without a byte order mark and with \n at the end of a line. Every file
// that a user writes is read through this (cli/text_file.h). Errors begin with `name`: the file is UTF-16, as Windows
// may save it, or has a NUL byte, which would end its text for the system.
Result<std::string> unix_text(std::string_view file, std::string_view name);
template <class List>
bool contains(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// Writes bytes that are not UTF-8 as Python represents them in arguments and variables: byte 0xe9 as "\udce9".
std::string json_quote(std::string_view text);
// Replaces each byte that is not UTF-8 by U+FFFD, for readers that need valid text.
std::string valid_utf8(std::string_view text);
// The first character of a text that is not empty. One byte if it is not UTF-8.
std::string_view first_character(std::string_view text);
// True for the second and later bytes of a UTF-8 character, which take no space on the screen.
inline bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

// Text of a program for a line on a terminal: writes control characters by their code ('\n', '\x1b'), and replaces
// bytes that are not UTF-8 by U+FFFD.
std::string printable(std::string_view text);
// The same for text of several lines, which stay lines. A CR before the end of a line is left out: ssh writes CR LF.
std::string printable_lines(std::string_view text);
// The text as a whole sentence: with a full stop, unless it has an end.
std::string sentence(std::string text);
// Keeps the beginning and the end of a long text, with "..." between them. `most`: in bytes, at least 4.
std::string cut_middle(const std::string& text, std::size_t most);
// Keeps the end of a long text, with "..." before it.
std::string cut_front(const std::string& text, std::size_t most);

// A fault at a column (0-based) of the parsed text.
struct Fault {
  std::size_t column = 0;
  std::string what;
};

// "where, column 11: what", and below it the text with a caret under the column. Replaces characters that a terminal
// cannot show by '?'. Shows only the part around the column of a long text.
std::string caret_error(std::string_view where, std::string_view text, const Fault& fault);
// The same for line `number` of a file: "file:2:11: what".
std::string file_error(std::string_view file, std::size_t number, std::string_view line, const Fault& fault);

// The printable text in quotes, and a long text cut.
std::string in_quotes(std::string_view text);
// Cuts the text after 120 bytes and adds "...".
std::string shortened(std::string text);

// "; did you mean X?" for the name that is most like the word. Empty if none is.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& names);

// Aligns the columns with spaces. The first row is the heading. Each line starts with two spaces and ends with '\n'.
std::string table(const std::vector<std::vector<std::string>>& rows);

// "10", "0.5".
std::string seconds_text(double seconds);

// "1 rank", "3 ranks".
std::string counted(std::size_t count, std::string_view noun);
// The verb after such a count.
inline std::string_view verb(std::size_t count, std::string_view of_one, std::string_view of_many) {
  return count == 1 ? of_one : of_many;
}

}  // namespace distrun::launcher
