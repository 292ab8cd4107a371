// The launcher's own standard output and error: where whole lines of ranks, progress bars and messages of distrun go.
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
  // `draws`: on terminals lines are shown before their end.
  explicit StandardStreams(bool draws);
  Status open();

  // Both streams are the same file, pipe or terminal, so that one order holds for both.
  [[nodiscard]] bool shared() const { return shared_; }
  [[nodiscard]] bool is_tty(int stream) const { return at(stream).terminal.is_tty(); }
  [[nodiscard]] bool draws(int stream) const { return draws_ && is_tty(stream); }
  LineSink& sink(int stream) { return at(stream).sink; }
  [[nodiscard]] const LineSink& sink(int stream) const { return at(stream).sink; }
  [[nodiscard]] DestinationState state(int stream) const;
  [[nodiscard]] std::string name(int stream) const;
  [[nodiscard]] bool lost() const;  // something could not be written
  void give_up(int stream) { at(stream).terminal.give_up(); }

  // In each round of the loop: look() first.
  void look();
  void tick(TimePoint now);
  // No more text will come.
  void finish();
  void watch(Poller& poller);
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  // Takes over what another one has not written, with what a file's thread has in hand, which comes before all else.
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
