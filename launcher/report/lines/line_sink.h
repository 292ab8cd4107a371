// Merges the lines of many streams into one text, line by line. Pure: the owner takes the result from text().
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/report/lines/line_assembler.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class LineSink {
 public:
  // `terminal`: draw progress bars in place.
  explicit LineSink(bool terminal) : terminal_(terminal) {}

  // `stream` identifies the writer; `tag` goes before the line.
  void add(int stream, const std::string& tag, Piece piece, TimePoint now);
  // Draws the unfinished lines of a rank below all lines, in place of those that are drawn there. Does nothing if the
  // output is no terminal.
  void draw(const std::string& tag, const std::vector<std::string>& lines);
  [[nodiscard]] bool drawn() const { return drawn_ > 0; }  // such lines are visible, not yet overwritten

  // Text of the rank that has the terminal, unchanged. Lines of other ranks start below it.
  void raw(std::string_view text, TimePoint now);

  // A line that is too long for memory blocks the other streams. If its writer stalls, the line is broken so that they
  // can continue.
  void tick(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> deadline() const;

  // True if text of this stream waits for another stream's long line. Its writer should then wait too.
  [[nodiscard]] bool holds(int stream) const { return waiting_by_stream_.contains(stream); }

  // True if the next piece of this stream continues its line, which no other has broken.
  [[nodiscard]] bool in_line_of(int stream) const { return owner_ == stream; }

  [[nodiscard]] std::size_t size() const { return text_.size(); }
  std::string& text() { return text_; }  // text to write; the writer erases what it has written

 private:
  struct Waiting {
    int stream;
    std::string tag;
    Piece piece;
  };
  void write(int stream, const std::string& tag, const Piece& piece, TimePoint now);
  void break_line(TimePoint now);
  void release(TimePoint now);
  void release_stream(int stream, TimePoint now);
  Waiting take_waiting(std::deque<Waiting>::iterator at);
  void clear_drawing();

  bool terminal_;
  std::size_t drawn_ = 0;     // lines of draw(); the last one is the current line
  bool raw_line_ = false;     // raw text is on the current line
  std::optional<int> owner_;  // the stream whose line has not ended
  bool pauses_ = false;       // other streams need not wait for its end
  TimePoint owner_seen_;
  std::deque<Waiting> waiting_;           // pieces of other streams, in order of arrival
  std::map<int, int> waiting_by_stream_;  // number of pieces, never 0
  std::size_t waiting_bytes_ = 0;
  std::string text_;
};

}  // namespace distrun::launcher
