#include "launcher/job/screen.h"

#include <signal.h>

namespace distrun::launcher {

void Screen::flush(Poller& poller, SignalSource& signals) {
  for (;;) {
    output_->finish_all();
    output_->tick(Clock::now());
    if (!output_->pending()) return;
    poller.clear();
    poller.watch(signals.fd(), POLLIN, [this, &signals](short) {
      for (const int number : signals.take()) {
        if (number == SIGINT || number == SIGTERM || number == SIGHUP) output_->end_soon();
      }
    });
    output_->watch(poller);
    if (output_->pending() && !poller.wait(output_->deadline()).ok()) return;
  }
}

}  // namespace distrun::launcher
