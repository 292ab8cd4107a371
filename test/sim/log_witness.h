// Reads along on the wire: the log is whole and each member has read all of it; what a member says by number, its cache
// knows at its place in the log; what the leader says by number, every cache knows there.
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
  // What the rank says before it reads on, it says from here.
  void begin_step(int rank) {
    if (exact()) reader(rank).before = reader(rank).read;
  }
  void ended_well(int rank);
  // An id that the rank's cache has known and does not know any more; kNoId: none.
  [[nodiscard]] engine::TensorId stale_id(int rank, int set, const std::string& name);
  void all_ended_well();

 private:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  struct Known {
    int set = 0;
    std::string name;
    std::uint64_t defined = 0;      // by this entry
    std::uint64_t erased = kNever;  // by this one
  };
  struct Reader {
    std::uint64_t read = 0;    // entries
    std::uint64_t before = 0;  // entries read when its step began
  };
  // Of many ranks not every frame is decoded once more, and what a member has read at most is what counts.
  [[nodiscard]] bool exact() const { return readers_.size() <= 64; }
  Reader& reader(int rank) { return readers_[static_cast<std::size_t>(rank)]; }
  void append(const engine::Entry& entry);
  void follow(const engine::entry::Run& run);
  void erase(engine::TensorId id);
  void check_said(int rank, engine::TensorId id);

  const std::uint64_t capacity_;
  Findings& findings_;
  std::vector<Reader> readers_;
  std::unordered_map<std::uint64_t, std::uint64_t> ends_;  // of the frames with entries, by their beginning
  std::uint64_t log_size_ = 0;
  bool shut_down_ = false;
  std::set<int> sets_;  // ids that were given
  std::unordered_map<engine::TensorId, Known> ids_;
  std::map<std::pair<int, std::string>, engine::TensorId> alive_;
  std::map<std::pair<int, std::string>, engine::TensorId> stale_;  // erased last
};

}  // namespace distrun::sim
