// The leader's decisions that have not been handed out yet. The leader's parts add to them; nothing is added after the
// end.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/engine/protocol/decision_log.h"
#include "runtime/net/store/program_state.h"

namespace distrun::engine {

struct Actions {
  std::vector<Entry> entries;         // to append, in this order
  std::vector<std::string> warnings;  // stall reports
  std::vector<net::RankWait> waits;   // waits reported for the first time, or the waits that explain the abort
  bool waits_over = false;            // no reported wait is left
  Status abort;                       // not ok: the job ends with it, and no entry is appended after it

  [[nodiscard]] bool empty() const { return entries.empty() && warnings.empty() && abort.ok(); }
};

class Decisions {
 public:
  // Appends one of Entry's kinds. It is constructed in place, because GCC 14 warns that a moved variant may have no
  // value.
  template <typename Kind>
  void append(Kind entry) {
    if (finished()) return;
    actions_.entries.emplace_back(std::move(entry));
    ++log_size_;
  }
  void warn(std::string text) { actions_.warnings.push_back(std::move(text)); }
  void report(std::vector<net::RankWait> waits) {
    actions_.waits.insert(actions_.waits.end(), std::make_move_iterator(waits.begin()),
                          std::make_move_iterator(waits.end()));
  }
  void end_waits() { actions_.waits_over = true; }
  void abort(ErrorInfo error) {
    if (!finished()) actions_.abort = Status(std::move(error));
  }
  // This rank sent a message that a correct member never sends.
  void protocol_error(int rank, const std::vector<std::string>& hosts, const std::string& what);
  // All ranks have left: appends the last entry.
  void shut_down() {
    append(entry::Shutdown{});
    shut_down_ = true;
  }
  void died(const Status& why) {
    dead_ = true;
    actions_ = {.abort = why};
  }
  Actions take() {
    if (!actions_.abort.ok()) dead_ = true;
    return std::exchange(actions_, {});
  }

  [[nodiscard]] bool finished() const { return shut_down_ || dead_ || !actions_.abort.ok(); }
  [[nodiscard]] std::uint64_t log_size() const { return log_size_; }

 private:
  Actions actions_;
  std::uint64_t log_size_ = 0;
  bool shut_down_ = false;
  bool dead_ = false;
};

}  // namespace distrun::engine
