// The exception that ended a Python program, as the program printed it to standard error. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/clock.h"
#include "runtime/net/store/program_state.h"

namespace distrun::launcher {

struct RaisedException {
  std::string text;  // "ValueError: bad"
  // The innermost frame of the user's program. If no frame is of it: the innermost one.
  net::CodePlace place;
  bool in_library = false;  // the innermost frame is of a library
};

// True for code that was installed, or that a library made: it is not the user's program.
bool is_library(std::string_view file);

class LastException {
 public:
  // A line without its end, in the order of writing.
  void add(std::string_view line, TimePoint written);
  // None: the last lines are not the end of a traceback. Lines of libraries may follow it within a few seconds.
  [[nodiscard]] std::optional<RaisedException> get() const;

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  bool complete(std::string_view line);

  bool inside_ = false;       // a traceback has begun
  bool introduces_ = false;   // the text of found_ ends with ':': what happened is in a later line
  std::size_t code_ = kNone;  // lines with this indent, or a deeper one, are the code of a frame
  net::CodePlace innermost_;
  net::CodePlace own_;  // the innermost frame of the user's program; empty file: none
  std::optional<RaisedException> found_;
  TimePoint found_at_{};
  TimePoint last_{};
};

// Without the "[rank3]: " that torch.distributed puts before each line of a traceback.
std::string_view without_rank_tag(std::string_view line);
// The lines of a traceback, also with torch's tag before each.
bool begins_traceback(std::string_view line);
bool continues_traceback(std::string_view line);
bool connects_tracebacks(std::string_view line);  // stands between a traceback and the one that follows from it
// "Error: text" of the line after the last frame. Empty if the line does not begin with the name of a class.
std::string exception_in(std::string_view line);

// True if the program waited for an answer at a prompt and its standard input had ended: "EOFError: EOF when reading a
// line", "BdbQuit".
bool is_end_of_input(std::string_view exception);

}  // namespace distrun::launcher
