// How this rank's part in the job ends: with a failure, with the end of the log, or because it leaves before the
// others. Token holder, except over() and outcome().
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/callers/requests.h"

namespace distrun::engine {

class Leaving {
 public:
  Leaving(int rank, const std::vector<std::string>& hosts) : rank_(rank), hosts_(hosts) {}

  // --- the end of the job ---
  // False: it has ended before.
  bool fail(const Status& why);
  [[nodiscard]] bool failed() const { return !failure_.ok(); }
  [[nodiscard]] const Status& failure() const { return failure_; }
  void end_log() { log_ended_ = true; }
  // Nothing more is agreed on here.
  [[nodiscard]] bool ended() const { return failed() || log_ended_; }
  // Nothing is in flight any more.
  void finish();
  // Any thread.
  [[nodiscard]] bool over() const { return over_.load(std::memory_order_acquire); }
  [[nodiscard]] const Status& outcome() const { return outcome_; }  // once over(): ok after a shutdown by all

  // --- this rank leaves ---
  void leave(TimePoint now) { left_at_ = now; }
  [[nodiscard]] std::optional<TimePoint> left_at() const { return left_at_; }
  // It has left and has not said that nothing of it is in flight any more.
  [[nodiscard]] bool draining() const { return left_at_ && !drained_ && !failed(); }
  void drained() { drained_ = true; }

  // --- and does not wait for the others: shutdown_timeout has passed ---
  void ask_to_go(std::shared_ptr<CallTicket> ticket) { going_.push_back(std::move(ticket)); }
  [[nodiscard]] bool wants_to_go() const { return !going_.empty(); }
  struct Unfinished {
    bool confirmed = false;      // the log says that this rank has left
    std::string tensor{};        // in flight here; empty: none
    std::string call{};          // the same
    std::vector<int> working{};  // ranks that have not left
  };
  struct Answer {
    bool given = false;     // the tickets are finished
    std::string warning{};  // for people; empty: none
  };
  Answer try_to_go(const Unfinished& unfinished, TimePoint now);

 private:
  Answer answer(const Status& status, std::string warning = {});

  const int rank_;
  const std::vector<std::string>& hosts_;  // by rank
  Status failure_;                         // the job ends with it
  bool log_ended_ = false;                 // the Shutdown entry was read, or this rank goes before the others
  std::optional<TimePoint> left_at_;
  bool drained_ = false;
  std::vector<std::shared_ptr<CallTicket>> going_;
  bool warned_ = false;  // at the leader: that it waits for the others
  std::atomic<bool> over_{false};
  Status outcome_;  // written before over_
};

// A failure of this rank alone, as all ranks get it; `cause`: as the launcher gets it.
struct OwnFailure {
  Status why;
  std::string cause;
};
OwnFailure own_failure(ErrorInfo info, int rank, const std::vector<std::string>& hosts);

}  // namespace distrun::engine
