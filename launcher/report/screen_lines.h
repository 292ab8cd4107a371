// The lines on the screen: those of ranks with their tags, equal ones of many ranks as one, and those of distrun. Knows
// which lines the user has just seen. For the head's loop.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launcher/options.h"
#include "launcher/report/lines/fold.h"
#include "launcher/report/lines/line_tags.h"
#include "launcher/report/lines/shown_lines.h"
#include "launcher/report/standard_streams.h"

namespace distrun::launcher {

class ScreenLines {
 public:
  static constexpr int kOwnStream = -1;  // the writer of distrun's messages

  // `tags` and `streams` must outlive it. `colour`: on terminals.
  ScreenLines(const LineTags& tags, StandardStreams& streams, Folding folding, bool colour, std::size_t ranks)
      : tags_(tags), streams_(streams), folding_(folding), colour_(colour), fold_(ranks) {}

  void show(int rank, int stream, Piece piece, TimePoint now);
  void show(int rank, int stream, std::deque<Piece> pieces, TimePoint now);
  // A message of distrun, as whole lines.
  void print(int stream, const std::string& stamp, const std::string& lines, TimePoint now);
  // The terminal rank has written this itself.
  void seen(int rank, const Piece& piece) { shown_.add({rank}, piece.text, piece.begins); }

  // True if equal lines of this stream are shown as one.
  [[nodiscard]] bool folds(int stream) const;
  void finished(int rank) { fold_.finished(rank); }  // no line waits for this rank any more
  [[nodiscard]] bool holds(int rank) const { return fold_.holds(rank); }
  void show_due(TimePoint now) { show(fold_.take(now), now); }
  void show_all(TimePoint now) { show(fold_.take_all(), now); }
  [[nodiscard]] std::optional<TimePoint> deadline() const { return fold_.deadline(); }

  // True if these lines of this rank are among the last ones above the next message of distrun.
  bool shows(int rank, const std::vector<std::string>& lines, TimePoint now);

 private:
  void show(std::vector<Fold::Line> lines, TimePoint now);
  // Messages of distrun are on standard error.
  [[nodiscard]] bool near_messages(int stream) const { return streams_.shared() || stream == 1; }

  const LineTags& tags_;
  StandardStreams& streams_;
  const Folding folding_;
  const bool colour_;
  Fold fold_;
  ShownLines shown_;
};

}  // namespace distrun::launcher
