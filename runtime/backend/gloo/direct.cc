#include "runtime/backend/gloo/direct.h"

#include <sched.h>

#include <chrono>
#include <cstring>

#include "runtime/base/types.h"

namespace distrun::backend::gloo_plugin {
namespace {

// The one-step method is used if a member sends at most this many bytes in all. Each step costs thread switches.
constexpr std::size_t kAtOnceBytes = 8 << 10;
// A message of a tiny tensor always fits into a connection's buffer: a member has at most two messages in transit.
constexpr std::size_t kTinyBytes = 256;
// The largest tensor and group for the two-step method, which needs several messages for each member. Other tensors use
// Gloo's ring. It moves as many bytes, and reduces while it waits for other members.
constexpr std::size_t kTwoStepBytes = 2 << 20;
constexpr int kTwoStepMembers = 8;

// Time limit of try_allreduce() for a small tensor. It has one microsecond more for each KiB.
constexpr std::chrono::microseconds kTimeLimit(500);

constexpr std::uint64_t kSlots = 0x646972ULL << 32;  // not used by Gloo's collectives or verify.cc

std::size_t unit_of(const distrun_backend_operation& operation) { return size_of(plugin::dtype_of(operation)); }

std::size_t bytes_of(const distrun_backend_operation& operation) {
  return operation.segments->count * unit_of(operation);
}

const std::byte* input_of(const distrun_backend_operation& operation) {
  return static_cast<const std::byte*>(operation.segments->input);
}

std::byte* output_of(const distrun_backend_operation& operation) {
  return static_cast<std::byte*>(operation.segments->output);
}

}  // namespace

Direct::Direct(const std::shared_ptr<Mesh>& mesh) : mesh_(mesh) {
  const auto members = static_cast<std::size_t>(mesh->size);
  std::uint64_t slot = kSlots;
  for (Half& half : halves_) {
    half.tensors.emplace(mesh, slot++, kAtOnceBytes / (members - 1), true);
    half.receipts.emplace(mesh, slot++, 0, true);
    if (mesh->size > kTwoStepMembers) continue;
    const std::size_t block = kTwoStepBytes / members + sizeof(std::uint64_t);  // some blocks have one element more
    half.parts.emplace(mesh, slot++, block, false);
    half.sums.emplace(mesh, slot++, block, true);
  }
}

bool Direct::at_once(const distrun_backend_operation& operation) const {
  return bytes_of(operation) <= kAtOnceBytes / static_cast<std::size_t>(mesh_->size - 1);
}

bool Direct::takes(const distrun_backend_operation& operation) const {
  if (operation.kind != DISTRUN_BACKEND_ALLREDUCE || operation.num_segments == 0) return false;
  if (bytes_of(operation) == 0) return false;
  return at_once(operation) || (mesh_->size <= kTwoStepMembers && bytes_of(operation) <= kTwoStepBytes);
}

bool Direct::try_allreduce(const distrun_backend_operation& operation) {
  const TimePoint deadline = Clock::now() + kTimeLimit + std::chrono::microseconds(bytes_of(operation) >> 10);
  return run(operation, &deadline);
}

void Direct::allreduce(const distrun_backend_operation& operation) { run(operation, nullptr); }

bool Direct::run(const distrun_backend_operation& operation, const TimePoint* deadline) {
  if (step_ == Step::kNone) begin(operation);
  while (step_ != Step::kNone) {
    while (deadline != nullptr && !have_come(operation)) {
      if (Clock::now() >= *deadline) return false;
      ::sched_yield();  // Gloo's thread, which receives, may need this core
    }
    awaited().receive();
    go_on(operation);
  }
  return true;
}

Direct::Block Direct::block_of(const distrun_backend_operation& operation, int member) const {
  const std::size_t unit = unit_of(operation);
  const auto members = static_cast<std::size_t>(mesh_->size);
  const auto index = static_cast<std::size_t>(member);
  const std::size_t count = operation.segments->count;
  const std::size_t first = count * index / members;
  const std::size_t mine = count * (index + 1) / members - first;
  return {.at = first * unit, .bytes = mine * unit, .count = mine};
}

// A bit pattern that is unlikely in tensors.
std::uint64_t Direct::mark() const { return (number_ * 0x9e3779b97f4a7c15ULL) ^ 0x6d61726b62656869ULL; }

Mailbox& Direct::awaited() {
  switch (step_) {
    case Step::kTensors:
      return *half().tensors;
    case Step::kParts:
      return *half().parts;
    case Step::kSums:
      return *half().sums;
    default:
      return *half().receipts;
  }
}

void Direct::begin(const distrun_backend_operation& operation) {
  step_ = at_once(operation) ? Step::kTensors : Step::kParts;
  Mailbox& box = awaited();
  box.clear();
  if (step_ == Step::kTensors) {
    const std::size_t bytes = bytes_of(operation);
    std::memcpy(box.to(mesh_->rank), input_of(operation), bytes);
    return box.send([bytes](int) { return bytes; }, mark());
  }
  mesh_->for_each_other([&](int member) {
    const Block block = block_of(operation, member);
    std::memcpy(box.to(member), input_of(operation) + block.at, block.bytes);
  });
  box.send([&](int member) { return block_of(operation, member).bytes; }, mark());
}

std::size_t Direct::size_from(const distrun_backend_operation& operation, int member) const {
  if (step_ == Step::kReceipts) return 0;
  if (step_ == Step::kTensors) return bytes_of(operation);
  return block_of(operation, step_ == Step::kParts ? mesh_->rank : member).bytes;
}

bool Direct::have_come(const distrun_backend_operation& operation) {
  const Mailbox& box = awaited();
  bool all = true;
  mesh_->for_each_other([&](int member) { all = all && box.has_come(member, size_from(operation, member), mark()); });
  return all;
}

// Continues with the messages that have arrived.
void Direct::go_on(const distrun_backend_operation& operation) {
  switch (step_) {
    case Step::kTensors:
      add(operation, awaited(), {.at = 0, .bytes = bytes_of(operation), .count = operation.segments->count},
          output_of(operation));
      awaited().offer_again();
      return bytes_of(operation) <= kTinyBytes ? end() : send_receipts();
    case Step::kParts:
      return send_sum(operation);
    case Step::kSums:
      take_sums(operation);
      awaited().offer_again();
      return send_receipts();
    default:
      awaited().offer_again();
      return end();
  }
}

void Direct::add(const distrun_backend_operation& operation, const Mailbox& from, const Block& own,
                 std::byte* out) const {
  std::vector<const std::byte*> parts;
  for (int member = 0; member < mesh_->size; ++member) {
    parts.push_back(member == mesh_->rank ? input_of(operation) + own.at : from.from(member));
  }
  plugin::reduce_parts(operation, parts, out, own.count);
}

void Direct::send_sum(const distrun_backend_operation& operation) {
  const Block own = block_of(operation, mesh_->rank);
  Mailbox& sums = *half().sums;
  sums.clear();
  std::byte* const sum = sums.to(mesh_->rank);
  add(operation, awaited(), own, sum);
  sums.send([&](int) { return own.bytes; }, mark());
  half().parts->offer_again();
  std::memcpy(output_of(operation) + own.at, sum, own.bytes);
  step_ = Step::kSums;
}

void Direct::take_sums(const distrun_backend_operation& operation) {
  mesh_->for_each_other([&](int member) {
    const Block block = block_of(operation, member);
    std::memcpy(output_of(operation) + block.at, awaited().from(member), block.bytes);
  });
}

// A member that has all receipts can close its connections. They hold no data that another member still needs, except
// the member's own receipts, and those fit into the buffers.
void Direct::send_receipts() {
  step_ = Step::kReceipts;
  awaited().clear();
  awaited().send([](int) { return std::size_t{0}; }, mark());
}

void Direct::end() {
  ++number_;
  step_ = Step::kNone;
}

}  // namespace distrun::backend::gloo_plugin
