// Finds control characters and escape sequences in the output of a program. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace distrun::launcher {

// A run of visible text, or one code that a line of text can follow. All other codes are dropped: they could hide or
// rewrite the lines of other ranks.
struct Code {
  enum class Kind {
    kText,
    kColour,      // `text` is the whole sequence
    kNewline,     // to the start of the next line
    kReturn,      // to the start of this line
    kUp,          // `count` lines, and so on
    kDown,        //
    kUpReturn,    // and to the start of that line
    kDownReturn,  //
    kLeft,        // `count` characters
    kRight,       //
    kColumn,      // to character `count`, from 0
    kEraseEnd,    // from here to the end of the line
    kEraseLine,   //
    kEraseBelow,  // from here, and all lines below
  };
  Kind kind = Kind::kText;
  std::string_view text{};  // valid until the next call of next()
  int count = 1;
};

class ControlCodes {
 public:
  // Takes the first code from `bytes`. Returns nothing when `bytes` is empty. A sequence may be cut between two calls.
  std::optional<Code> next(std::string_view& bytes);

 private:
  enum class State { kText, kHalf, kEscape, kSequence, kString };
  [[nodiscard]] bool ends_early(char c) const;
  std::optional<Code> in_text(std::string_view& bytes);
  std::optional<Code> in_sequence(char c);
  [[nodiscard]] std::optional<Code> meaning(char last) const;
  State state_ = State::kText;
  std::string sequence_;
};

}  // namespace distrun::launcher
