// Splits the bytes of one stream into lines as they look on a terminal. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/report/lines/control_codes.h"

namespace distrun::launcher {

// A whole line, or a part of a line.
struct Piece {
  std::string text;  // with its '\n' if it ends the line; of all escape sequences it has only colours
  bool begins = true;
  bool ends = true;
  bool redrawn = false;  // the line was drawn over, as progress bars are
  bool pauses = false;   // its writer has paused: other lines need not wait for the rest
};

// The longest prefix that does not cut a UTF-8 character.
std::string_view whole_characters(std::string_view text);

// Progress bars rewrite their line, and nested ones also the lines above (tqdm's `position=1`). So this keeps the last
// lines that a program can still rewrite: one line for most programs, and more after a program has moved the cursor up.
// A line is emitted when the program leaves it. Colours end with their line.
class LineAssembler {
 public:
  using Emit = std::function<void(Piece)>;

  // A line longer than `limit` comes in several pieces, which bounds the memory.
  explicit LineAssembler(std::size_t limit = std::size_t{256} << 10) : limit_(limit) {}

  void feed(std::string_view bytes, const Emit& emit);
  // The stream has ended. An unterminated line gets a '\n'.
  void finish(const Emit& emit);

  // Progress bars as they look now, without their empty lines. Empty if there is no bar.
  [[nodiscard]] std::vector<std::string> bars() const;
  [[nodiscard]] bool has_bars() const { return !in_line_ && (rows_.size() > 1 || row().redrawn || returned_); }
  // True if a bar has changed since the last call of take_bars().
  [[nodiscard]] bool bars_moved() const;
  // The bars that have changed since the last call.
  std::vector<std::string> take_bars();

  // True if there is an unterminated line that is no bar, such as a prompt.
  [[nodiscard]] bool pauses() const { return !has_bars() && !whole_characters(row().text).empty(); }
  // That line. Empty if a part of it has been emitted.
  [[nodiscard]] std::string unfinished() const;
  [[nodiscard]] bool in_line() const { return in_line_; }  // a part of the current line has been emitted
  // Takes the unterminated line, or what has come of it since the last call. The rest follows as another piece.
  std::optional<Piece> take_paused();

 private:
  struct Row {
    std::string text;       // with colours
    std::size_t width = 0;  // characters that are visible
    bool redrawn = false;
    bool coloured = false;  // the colour at its end is not the usual one
    bool moved = false;     // changed since take_bars()
  };
  [[nodiscard]] Row& row() { return rows_[at_]; }
  [[nodiscard]] const Row& row() const { return rows_[at_]; }
  [[nodiscard]] static std::string as_it_looks(const Row& row);
  void apply(const Code& code, const Emit& emit);
  void write(std::string_view text, const Emit& emit);
  void new_line(const Emit& emit);
  void move(int rows, const Emit& emit);
  void return_to(std::size_t column);
  void add_colour();
  static void erase(Row& row, std::size_t from);
  // Emits the line and empties it.
  void emit_row(Row& row, bool ends, const Emit& emit);
  // Emits all lines but the current one. The program can no longer rewrite them.
  void leave_block(const Emit& emit);
  // Ends a line that was emitted in part, because the program is going to draw over it.
  void end_part(const Emit& emit);

  std::size_t limit_;
  ControlCodes codes_;
  std::deque<Row> rows_ = std::deque<Row>(1);
  std::size_t at_ = 0;        // the row of the cursor
  std::size_t column_ = 0;    // of the cursor
  bool returned_ = false;     // '\r' came, and no text after it
  std::string colour_;        // sequences that belong to the next text
  std::size_t scrolled_ = 0;  // lines that left the block since the cursor last moved up
  bool in_line_ = false;      // a part of the first row has been emitted
};

}  // namespace distrun::launcher
