// Merges the lines of many streams into one text, line by line. Pure: the owner takes the result from text().
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "launcher/report/lines/line_assembler.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class LineSink {
 public:
  // `terminal`: draw progress bars in place, and show lines as they look after their '\r's.
  explicit LineSink(bool terminal) : terminal_(terminal) {}

  // `stream` identifies the writer; `tag` goes before the line.
  void add(int stream, const std::string& tag, Piece piece, TimePoint now);
  // Draws an unfinished progress bar in place. Does nothing if the output is no terminal.
  void progress(const std::string& tag, std::string_view text);
  [[nodiscard]] bool drawn() const { return drawn_; }  // a bar is visible, not yet overwritten

  // Text of the rank that has the terminal, unchanged. Lines of other ranks start below it.
  void raw(std::string_view text, TimePoint now);

  // A line that is too long for memory blocks the other streams. If its writer stalls, the line is broken so that they
  // can continue.
  void tick(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> deadline() const;

  // True if text of this stream waits for another stream's long line. Its writer should then wait too.
  [[nodiscard]] bool holds(int stream) const { return waiting_by_stream_.contains(stream); }

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
  void clear_progress();

  bool terminal_;
  bool drawn_ = false;        // a progress bar is on the current line
  bool raw_line_ = false;     // raw text is on the current line
  std::optional<int> owner_;  // the stream whose long line has not ended
  TimePoint owner_seen_;
  std::deque<Waiting> waiting_;           // pieces of other streams, in order of arrival
  std::map<int, int> waiting_by_stream_;  // number of pieces, never 0
  std::size_t waiting_bytes_ = 0;
  std::string text_;
};

}  // namespace distrun::launcher
