// Messages from each member of a group to each other one, into memory that members offer each other beforehand: Gloo's
// own calls ask for it first. Behind a message is its mark, by which whoever waits sees whether it has come: Gloo says
// so only to who waits. All of it is memory of the mailbox's own, so whoever waits may give up, and wait in another
// thread later.
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
  // For messages of up to `most` bytes; `alike`: a member sends the same one to all. `slot` is nobody else's. Offers
  // memory to every other member. Throws what Gloo throws, as all here do.
  Mailbox(const std::shared_ptr<Mesh>& mesh, std::uint64_t slot, std::size_t most, bool alike);

  // In this order, again and again:
  // The last messages have left. Not long where every other member has answered them.
  void clear();
  // Where the message to that member is written.
  std::byte* to(int member) { return sent_.get() + (alike_ ? 0 : place(member)); }
  // One to every other member, of bytes_for(member). A mark comes once. Where a tensor holds the very same bits, a
  // later message is taken for one that has come, and waited for.
  void send(const std::function<std::size_t(int)>& bytes_for, std::uint64_t mark);
  // Only a look; what Gloo's thread has done is seen after receive().
  [[nodiscard]] bool has_come(int member, std::size_t bytes, std::uint64_t mark) const;
  void receive();  // waits for one from every other member
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
  int leaving_ = 0;  // messages that Gloo may still be reading
};

}  // namespace distrun::backend::gloo_plugin
