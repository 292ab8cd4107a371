// Moves tensors between the ranks of one host through a small cyclic window of shared memory. Packing, scaling,
// reducing, averaging and unpacking touch user memory once in each direction.
//
// A chunk passes three stages. Pack: copies this member's prescaled input to its slot; in a chain it is added to the
// sum of the members before. Reduce (two-phase only): reduces this member's part of all slots into its output and its
// slot. Unpack: copies or reduces the slots into the output. Stages run ahead of each other as far as the window
// allows, also across operations. Results leave in order.
//
// Revocable by chunk: no byte of a chunk is written to an output before all members that contribute to the chunk have
// done so. If an operation is aborted, the leading chunks of an output may be written and the rest not.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "runtime/backend/abort_state.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/shm/member.h"
#include "runtime/backend/shm/store_policy.h"
#include "runtime/backend/shm/transfer.h"

namespace distrun::backend::shm {

Capabilities shm_capabilities();

struct ShmOptions {
  net::HostLink* link = nullptr;  // outlives the backend
  std::vector<int> members;       // world ranks
  std::size_t self = 0;           // index of this rank in `members`
  net::SharedBytes memory;        // Window::bytes_for() bytes, zeroed, shared by the members
  std::size_t slot_bytes = 0;
  std::size_t large_output = 0;  // outputs of at least this many bytes are written past the caches
  bool crowded = false;          // fewer cores than ranks; the same on all members
};

class ShmBackend final : public Backend {
 public:
  explicit ShmBackend(const ShmOptions& options);

  [[nodiscard]] std::string_view name() const override { return "shm"; }
  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  Status start(const Operation& operation, std::uint64_t token) override;
  bool progress() override;
  void completed(std::vector<Completed>& out) override;
  void abort(const Status& why) override { aborted_.set(why); }
  [[nodiscard]] std::optional<EndedLink> lost_peer() const override;

 private:
  bool step();
  bool retire();
  bool fail_all();

  // Each call moves one chunk of the stage's current transfer. False if it must wait for another member, or if there is
  // no transfer.
  bool pack_next();
  bool reduce_next();
  bool unpack_next();

  const Capabilities capabilities_ = shm_capabilities();
  net::HostLink* const link_;
  const std::vector<int> members_;
  const std::size_t slot_bytes_;
  const std::size_t large_output_;
  const bool crowded_;
  const net::SharedBytes memory_;
  WindowMember member_;
  StorePolicy stores_;

  std::deque<WindowTransfer> transfers_;
  // Each stage's current index in transfers_. Unpack is always at the front.
  std::size_t packing_ = 0;
  std::size_t reducing_ = 0;
  std::uint64_t next_chunk_ = 0;  // number of the first chunk of the next transfer
  std::uint64_t next_tiny_ = 1;
  std::uint64_t chunks_packed_ = 0;
  std::uint64_t chunks_unpacked_ = 0;
  std::vector<Completed> finished_;
  AbortState aborted_;
};

}  // namespace distrun::backend::shm
