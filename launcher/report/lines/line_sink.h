// Merges the lines of many streams into one text, whole line after whole line. Pure: text comes out of take().
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
  // `terminal`: progress bars are drawn in place, and lines are shown as they look after their '\r's.
  explicit LineSink(bool terminal) : terminal_(terminal) {}

  // `stream` identifies the writer; `tag` goes before the line.
  void add(int stream, const std::string& tag, Piece piece, TimePoint now);
  // Draws an unfinished progress bar in place; nothing on anything but a terminal.
  void progress(const std::string& tag, std::string_view text);
  [[nodiscard]] bool drawn() const { return drawn_; }  // and not written over since

  // Text as it comes from a rank that has the terminal; lines of others begin below it.
  void raw(std::string_view text, TimePoint now);

  // A line too long for memory holds up the other streams. If its writer stalls, it is broken so that they go on.
  void tick(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> deadline() const;

  // Some of this stream's text waits here for another stream's long line: its writer should wait too.
  [[nodiscard]] bool holds(int stream) const { return waiting_by_stream_.contains(stream); }

  [[nodiscard]] std::size_t size() const { return text_.size(); }
  std::string& text() { return text_; }  // what is to be written; the writer erases what it has written

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
  std::optional<int> owner_;  // the stream whose long line is not at its end
  TimePoint owner_seen_;
  std::deque<Waiting> waiting_;           // pieces of other streams, in order of arrival
  std::map<int, int> waiting_by_stream_;  // number of pieces, never 0
  std::size_t waiting_bytes_ = 0;
  std::string text_;
};

}  // namespace distrun::launcher
