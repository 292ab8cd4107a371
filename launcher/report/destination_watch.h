// Messages to the user about one destination of text (standard output, standard error, the files): text was lost, its
// reader has gone, or it takes no text. Pure: returns the messages.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"

namespace distrun::launcher {

// The current state of the destination.
struct DestinationState {
  bool is_file = false;      // text goes to a disk and not to a reader
  bool closed = false;       // takes no text any more
  bool reader_gone = false;  // only if it is no file
  std::string loss;          // a sentence why text was dropped; empty: none was
  std::size_t backlog = 0;   // bytes not taken yet
  std::size_t taken = 0;     // grows with each byte that it takes
};

class DestinationWatch {
 public:
  // Above this backlog the destination counts as slow.
  static constexpr std::size_t kHighWater = std::size_t{256} * 1024;
  // `finished`: all ranks have ended. `ending_soon`: the user wants an end, so distrun waits only a moment for a reader
  // or a disk.
  struct Phase {
    bool finished = false;
    bool ending_soon = false;
  };
  struct SlowText {
    std::string text;      // for the user; empty: nothing to say
    bool give_up = false;  // do not wait for the destination any longer
  };

  // `gone` says what it means for the job if the reader goes away.
  DestinationWatch(std::string name, std::string gone) : name_(std::move(name)), gone_(std::move(gone)) {}

  // Returns new messages about lost text and readers that have gone.
  std::vector<std::string> faults(const DestinationState& state, Phase phase);
  // A slow or stopped reader or disk blocks ranks in their next write. That looks like a hang, so the user gets a
  // message.
  SlowText slow(const DestinationState& state, Phase phase, TimePoint now);
  // When slow() must be called again if nothing changes.
  [[nodiscard]] std::optional<TimePoint> deadline(Phase phase) const;

 private:
  [[nodiscard]] std::string stuck_text(bool is_file, Phase phase) const;

  std::string name_;
  std::string gone_;
  bool loss_reported_ = false;
  bool gone_reported_ = false;
  bool stuck_reported_ = false;
  std::size_t taken_ = 0;           // at the last call
  std::optional<TimePoint> since_;  // since then it has taken nothing although the backlog is large
};

}  // namespace distrun::launcher
