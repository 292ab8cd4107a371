// All-reduces of a few bytes, in one message to each member. Members offer each other memory for the message of the
// next one beforehand: Gloo's own calls ask for it first. And whoever waits may give up, and wait in another thread
// later.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/backend/gloo/mesh.h"
#include "runtime/backend/plugin/guest.h"
#include "runtime/base/clock.h"

namespace distrun::backend::gloo_plugin {

class Tiny {
 public:
  static constexpr std::size_t kBytes = 256;  // of a tensor

  // Offers memory to every member. Throws what Gloo throws, as all here do.
  explicit Tiny(const std::shared_ptr<Mesh>& mesh);

  // The same answer on every member.
  [[nodiscard]] bool takes(const distrun_backend_operation& operation) const;
  // Both send this member's part, once. The first one looks until `deadline` whether everybody's has come: if not it is
  // false, and the operation is to be given to the second one, which waits. A failure is met again by a further call.
  bool try_allreduce(const distrun_backend_operation& operation, TimePoint deadline);
  void allreduce(const distrun_backend_operation& operation);

 private:
  // In front of the tensor: the number of the all-reduce.
  static constexpr std::size_t kStamp = sizeof(std::uint64_t);
  static constexpr std::size_t kMessage = kStamp + kBytes;

  // What every second all-reduce uses: a member that has all messages of one may send its message of the next while
  // this member still waits for others.
  struct Half {
    std::uint64_t slot = 0;
    std::vector<std::byte> sent;
    std::vector<std::byte> received;  // kMessage for each member
    std::unique_ptr<::gloo::transport::UnboundBuffer> sends;
    std::unique_ptr<::gloo::transport::UnboundBuffer> receives;
    int leaving = 0;  // messages of the last use that Gloo may still be reading
  };

  void offer(Half& half, int member) const;
  void offer_again(Half& half) const;
  void send(Half& half, const distrun_backend_operation& operation);
  [[nodiscard]] bool all_have_come(Half& half) const;
  std::byte* message_of(Half& half, int member) const;

  const std::shared_ptr<Mesh> mesh_;
  std::array<Half, 2> halves_;
  // Of the all-reduce that is under way, or is next.
  std::uint64_t number_ = 1;
  bool copied_ = false;
  int done_with_ = 0;  // members to which this one's part is on its way
  int arrived_ = 0;    // messages
};

}  // namespace distrun::backend::gloo_plugin
