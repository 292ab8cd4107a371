// Reads all messages on the wire and checks the log. The log must be complete, and each member must have read all of
// it. If a member sends an id, its cache must know the id at its position in the log. If the leader sends an id, every
// cache must know the id at that position.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/engine/protocol/messages.h"
#include "test/sim/findings.h"
#include "test/sim/network.h"

namespace distrun::sim {

class LogWitness final : public Witness {
 public:
  LogWitness(int ranks, std::uint64_t cache_capacity, Findings& findings)
      : capacity_(cache_capacity), findings_(findings), readers_(static_cast<std::size_t>(ranks)) {}

  void sent(int from, const std::vector<std::byte>& bytes) override;
  void received(int to, const std::vector<std::byte>& bytes) override;
  // In one step, a rank sends before it reads on. Its messages therefore belong to the position at which the step
  // began.
  void begin_step(int rank) {
    if (exact()) reader(rank).before = reader(rank).read;
  }
  void ended_well(int rank);
  // An id that this rank's cache once knew and has since evicted; kNoId if there is none.
  [[nodiscard]] engine::TensorId stale_id(int rank, int set, const std::string& name);
  void all_ended_well();

 private:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  struct Known {
    int set = 0;
    std::string name;
    std::uint64_t defined = 0;      // the log entry that defines the id
    std::uint64_t erased = kNever;  // the log entry that erases the id
  };
  struct Reader {
    std::uint64_t read = 0;    // log entries read so far
    std::uint64_t before = 0;  // log entries read when its current step began
  };
  // With many ranks, received frames are not decoded again. `read` is then an upper bound.
  [[nodiscard]] bool exact() const { return readers_.size() <= 64; }
  Reader& reader(int rank) { return readers_[static_cast<std::size_t>(rank)]; }
  void append(const engine::Entry& entry);
  void follow(const engine::entry::Run& run);
  void erase(engine::TensorId id);
  void check_said(int rank, engine::TensorId id);

  const std::uint64_t capacity_;
  Findings& findings_;
  std::vector<Reader> readers_;
  std::unordered_map<std::uint64_t, std::uint64_t> ends_;  // for frames with entries: index of the first entry -> index
                                                           // after the last
  std::uint64_t log_size_ = 0;
  bool shut_down_ = false;
  std::set<int> sets_;  // ids that were assigned
  std::unordered_map<engine::TensorId, Known> ids_;
  std::map<std::pair<int, std::string>, engine::TensorId> alive_;
  std::map<std::pair<int, std::string>, engine::TensorId> stale_;  // the id erased last
};

}  // namespace distrun::sim
