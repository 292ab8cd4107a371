// An all-reduce over hosts: reduce-scatter inside each host, one all-reduce per lane between the hosts, all-gather
// inside each host. A tensor goes through in pieces, so that the stages of different pieces overlap. Each stage is a
// group of its own. Every member gives all pieces to a stage in the same order, so the members need no further
// agreement.
// Only the holder of the progress token calls this.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/backend/hierarchical/layout.h"

namespace distrun::backend::hierarchical {

// The stages are not owned and outlive the pipeline.
struct Stages {
  Backend* scatter = nullptr;  // the members of this host
  Backend* between = nullptr;  // this member's lane; null for a member without a lane
  Backend* gather = nullptr;   // the members of this host again
  std::size_t piece_bytes = kPieceBytes;
  bool on_device = false;  // scatter and gather use one device, in the order of device_order.h
};

class Pipeline {
 public:
  Pipeline(Layout layout, std::size_t members, const Stages& stages)
      : layout_(std::move(layout)), members_(members), stages_(stages) {}

  // Cuts the segments one by one. Scales only if the stages are on a device. The caller keeps the operation's memory
  // until the token is complete. An error means that the operation was not started.
  Status start(const Operation& operation, std::uint64_t token);
  // Moves pieces from stage to stage. Returns true if any piece moved.
  bool progress();
  // The owner reports the result of stage `number` (0 scatter, 1 between, 2 gather) for the piece with this token.
  void ended(std::size_t number, const Completed& what);
  void completed(std::vector<Completed>& out);
  // The first failure of a piece. Its code always ends the job, never only the tensor. The owner then aborts all
  // stages. An operation completes when none of its pieces is in a stage any more.
  [[nodiscard]] const Status& failure() const { return failure_; }
  void fail(const Status& why);
  [[nodiscard]] bool idle() const { return allreduces_.empty(); }

 private:
  struct Allreduce {
    Operation operation;
    std::uint64_t token = 0;
    std::size_t pieces = 0;
    std::size_t done = 0;  // pieces that have passed all stages
    std::size_t in_stages = 0;
    std::size_t taken = 0;    // pieces cut so far
    std::size_t segment = 0;  // the segment of the next piece
    std::size_t begin = 0;    // the first element of the next piece
    std::uint64_t first = 0;  // number of the operation's first piece
  };
  struct Piece {
    Allreduce* whole = nullptr;
    std::uint64_t number = 0;
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::size_t count = 0;
    std::vector<std::size_t> parts;  // elements of each local member's part
    Memory part;                     // memory of this member's part
    std::size_t stage = 0;
    bool ready = true;  // true: ready for `stage`; false: in `stage`
    Segment segment;
  };

  bool take_piece();
  Result<Memory> make_part(Device device);
  Result<Memory> take_part(Device device);
  Status reserve(Device device);
  [[nodiscard]] bool may_enter(const Piece& piece) const;
  bool advance(Piece& piece);
  Status enter(Piece& piece);
  void leave_scatter(Piece& piece) const;
  void retire();

  const Layout layout_;
  const std::size_t members_;
  const Stages stages_;
  std::deque<std::unique_ptr<Allreduce>> allreduces_;  // in order of start
  std::deque<std::unique_ptr<Piece>> pieces_;          // in order
  std::vector<Memory> spare_;                          // unused parts, each large enough for any piece
  std::size_t reserved_ = 0;                           // parts allocated so far for a device
  std::uint64_t next_piece_ = 0;
  std::array<std::uint64_t, 3> next_in_ = {};  // by stage: the piece that enters next
  std::vector<Completed> finished_;
  Status failure_;
};

}  // namespace distrun::backend::hierarchical
