// All-reduces straight between members, who add in member order. Those of few bytes at once: each member sends its
// tensor to each other one. Larger ones among few members in two steps: each adds the block of the tensor that is its
// own, and sends the sum to each other one (a reduce-scatter and an all-gather by direct exchange). All but tiny ones
// end with receipts: what a member has sent may still be in Gloo's hands, which forgets it when the group is closed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/backend/gloo/mailbox.h"
#include "runtime/backend/gloo/mesh.h"
#include "runtime/backend/plugin/guest.h"
#include "runtime/base/clock.h"

namespace distrun::backend::gloo_plugin {

class Direct {
 public:
  // Offers memory to every member. Throws what Gloo throws, as all here do; nothing may be called after that.
  explicit Direct(const std::shared_ptr<Mesh>& mesh);

  // The same answer on every member.
  [[nodiscard]] bool takes(const distrun_backend_operation& operation) const;
  // Both begin the operation, or go on with it. The first one looks for a few milliseconds whether it can be ended: if
  // not it is false, and the operation is to be given to the second one, which waits.
  bool try_allreduce(const distrun_backend_operation& operation);
  void allreduce(const distrun_backend_operation& operation);

 private:
  // What the all-reduce under way waits for: nothing, everybody's tensor, everybody's part of this member's block,
  // everybody's sum, everybody's word that all has come.
  enum class Step { kNone, kTensors, kParts, kSums, kReceipts };

  // What every second all-reduce uses: a member that has all of one may begin with the next while this member still
  // waits for others.
  struct Half {
    std::optional<Mailbox> tensors;
    std::optional<Mailbox> parts;
    std::optional<Mailbox> sums;
    std::optional<Mailbox> receipts;
  };

  struct Block {
    std::size_t at = 0;  // bytes
    std::size_t bytes = 0;
    std::size_t count = 0;
  };

  [[nodiscard]] bool at_once(const distrun_backend_operation& operation) const;
  [[nodiscard]] Block block_of(const distrun_backend_operation& operation, int member) const;
  [[nodiscard]] std::uint64_t mark() const;
  [[nodiscard]] std::size_t size_from(const distrun_backend_operation& operation, int member) const;
  Mailbox& awaited();
  bool run(const distrun_backend_operation& operation, const TimePoint* deadline);
  void begin(const distrun_backend_operation& operation);
  [[nodiscard]] bool have_come(const distrun_backend_operation& operation);
  void go_on(const distrun_backend_operation& operation);
  void add(const distrun_backend_operation& operation, const Mailbox& from, const Block& own, std::byte* out) const;
  void send_sum(const distrun_backend_operation& operation);
  void take_sums(const distrun_backend_operation& operation);
  void send_receipts();
  void end();
  Half& half() { return halves_[number_ % 2]; }

  const std::shared_ptr<Mesh> mesh_;
  std::array<Half, 2> halves_;
  std::uint64_t number_ = 1;  // of the all-reduce that is under way, or is next
  Step step_ = Step::kNone;
};

}  // namespace distrun::backend::gloo_plugin
