// Messages from each member of a group to each other one. Members offer their receive memory in advance, while Gloo's
// collectives ask for it first. A mark follows each message. A thread can poll it to see whether the message has
// arrived, because Gloo tells this only to a blocking wait. The mailbox owns all of the memory. So a thread may stop
// waiting, and another thread may wait later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>

#include "runtime/backend/gloo/mesh.h"

namespace distrun::backend::gloo_plugin {

class Mailbox {
 public:
  // For messages of at most `most` bytes. `alike`: a member sends the same message to all. No other code may use
  // `slot`. Offers memory to every other member. All methods throw Gloo's exceptions.
  Mailbox(const std::shared_ptr<Mesh>& mesh, std::uint64_t slot, std::size_t most, bool alike);

  // Call the following methods in this order, repeatedly.
  // Waits until the last messages have been sent. This is short if every other member has answered them.
  void clear();
  // The memory for the message to that member.
  std::byte* to(int member) { return sent_.get() + (alike_ ? 0 : place(member)); }
  // Sends one message to every other member, of bytes_for(member) bytes. A mark is used once. If a tensor contains the
  // same bits, has_come() may be true too early, and receive() then waits.
  void send(const std::function<std::size_t(int)>& bytes_for, std::uint64_t mark);
  // Only polls the mark. The data that Gloo's thread has written is visible after receive().
  [[nodiscard]] bool has_come(int member, std::size_t bytes, std::uint64_t mark) const;
  void receive();  // waits for one message from every other member
  [[nodiscard]] const std::byte* from(int member) const { return received_.get() + place(member); }
  void offer_again();

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<std::byte, Free>;

  static Memory allocate(std::size_t bytes);
  [[nodiscard]] std::size_t place(int member) const { return static_cast<std::size_t>(member) * stride_; }
  void offer(int member);

  const std::shared_ptr<Mesh> mesh_;
  const std::uint64_t slot_;
  const std::size_t stride_;
  const bool alike_;
  Memory sent_;
  Memory received_;
  std::unique_ptr<::gloo::transport::UnboundBuffer> sends_;
  std::unique_ptr<::gloo::transport::UnboundBuffer> receives_;
  int leaving_ = 0;  // messages that Gloo may still read
};

}  // namespace distrun::backend::gloo_plugin
