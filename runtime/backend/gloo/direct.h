// All-reduces directly between members, which add in member order. Small tensors take one step: each member sends its
// tensor to each other one. Larger tensors in small groups take two steps: each member adds its own block of the tensor
// and sends the sum to each other one (a reduce-scatter and an all-gather by direct exchange). All except tiny tensors
// end with receipts, because Gloo may still hold unsent data of a member, and it drops that data when the group is
// closed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/backend/gloo/mailbox.h"
#include "runtime/backend/gloo/mesh.h"
#include "runtime/backend/plugin/plugin_side.h"
#include "runtime/base/clock.h"

namespace distrun::backend::gloo_plugin {

class Direct {
 public:
  // Offers memory to every member. All methods throw Gloo's exceptions. After an exception, no method may be called.
  explicit Direct(const std::shared_ptr<Mesh>& mesh);

  // The answer is the same on every member.
  [[nodiscard]] bool takes(const distrun_backend_operation& operation) const;
  // Both begin the operation or continue it. try_allreduce() tries for a few milliseconds. If it returns false, the
  // operation has not ended, and the caller must pass it to allreduce(), which waits.
  bool try_allreduce(const distrun_backend_operation& operation);
  void allreduce(const distrun_backend_operation& operation);

 private:
  // The things that the current all-reduce waits for: nothing, the tensors of all members, their parts of this member's
  // block, their sums, or their receipts.
  enum class Step { kNone, kTensors, kParts, kSums, kReceipts };

  // The buffers of every second all-reduce. A member that has completed one all-reduce may begin the next while this
  // member still waits for others.
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
  std::uint64_t number_ = 1;  // of the current all-reduce, or of the next one
  Step step_ = Step::kNone;
};

}  // namespace distrun::backend::gloo_plugin
