// What the leader has decided and has not handed out yet. Its parts add to it; nothing is added after the end.
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
  std::vector<net::RankWait> waits;   // what they tell for the first time, or what the abort tells
  bool waits_over = false;            // nothing that was reported waits any more
  Status abort;                       // not ok: the job ends with it and nothing more is ever appended

  [[nodiscard]] bool empty() const { return entries.empty() && warnings.empty() && abort.ok(); }
};

class Decisions {
 public:
  // One of Entry's kinds. Made in its place: of a variant that is moved there GCC 14 says that it may have no value.
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
  // This rank sent what a sound member never does.
  void protocol_error(int rank, const std::vector<std::string>& hosts, const std::string& what);
  // The last entry: all ranks have left.
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
