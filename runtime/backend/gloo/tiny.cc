#include "runtime/backend/gloo/tiny.h"

#include <gloo/common/error.h>
#include <gloo/transport/unbound_buffer.h>
#include <sched.h>

#include <atomic>
#include <cstring>

#include "runtime/backend/gloo/operations.h"
#include "runtime/base/types.h"

namespace distrun::backend::gloo_plugin {
namespace {

constexpr std::uint64_t kFirstSlot = 0x74696e79ULL << 32;  // outside of those of Gloo's collectives and of verify.cc

std::size_t bytes_of(const distrun_backend_operation& operation) {
  return operation.segments->count * size_of(plugin::dtype_of(operation));
}

}  // namespace

Tiny::Tiny(const std::shared_ptr<Mesh>& mesh) : mesh_(mesh) {
  std::uint64_t slot = kFirstSlot;
  for (Half& half : halves_) {
    half.slot = slot++;
    half.sent.resize(kMessage);
    half.received.resize(kMessage * static_cast<std::size_t>(mesh->size));
    half.sends = mesh->createUnboundBuffer(half.sent.data(), half.sent.size());
    half.receives = mesh->createUnboundBuffer(half.received.data(), half.received.size());
    for (int member = 0; member < mesh->size; ++member) offer(half, member);
  }
}

std::byte* Tiny::message_of(Half& half, int member) const {
  return member == mesh_->rank ? half.sent.data() : half.received.data() + static_cast<std::size_t>(member) * kMessage;
}

void Tiny::offer(Half& half, int member) const {
  if (member == mesh_->rank) return;
  half.receives->recv(member, half.slot, static_cast<std::size_t>(member) * kMessage, kMessage);
}

void Tiny::offer_again(Half& half) const {
  for (int member = 0; member < mesh_->size; ++member) {
    try {
      offer(half, member);
    } catch (const ::gloo::Exception&) {
      // This was the last one for that member, which is gone. If it was not, the next send to it says so.
    }
  }
}

bool Tiny::takes(const distrun_backend_operation& operation) const {
  if (operation.kind != DISTRUN_BACKEND_ALLREDUCE || operation.num_segments == 0) return false;
  const std::size_t bytes = bytes_of(operation);
  return bytes > 0 && bytes <= kBytes && bytes * static_cast<std::size_t>(mesh_->size - 1) <= kAtOnceBytes;
}

void Tiny::send(Half& half, const distrun_backend_operation& operation) {
  // Never long: everybody has answered these messages since.
  for (; half.leaving > 0; --half.leaving) half.sends->waitSend(kForever);
  const std::size_t bytes = bytes_of(operation);
  if (!copied_) {
    std::memcpy(half.sent.data(), &number_, kStamp);
    std::memcpy(half.sent.data() + kStamp, operation.segments->input, bytes);
    copied_ = true;
  }
  for (; done_with_ < mesh_->size; ++done_with_) {
    if (done_with_ != mesh_->rank) half.sends->send(done_with_, half.slot, 0, kStamp + bytes);
  }
}

// Only a look: what Gloo's thread has done for this one is seen after waitRecv().
bool Tiny::all_have_come(Half& half) const {
  for (int member = 0; member < mesh_->size; ++member) {
    auto& stamp = *reinterpret_cast<std::uint64_t*>(message_of(half, member));
    if (std::atomic_ref(stamp).load(std::memory_order_relaxed) != number_) return false;
  }
  return true;
}

bool Tiny::try_allreduce(const distrun_backend_operation& operation, TimePoint deadline) {
  Half& half = halves_[number_ % 2];
  send(half, operation);
  while (!all_have_come(half)) {
    if (Clock::now() >= deadline) return false;
    ::sched_yield();  // Gloo's thread, which receives, may need this core
  }
  allreduce(operation);
  return true;
}

void Tiny::allreduce(const distrun_backend_operation& operation) {
  Half& half = halves_[number_ % 2];
  send(half, operation);
  for (; arrived_ < mesh_->size - 1; ++arrived_) half.receives->waitRecv(kForever);
  std::vector<const std::byte*> parts;
  for (int member = 0; member < mesh_->size; ++member) parts.push_back(message_of(half, member) + kStamp);
  reduce_parts(operation, parts, operation.segments->count);
  offer_again(half);
  half.leaving = mesh_->size - 1;
  ++number_;
  copied_ = false;
  done_with_ = arrived_ = 0;
}

}  // namespace distrun::backend::gloo_plugin
