#include "runtime/backend/gloo/mailbox.h"

#include <gloo/common/error.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <cstring>
#include <new>

namespace distrun::backend::gloo_plugin {
namespace {

constexpr std::size_t kMark = sizeof(std::uint64_t);
constexpr std::size_t kLine = 64;

std::size_t mark_behind(std::size_t bytes) { return (bytes + kMark - 1) / kMark * kMark; }

}  // namespace

Mailbox::Mailbox(const std::shared_ptr<Mesh>& mesh, std::uint64_t slot, std::size_t most, bool alike)
    : mesh_(mesh), slot_(slot), stride_((mark_behind(most) + kMark + kLine - 1) / kLine * kLine), alike_(alike) {
  const std::size_t all = static_cast<std::size_t>(mesh->size) * stride_;
  const std::size_t out = alike ? stride_ : all;
  sent_ = allocate(out);
  received_ = allocate(all);
  sends_ = mesh->createUnboundBuffer(sent_.get(), out);
  receives_ = mesh->createUnboundBuffer(received_.get(), all);
  mesh->for_each_other([this](int member) { offer(member); });
}

// Zeroed, because memory of an earlier group may contain marks. Uses calloc: its large blocks cost nothing until they
// are touched.
Mailbox::Memory Mailbox::allocate(std::size_t bytes) {
  Memory memory(static_cast<std::byte*>(std::calloc(bytes, 1)));
  if (!memory) throw std::bad_alloc();
  return memory;
}

void Mailbox::clear() {
  for (; leaving_ > 0; --leaving_) sends_->waitSend(kForever);
}

void Mailbox::send(const std::function<std::size_t(int)>& bytes_for, std::uint64_t mark) {
  // Write all marks before the first send. After it, Gloo's thread may read the messages.
  mesh_->for_each_other([&](int member) { std::memcpy(to(member) + mark_behind(bytes_for(member)), &mark, kMark); });
  leaving_ = mesh_->size - 1;
  mesh_->for_each_other([&](int member) {
    sends_->send(member, slot_, alike_ ? 0 : place(member), mark_behind(bytes_for(member)) + kMark);
  });
}

bool Mailbox::has_come(int member, std::size_t bytes, std::uint64_t mark) const {
  auto& behind = *reinterpret_cast<std::uint64_t*>(received_.get() + place(member) + mark_behind(bytes));
  return std::atomic_ref(behind).load(std::memory_order_relaxed) == mark;
}

void Mailbox::receive() {
  mesh_->for_each_other([this](int) { receives_->waitRecv(kForever); });
}

void Mailbox::offer(int member) { receives_->recv(member, slot_, place(member), stride_); }

void Mailbox::offer_again() {
  mesh_->for_each_other([this](int member) {
    try {
      offer(member);
    } catch (const ::gloo::Exception&) {
      // The member has left after its last message. If it had more messages to send, the next send to it fails.
    }
  });
}

}  // namespace distrun::backend::gloo_plugin
