// One rank's view of the connected ranks of its host: doorbells, and the watch for deaths. The real HostLink and the
// fake of the tests both use it; they get their memory and descriptors from different sources. Only the holder of the
// progress token uses it.
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

// All vectors are indexed by local index (the position in `ranks`). Forked children close the descriptors, so that they
// do not hide the death of this process.
struct HostParts {
  std::vector<int> ranks;            // world ranks, ascending
  int self = 0;                      // local index of this rank
  std::vector<DoorbellLine*> lines;  // in memory that outlives this struct
  std::vector<GuardedFd> event_fds;  // doorbells, including this rank's
  // Each rank keeps the inner end of one socket pair and gives the outer end to all others. They send packets to it,
  // and they read end of file when the process of that rank has ended in any way.
  GuardedFd inbox;                    // this rank's inner end
  std::vector<GuardedFd> mail_boxes;  // the other ranks' outer ends; not valid at this rank's index
  bool oversubscribed = false;
};

class HostPeers final : public Sleepable {
 public:
  // Tests that never sleep may pass a null `wait_set`; deaths are then not detected.
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
  // Polls the sockets now, for callers that block outside the wait set.
  void look_for_deaths();
  // Ends like a killed process, without a goodbye. For tests.
  void vanish();

 private:
  HostPeers(HostParts parts, WaitSet* wait_set);
  Status watch();
  void on_end_of_file(int index);
  [[nodiscard]] int checked_index(int world_rank) const { return index_by_rank_[static_cast<std::size_t>(world_rank)]; }

  HostParts parts_;
  WaitSet* wait_set_;
  Doorbells doorbells_;
  std::vector<int> index_by_rank_;  // world rank -> local index; -1 for other hosts
  std::vector<bool> gone_;
  std::vector<bool> watched_;
  bool bell_watched_ = false;
  std::optional<int> lost_;
};

}  // namespace distrun::net
