// Bytes of one stream to whole lines. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace distrun::launcher {

// A whole line, or a part of one that is too long to be kept until its end.
struct Piece {
  std::string text;  // with its '\n' if it ends the line
  bool begins = true;
  bool ends = true;
};

class LineAssembler {
 public:
  using Emit = std::function<void(Piece)>;

  // A line longer than `limit` comes in several pieces, so that memory stays bounded.
  explicit LineAssembler(std::size_t limit = std::size_t{256} << 10) : limit_(limit) {}

  void feed(std::string_view bytes, const Emit& emit);
  // The stream is at its end: an unterminated line gets its '\n'.
  void finish(const Emit& emit);
  // What a program has drawn last in an unterminated line: the text behind the last '\r' that has any. Empty without
  // '\r'.
  [[nodiscard]] std::string_view progress() const;
  // An unterminated line without '\r' so far, as a prompt is.
  [[nodiscard]] std::string_view unfinished() const;
  // progress(), and forgets what that has been drawn over.
  std::string take_progress();

 private:
  std::size_t limit_;
  std::string pending_;
  bool in_line_ = false;  // a part of the current line has been emitted
};

// What remains visible of a line on a terminal after its '\r's; keeps the '\n'.
std::string visible_part(std::string_view line);
// The longest beginning that does not cut a UTF-8 character.
std::string_view whole_characters(std::string_view text);

}  // namespace distrun::launcher
