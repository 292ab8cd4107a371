// An all-reduce over hosts: reduce-scatter inside each host, one all-reduce per lane between them, all-gather inside.
// A tensor goes through in pieces, so that the stages of different pieces overlap. Each stage is a group of its own and
// takes all pieces in the same order on every member; so nothing has to be agreed on while it runs.
// For the holder of the progress token.
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

// Not owned; outlive the pipeline.
struct Stages {
  Backend* scatter = nullptr;  // the members of this host
  Backend* between = nullptr;  // this member's lane; null without one
  Backend* gather = nullptr;   // the members of this host again
  std::size_t piece_bytes = kPieceBytes;
  bool on_device = false;  // scatter and gather give work to one device, in the order of device_order.h
};

class Pipeline {
 public:
  Pipeline(Layout layout, std::size_t members, const Stages& stages)
      : layout_(std::move(layout)), members_(members), stages_(stages) {}

  // Segments one by one. Scales only with stages on a device. The caller keeps the operation's memory until the token
  // is complete. An error means that the operation was not started.
  Status start(const Operation& operation, std::uint64_t token);
  // Hands pieces on from stage to stage; true if any went on.
  bool progress();
  // What stage `number` (0 scatter, 1 between, 2 gather) says of the piece with this token.
  void ended(std::size_t number, const Completed& what);
  void completed(std::vector<Completed>& out);
  // The first failure of a piece, never one that concerns the tensor alone. The owner then aborts all stages: an
  // operation completes when none of its pieces is in a stage any more.
  [[nodiscard]] const Status& failure() const { return failure_; }
  void fail(const Status& why);
  [[nodiscard]] bool idle() const { return allreduces_.empty(); }

 private:
  struct Allreduce {
    Operation operation;
    std::uint64_t token = 0;
    std::size_t pieces = 0;
    std::size_t done = 0;  // pieces through all stages
    std::size_t in_stages = 0;
    std::size_t taken = 0;    // pieces cut
    std::size_t segment = 0;  // the next piece is cut from here
    std::size_t begin = 0;    // and begins at this element
    std::uint64_t first = 0;  // number of the first piece
  };
  struct Piece {
    Allreduce* whole = nullptr;
    std::uint64_t number = 0;
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::size_t count = 0;
    std::vector<std::size_t> parts;  // of the local members
    Memory part;                     // this member's, on its way
    std::size_t stage = 0;
    bool ready = true;  // for `stage`; else it is in it
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
  std::vector<Memory> spare_;                          // parts that no piece has, each large enough for any
  std::size_t reserved_ = 0;                           // parts that there are for a device
  std::uint64_t next_piece_ = 0;
  std::array<std::uint64_t, 3> next_in_ = {};  // by stage: the piece that enters next
  std::vector<Completed> finished_;
  Status failure_;
};

}  // namespace distrun::backend::hierarchical
