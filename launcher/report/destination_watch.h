// What the user is told about one place where text goes (standard output, standard error, the files): that text was
// lost, that its reader has gone, that it takes nothing. Pure: texts come out.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"

namespace distrun::launcher {

// The place as it is now.
struct DestinationState {
  bool is_file = false;      // a disk takes the text, not a reader
  bool closed = false;       // it takes none any more
  bool reader_gone = false;  // of what is no file
  std::string loss;          // why text was dropped, a sentence; empty: none was
  std::size_t backlog = 0;   // bytes that it has not taken yet
  std::size_t taken = 0;     // grows when it takes some
};

class DestinationWatch {
 public:
  // Above this backlog the place counts as behind.
  static constexpr std::size_t kHighWater = std::size_t{256} * 1024;
  // Ranks have ended; the user wants an end and waits no longer than a moment for a reader or a disk.
  struct Phase {
    bool finished = false;
    bool hurried = false;
  };
  struct SlowText {
    std::string text;      // to be told; empty: nothing
    bool give_up = false;  // the place is to be waited for no longer
  };

  // `gone`: what the end of its reader means for the job.
  DestinationWatch(std::string name, std::string gone) : name_(std::move(name)), gone_(std::move(gone)) {}

  // What is new about text that was lost and readers that have gone.
  std::vector<std::string> faults(const DestinationState& state, Phase phase);
  // A reader or a disk that is slow or stopped makes ranks wait in their next write, which looks like a hang.
  SlowText slow(const DestinationState& state, Phase phase, TimePoint now);
  // When slow() has something to say, if nothing changes.
  [[nodiscard]] std::optional<TimePoint> deadline(Phase phase) const;

 private:
  [[nodiscard]] std::string stuck_text(bool is_file, Phase phase) const;

  std::string name_;
  std::string gone_;
  bool said_loss_ = false;
  bool said_gone_ = false;
  bool said_stuck_ = false;
  std::size_t taken_ = 0;           // at the last look
  std::optional<TimePoint> since_;  // it has taken nothing although there is much
};

}  // namespace distrun::launcher
