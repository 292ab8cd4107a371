// The backends of all virtual ranks. They move no data. They check that all members of a set start the same operations
// in the same order. An operation completes on each member some time after the last member has started it.
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
  Duration most_time{};  // of an operation, and until a rank notices the end of a peer
  bool scatter_gather = true;
  bool sees_ends = true;
  std::span<const std::byte> memory{};  // the memory of all tensors
};

class Fabric {
 public:
  Fabric(FabricOptions options, Scheduler& scheduler, Random random, std::function<void(int rank)> wake,
         Findings& findings)
      : options_(options), scheduler_(scheduler), random_(random), wake_(std::move(wake)), findings_(findings) {}

  // The fabric must outlive the backend.
  std::unique_ptr<backend::Backend> backend(int set, const std::vector<int>& members, int rank);
  // The rank's peers notice that it has gone. Many ranks end in good order, so each set notices only the first such
  // end.
  void end(int rank, bool in_good_order);
  void fail_next(int rank) { fails_ = rank; }  // the next operation of `rank` fails with kSystem
  [[nodiscard]] bool will_fail() const { return fails_ >= 0; }

 private:
  friend class SimBackend;
  struct Endpoint {  // one member of one set
    int rank = -1;
    std::size_t next = 0;                // the number of its next operation
    std::vector<std::uint64_t> moving;   // tokens in flight
    std::vector<std::uint64_t> arrived;  // tokens that have completed
    Status aborted;
    Status failed;  // a backend that has failed keeps failing
    int lost = -1;
  };
  struct Started {
    std::uint64_t digest = 0;
    std::uint64_t tensors = 0;                                                 // digest of their memory; 0: unknown so
                                                                               // far
    std::string text;                                                          // the first member's operation as text
    std::vector<std::pair<std::shared_ptr<Endpoint>, std::uint64_t>> members;  // each with its token
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
