#include "launcher/report/destination_watch.h"

#include <utility>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

// The user gets a message if a reader or a disk takes nothing for this time.
constexpr Duration kTimeLimit = std::chrono::seconds(5);
// If the user wants an end, distrun gives it up after this time.
constexpr Duration kLastTimeLimit = std::chrono::seconds(1);

Duration time_limit(DestinationWatch::Phase phase) { return phase.ending_soon ? kLastTimeLimit : kTimeLimit; }

}  // namespace

std::vector<std::string> DestinationWatch::faults(const DestinationState& state, Phase phase) {
  std::vector<std::string> out;
  if (!state.loss.empty() && !std::exchange(loss_reported_, true)) out.push_back(state.loss);
  if (!phase.finished && state.reader_gone && !std::exchange(gone_reported_, true)) {
    out.push_back("the reader of " + name_ + " has gone; " + gone_ + " (--output-dir keeps output in files)");
  }
  return out;
}

DestinationWatch::SlowText DestinationWatch::slow(const DestinationState& state, Phase phase, TimePoint now) {
  if (state.closed) {
    since_.reset();
    return {};
  }
  // After the ranks have ended, the user only sees that distrun does not end. So any backlog of a file is reported. For
  // a pipe only a large one is, because the user knows the program that reads it.
  const bool any = phase.ending_soon || (phase.finished && state.is_file);
  const bool much = any ? state.backlog != 0 : state.backlog > kHighWater;
  const bool took = std::exchange(taken_, state.taken) != state.taken;
  if (!much || took) {
    // Starts the time now, even if the reader has just taken some text. Agents have no credit, so no other event may
    // wake the loop.
    since_ = much ? std::optional(now) : std::nullopt;
    if (!std::exchange(stuck_reported_, false)) return {};
    return {.text = name_ + (state.is_file ? " takes text again" : " is read again") +
                    (phase.finished ? "" : "; ranks go on")};
  }
  if (!since_) since_ = now;
  if (now < *since_ + time_limit(phase)) return {};
  if (phase.ending_soon) {
    *this = DestinationWatch(name_, gone_);
    loss_reported_ = gone_reported_ = true;
    return {.text = (state.is_file ? name_ + " takes nothing" : "nobody reads " + name_) +
                    "; what was still to be written there is lost",
            .give_up = true};
  }
  if (std::exchange(stuck_reported_, true)) return {};
  return {.text = stuck_text(state.is_file, phase)};
}

std::string DestinationWatch::stuck_text(bool is_file, Phase phase) const {
  const std::string seconds = " for " + seconds_text(std::chrono::duration<double>(kTimeLimit).count()) + " s";
  if (!is_file) return "nobody has read " + name_ + seconds + "; ranks that write there wait until somebody does";
  return name_ + " has taken nothing" + seconds + "; is its disk reachable? " +
         (phase.finished ? "Ranks have ended; distrun waits for it, or for Ctrl-C"
                         : "Ranks that write wait until it does");
}

std::optional<TimePoint> DestinationWatch::deadline(Phase phase) const {
  if (!since_ || (stuck_reported_ && !phase.ending_soon)) return std::nullopt;
  return *since_ + time_limit(phase);
}

}  // namespace distrun::launcher
