// The ranks of one host as one of them sees them once they are connected: doorbells and the watch for deaths.
// Both the real HostLink and the tests' fake are built on it; they differ in where memory and descriptors come from.
// For the holder of the progress token.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/system/fork_guard.h"
#include "runtime/net/bytes/wait_set.h"
#include "runtime/net/host/doorbell.h"

namespace distrun::net {

// All vectors are indexed by local index (the position in `ranks`). The descriptors are closed in forked children, so
// that they do not hide this process's death.
struct HostParts {
  std::vector<int> ranks;            // world ranks, ascending
  int self = 0;                      // local index of this rank
  std::vector<DoorbellLine*> lines;  // in memory that outlives the parts
  std::vector<GuardedFd> event_fds;  // doorbells, the own one included
  // Every rank keeps the inner end of one socket pair and gives the outer end to all others: they send it packets
  // there, and read end-of-file when its process is gone, however it ended.
  GuardedFd inbox;                    // inner end of this rank
  std::vector<GuardedFd> mail_boxes;  // outer ends of the others; not valid for this rank
  bool oversubscribed = false;
};

class HostPeers final : public Sleepable {
 public:
  // `wait_set` may be null in tests that never sleep; deaths are then not seen.
  static Result<std::unique_ptr<HostPeers>> create(HostParts parts, WaitSet* wait_set);
  ~HostPeers() override;  // says goodbye, then closes
  HostPeers(const HostPeers&) = delete;
  HostPeers& operator=(const HostPeers&) = delete;

  [[nodiscard]] const HostParts& parts() const { return parts_; }
  [[nodiscard]] int index_of(int world_rank) const;  // -1: not on this host
  void arm() override { doorbells_.arm(); }
  void disarm() override { doorbells_.disarm(); }
  void ring(int world_rank) { doorbells_.ring(checked_index(world_rank)); }
  [[nodiscard]] std::optional<int> lost() const { return lost_; }
  [[nodiscard]] bool gone(int world_rank) const { return gone_[static_cast<std::size_t>(checked_index(world_rank))]; }
  // Looks at the sockets now; for callers that block outside the wait set.
  void look_for_deaths();
  // Ends as a killed process does: without goodbye. For tests.
  void vanish();

 private:
  HostPeers(HostParts parts, WaitSet* wait_set);
  Status watch();
  void on_end_of_file(int index);
  [[nodiscard]] int checked_index(int world_rank) const { return index_by_rank_[static_cast<std::size_t>(world_rank)]; }

  HostParts parts_;
  WaitSet* wait_set_;
  Doorbells doorbells_;
  std::vector<int> index_by_rank_;  // world rank -> local index, -1 elsewhere
  std::vector<bool> gone_;
  std::vector<bool> watched_;
  bool bell_watched_ = false;
  std::optional<int> lost_;
};

}  // namespace distrun::net
