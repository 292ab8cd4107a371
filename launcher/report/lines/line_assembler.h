// Splits the bytes of one stream into lines. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace distrun::launcher {

// A whole line, or a part of a line that is too long to be kept until its end.
struct Piece {
  std::string text;  // with its '\n' if it ends the line
  bool begins = true;
  bool ends = true;
};

class LineAssembler {
 public:
  using Emit = std::function<void(Piece)>;

  // A line longer than `limit` comes in several pieces, which bounds the memory.
  explicit LineAssembler(std::size_t limit = std::size_t{256} << 10) : limit_(limit) {}

  void feed(std::string_view bytes, const Emit& emit);
  // The stream has ended. An unterminated line gets a '\n'.
  void finish(const Emit& emit);
  // The last state of a progress bar in an unterminated line: the text after the last '\r' that has text after it.
  // Empty if the line has no '\r'.
  [[nodiscard]] std::string_view progress() const;
  // An unterminated line without '\r', such as a prompt.
  [[nodiscard]] std::string_view unfinished() const;
  // Returns progress() and drops the text that it has overwritten.
  std::string take_progress();

 private:
  std::size_t limit_;
  std::string pending_;
  bool in_line_ = false;  // part of the current line has been emitted
};

// The part of a line that is visible on a terminal after its '\r's. Keeps the '\n'.
std::string visible_part(std::string_view line);
// The longest prefix that does not cut a UTF-8 character.
std::string_view whole_characters(std::string_view text);

}  // namespace distrun::launcher
