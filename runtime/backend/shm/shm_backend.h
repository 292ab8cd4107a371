// Moves tensors between the ranks of one host through a small cyclic window of shared memory: pack, scale, reduce,
// average and unpack touch user memory once each way.
//
// A chunk passes three stages: pack (own input, prescaled, into the own slot; in a chain it is added to what the
// members before this one have put together), reduce (two-phase only: the own part of all slots into the own output and
// slot) and unpack (slots, reduced and finished, into the output). Stages run ahead of each other as far as the window
// allows, across operations; results leave in order.
//
// Revocable chunk by chunk: no byte of a chunk is written to an output before all members that contribute to it have
// done so. After an abort in mid-operation the leading chunks of an output may be written and the rest not.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "runtime/backend/abort_state.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/shm/job.h"
#include "runtime/backend/shm/store_choice.h"
#include "runtime/backend/shm/window.h"

namespace distrun::backend::shm {

Capabilities shm_capabilities();

struct ShmOptions {
  net::HostLink* link = nullptr;  // outlives the backend
  std::vector<int> members;       // world ranks
  std::size_t self = 0;           // index of this rank in `members`
  net::SharedBytes memory;        // Window::bytes_for() bytes, zeroed, shared by the members
  std::size_t slot_bytes = 0;
  std::size_t large_output = 0;  // bytes from which on an output is written past the caches
  bool crowded = false;          // fewer cores than ranks; alike on all members
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
  [[nodiscard]] int lost_peer() const override;

 private:
  bool step();
  bool retire();
  bool fail_all();

  // Each moves one chunk of the job it is at; false if it must wait for another member, or there is none.
  bool pack_next();
  bool reduce_next();
  bool unpack_next();

  bool pack_tiny(Job& job);
  bool unpack_tiny(Job& job);
  void publish_tiny(std::uint64_t number);
  bool tiny_arrived(std::uint64_t number);
  void pack_chunk(Job& job, std::byte* slot, bool stream);
  void pack_elements(Job& job, std::size_t count, std::byte* to, bool stream);
  void pack_block(const Job& job, std::byte* to, bool stream);
  void unpack_one_shot(Job& job);
  void unpack_two_phase(Job& job);
  void unpack_broadcast(Job& job);
  void unpack_blocks(const Job& job);
  void collect_blocks(const Job& job, std::size_t from, std::size_t limit);
  void pack_pieces(const Job& job, std::byte* slot, bool stream);
  void reduce_own_part(const Job& job);
  void unpack_exchange(const Job& job);
  void reduce_part(Job& job, bool stream);
  [[nodiscard]] bool chain_ready(std::uint64_t chunk);
  void add_to_chain(Job& job, std::uint64_t chunk);
  void unpack_chain(Job& job);
  [[nodiscard]] bool streams(const Job& job, std::uint64_t k) const;
  // Runs a stage of the job's chunk `k`, on the clock while the kinds of stores are being compared.
  template <class Work>
  void timed(const Job& job, std::uint64_t k, std::size_t bytes, Work&& work);
  void point_sources(std::uint64_t chunk, std::size_t offset);

  const Capabilities capabilities_ = shm_capabilities();
  net::HostLink* const link_;
  const std::vector<int> members_;
  const std::size_t self_;
  const std::size_t large_output_;
  const bool crowded_;
  const net::SharedBytes memory_;
  const Window window_;
  const Bells bells_;
  Tally ready_;
  Tally reduced_;
  Tally done_;

  std::deque<Job> jobs_;
  std::size_t pack_job_ = 0;  // index in jobs_ of the job that each stage is at; unpack is always at the front
  std::size_t reduce_job_ = 0;
  std::uint64_t next_chunk_ = 0;  // number of the first chunk of the next job
  std::uint64_t next_tiny_ = 1;
  std::uint64_t tiny_finished_ = 0;  // number of the last tiny operation that this member has read
  std::uint64_t chunks_packed_ = 0;
  std::uint64_t chunks_unpacked_ = 0;
  std::array<StoreChoice, 2> choices_;  // for small and for large chunks
  std::array<std::uint64_t, 2> next_tried_ = {};
  std::vector<const std::byte*> sources_;          // scratch: one per member
  alignas(64) std::array<std::byte, 8192> block_;  // scratch: what is computed before it is streamed
  std::vector<Completed> finished_;
  AbortState aborted_;
};

}  // namespace distrun::backend::shm
