// How this rank's part in the job ends: with a failure, with the end of the log, or by leaving before the others. Only
// the token holder may use this, except over() and outcome().
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
  // Returns false if the job had already ended.
  bool fail(const Status& why);
  [[nodiscard]] bool failed() const { return !failure_.ok(); }
  [[nodiscard]] const Status& failure() const { return failure_; }
  void end_log() { log_ended_ = true; }
  // This rank takes part in no further agreement.
  [[nodiscard]] bool ended() const { return failed() || log_ended_; }
  // Call this when nothing is in flight any more.
  void finish();
  // Any thread.
  [[nodiscard]] bool over() const { return over_.load(std::memory_order_acquire); }
  [[nodiscard]] const Status& outcome() const { return outcome_; }  // once over(); ok after a shutdown of all ranks

  // --- this rank leaves ---
  void leave(TimePoint now) { left_at_ = now; }
  [[nodiscard]] std::optional<TimePoint> left_at() const { return left_at_; }
  // This rank has left, and has not yet reported that nothing of it is in flight.
  [[nodiscard]] bool draining() const { return left_at_ && !drained_ && !failed(); }
  void drained() { drained_ = true; }

  // --- this rank leaves without waiting for the others, after shutdown_timeout ---
  void ask_to_go(std::shared_ptr<CallTicket> ticket) { going_.push_back(std::move(ticket)); }
  [[nodiscard]] bool wants_to_go() const { return !going_.empty(); }
  struct Unfinished {
    bool confirmed = false;      // the log says that this rank has left
    std::string tensor{};        // a tensor in flight here; empty: none
    std::string call{};          // a call in flight here; empty: none
    std::vector<int> working{};  // ranks that have not left
  };
  struct Answer {
    bool given = false;     // the tickets are finished
    std::string warning{};  // a text for people; empty: none
  };
  Answer try_to_go(const Unfinished& unfinished, TimePoint now);

 private:
  Answer answer(const Status& status, std::string warning = {});

  const int rank_;
  const std::vector<std::string>& hosts_;  // by rank
  Status failure_;                         // the error that ends the job
  bool log_ended_ = false;                 // the Shutdown entry was read, or this rank leaves before the others
  std::optional<TimePoint> left_at_;
  bool drained_ = false;
  std::vector<std::shared_ptr<CallTicket>> going_;
  bool warned_ = false;  // the leader has warned that it waits for the others
  std::atomic<bool> over_{false};
  Status outcome_;  // written before over_
};

// A failure that is this rank's own. `why` is the error for all ranks; `cause` is the text for the launcher.
struct OwnFailure {
  Status why;
  std::string cause;
};
OwnFailure own_failure(ErrorInfo info, int rank, const std::vector<std::string>& hosts);

}  // namespace distrun::engine
