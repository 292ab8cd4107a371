// The backends of all virtual ranks. Moves no data; checks that all members of a set start the same operations in the
// same order, and completes an operation on each member some time after the last one has started it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/backend/backend.h"
#include "test/sim/findings.h"
#include "test/sim/random.h"
#include "test/sim/scheduler.h"

namespace distrun::sim {

struct FabricOptions {
  Duration most_time{};  // of an operation, and until the end of a peer is seen
  bool scatter_gather = true;
  bool sees_ends = true;
  std::span<const std::byte> memory{};  // of the tensors
};

class Fabric {
 public:
  Fabric(FabricOptions options, Scheduler& scheduler, Random random, std::function<void(int rank)> wake,
         Findings& findings)
      : options_(options), scheduler_(scheduler), random_(random), wake_(std::move(wake)), findings_(findings) {}

  // The fabric outlives it.
  std::unique_ptr<backend::Backend> backend(int set, const std::vector<int>& members, int rank);
  // Its peers see that it is gone. Of those that go in good order each set sees one, for there are many.
  void end(int rank, bool in_good_order);
  void fail_next(int rank) { fails_ = rank; }  // the rank's next operation fails with kSystem
  [[nodiscard]] bool will_fail() const { return fails_ >= 0; }

 private:
  friend class SimBackend;
  struct Endpoint {  // one member of one set
    int rank = -1;
    std::size_t next = 0;                // operation
    std::vector<std::uint64_t> moving;   // tokens
    std::vector<std::uint64_t> arrived;  // tokens
    Status aborted;
    Status failed;  // a backend that has failed keeps failing
    int lost = -1;
  };
  struct Started {
    std::uint64_t digest = 0;
    std::uint64_t tensors = 0;                                                 // by their memory; 0: not known yet
    std::string text;                                                          // of the first member's
    std::vector<std::pair<std::shared_ptr<Endpoint>, std::uint64_t>> members;  // and their tokens
  };
  struct Group {
    std::vector<std::shared_ptr<Endpoint>> members;
    std::size_t size = 0;
    bool seen_to_go = false;
    std::vector<Started> operations;
  };
  [[nodiscard]] std::uint64_t tensors_of(const backend::Operation& operation) const;
  Status start(int set, const std::shared_ptr<Endpoint>& endpoint, const backend::Operation& operation,
               std::uint64_t token);

  const FabricOptions options_;
  Scheduler& scheduler_;
  Random random_;
  const std::function<void(int)> wake_;
  Findings& findings_;
  int fails_ = -1;
  std::map<int, Group> groups_;  // by set
};

}  // namespace distrun::sim
