// The launcher's own standard output and error. They get whole lines of ranks, progress bars and messages of distrun.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "launcher/report/destination_watch.h"
#include "launcher/report/lines/line_sink.h"
#include "launcher/report/terminal.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

class StandardStreams {
 public:
  // `draws`: show unfinished lines on terminals.
  explicit StandardStreams(bool draws);
  Status open();

  // True if both streams are the same file, pipe or terminal. They then share one order.
  [[nodiscard]] bool shared() const { return shared_; }
  [[nodiscard]] bool is_tty(int stream) const { return at(stream).terminal.is_tty(); }
  [[nodiscard]] bool draws(int stream) const { return draws_ && is_tty(stream); }
  // How many lines can be drawn in place.
  [[nodiscard]] std::size_t most_drawn(int stream) const;
  LineSink& sink(int stream) { return at(stream).sink; }
  [[nodiscard]] const LineSink& sink(int stream) const { return at(stream).sink; }
  [[nodiscard]] DestinationState state(int stream) const;
  [[nodiscard]] std::string name(int stream) const;
  [[nodiscard]] bool lost() const;  // some text could not be written
  void give_up(int stream) { at(stream).terminal.give_up(); }

  // Call both in each round of the loop, look() first.
  void look();
  void tick(TimePoint now);
  // Call this when no more text will come.
  void finish();
  void watch(Poller& poller);
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  // Takes over the unwritten text of `earlier`. The batch that its file thread is writing comes before all other text.
  void follow(StandardStreams& earlier);

 private:
  struct Stream {
    Terminal terminal;
    LineSink sink;
  };
  Stream& at(int stream) { return stream == 1 && !shared_ ? error_ : output_; }
  [[nodiscard]] const Stream& at(int stream) const { return stream == 1 && !shared_ ? error_ : output_; }

  bool draws_;
  Stream output_;
  Stream error_;
  bool shared_;
};

}  // namespace distrun::launcher
