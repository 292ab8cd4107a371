#include "runtime/backend/tcp/ring_transfer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/backend/kernels/kernels.h"

namespace distrun::backend::tcp {
namespace {

void copy(std::byte* out, const std::byte* in, std::size_t bytes) {
  if (out != in && bytes > 0) std::memmove(out, in, bytes);
}

}  // namespace

std::byte* ChunkPool::lend() {
  if (free_.empty()) {
    DISTRUN_CHECK(left_ > 0, "no chunk is free");
    --left_;
    owned_.push_back(std::make_unique_for_overwrite<std::byte[]>(chunk_bytes_));
    return owned_.back().get();
  }
  std::byte* chunk = free_.back();
  free_.pop_back();
  return chunk;
}

RingTransfer::RingTransfer(const Operation& operation, const RingTransferArgs& args)
    : operation_(operation),
      token_(args.token),
      sequence_(args.sequence),
      size_(args.size),
      index_(args.index),
      tuning_(args.tuning),
      pool_(args.pool),
      layout_(operation.segments, size_of(operation.dtype)) {
  if (size_ == 1) return;
  schedule_ = make_schedule({.kind = operation.kind,
                             .size = size_,
                             .index = index_,
                             .element_bytes = layout_.element_bytes(),
                             .count = layout_.count(),
                             .root = static_cast<std::size_t>(operation.root),
                             .counts = operation.counts},
                            tuning_);
  sends_ = schedule_->sends();
  receives_ = schedule_->receives();
}

Status RingTransfer::reserve() {
  if (size_ == 1) return {};
  if (!schedule_->gathers_blocks()) return {};
  auto blocks = make_buffer(layout_.count() * size_ * layout_.element_bytes(), "all members' inputs");
  if (!blocks.ok()) return blocks.status();
  blocks_ = *std::move(blocks);
  std::byte* own = blocks_.get() + layout_.count() * layout_.element_bytes() * index_;
  layout_.for_each(0, layout_.count(), [&](const std::byte* in, std::byte*, std::size_t count) {
    kernels::scale(operation_.dtype, operation_.prescale, in, own, count);
    own += count * layout_.element_bytes();
  });
  return {};
}

bool RingTransfer::reduces() const { return traits_of(operation_.kind).reduces; }

// An allgather's output is a separate row of blocks. For other operations, output and input have the same elements.
bool RingTransfer::in_blocks() const { return operation_.kind == OpKind::kAllgather; }

std::size_t RingTransfer::bytes_of(const Transfer& transfer) const { return transfer.count * layout_.element_bytes(); }

Header RingTransfer::header(const Transfer& transfer, std::size_t index) const {
  return {.kind = MessageKind::kData,
          .op = operation_.kind,
          .dtype = operation_.dtype,
          .sequence = sequence_,
          .index = static_cast<std::uint32_t>(index),
          .bytes = static_cast<std::uint32_t>(bytes_of(transfer))};
}

Header RingTransfer::next_send() const { return header(schedule_->send(sent_), sent_); }
Header RingTransfer::next_receive() const { return header(schedule_->receive(received_), received_); }

bool RingTransfer::can_send() const { return !sent_all() && received_ >= schedule_->send(sent_).after; }

void RingTransfer::add_send(Pieces& pieces) {
  const Transfer transfer = schedule_->send(sent_);
  const std::size_t bytes = layout_.element_bytes();
  switch (transfer.place) {
    case Place::kNothing:
    case Place::kFinal:
      return;
    case Place::kPartial:
      return pieces.add(partials_.front(), bytes_of(transfer));
    case Place::kBlock:
      return pieces.add(blocks_.get() + transfer.begin * bytes, bytes_of(transfer));
    case Place::kOutput:
      if (in_blocks()) return pieces.add(operation_.segments[0].out + transfer.begin * bytes, bytes_of(transfer));
      return layout_.for_each(transfer.begin, transfer.count, [&](const std::byte*, std::byte* out, std::size_t count) {
        pieces.add(out, count * bytes);
      });
    case Place::kInput:
      break;
  }
  const bool scales = reduces() && operation_.prescale != 1.0;
  if (scales) scaled_.resize(tuning_.chunk_bytes);
  std::byte* scaled = scaled_.data();
  layout_.for_each(transfer.begin, transfer.count, [&](const std::byte* in, std::byte*, std::size_t count) {
    if (scales) {
      kernels::scale(operation_.dtype, operation_.prescale, in, scaled, count);
      in = scaled;
      scaled += count * bytes;
    }
    pieces.add(in, count * bytes);
  });
}

void RingTransfer::end_send() {
  const Transfer transfer = schedule_->send(sent_);
  if (transfer.place == Place::kPartial) {
    pool_->give_back(partials_.front());
    partials_.pop_front();
  }
  if (transfer.keep) keep_input(transfer);
  ++sent_;
}

// Called right after the kernel has read the chunk for sending, so that the chunk is read from memory only once.
void RingTransfer::keep_input(const Transfer& transfer) {
  const std::size_t bytes = layout_.element_bytes();
  if (in_blocks()) {
    const Segment& segment = operation_.segments[0];
    return copy(segment.out + transfer.out_at * bytes, segment.in + transfer.begin * bytes, bytes_of(transfer));
  }
  layout_.for_each(transfer.begin, transfer.count, [&](const std::byte* in, std::byte* out, std::size_t count) {
    if (out != nullptr) copy(out, in, count * bytes);
  });
}

bool RingTransfer::add_receive(Pieces& pieces) {
  const Transfer transfer = schedule_->receive(received_);
  const std::size_t bytes = layout_.element_bytes();
  switch (transfer.place) {
    case Place::kNothing:
    case Place::kInput:
      return true;
    case Place::kPartial:
    case Place::kFinal:
      if (pool_->empty()) return false;
      target_ = pool_->lend();
      pieces.add(target_, bytes_of(transfer));
      return true;
    case Place::kBlock:
      pieces.add(blocks_.get() + transfer.begin * bytes, bytes_of(transfer));
      return true;
    case Place::kOutput:
      break;
  }
  if (in_blocks()) {
    pieces.add(operation_.segments[0].out + transfer.begin * bytes, bytes_of(transfer));
    return true;
  }
  layout_.for_each(transfer.begin, transfer.count,
                   [&](const std::byte*, std::byte* out, std::size_t count) { pieces.add(out, count * bytes); });
  return true;
}

void RingTransfer::end_receive() {
  const Transfer transfer = schedule_->receive(received_);
  if (transfer.place == Place::kPartial) {
    combine(false);
    partials_.push_back(target_);
  }
  if (transfer.place == Place::kFinal) {
    combine(true);
    pool_->give_back(target_);
  }
  target_ = nullptr;
  ++received_;
}

const std::byte* RingTransfer::prescaled(const std::byte* in, std::size_t count, std::byte* scratch) const {
  if (operation_.prescale == 1.0) return in;
  kernels::scale(operation_.dtype, operation_.prescale, in, scratch, count);
  return scratch;
}

// Adds in the order of the ring: the sum from the left neighbour first, this member's input second.
void RingTransfer::combine(bool last) {
  const Transfer transfer = schedule_->receive(received_);
  kernels::Reduction reduction{.dtype = operation_.dtype, .op = operation_.reduce, .finish = {}};
  if (last) reduction.finish = kernels::finish_of(operation_.reduce, operation_.postscale, size_);
  if (operation_.prescale != 1.0) own_scaled_.resize(tuning_.chunk_bytes);
  std::byte* sum = target_;
  const bool scatters = operation_.kind == OpKind::kReducescatter;
  layout_.for_each(transfer.begin, transfer.count, [&](const std::byte* in, std::byte* out, std::size_t count) {
    if (last && scatters) out = operation_.segments[0].out + transfer.out_at * layout_.element_bytes();
    const std::array<const std::byte*, 2> sources{sum, prescaled(in, count, own_scaled_.data())};
    kernels::reduce(reduction, sources, last ? out : sum, count);
    sum += count * layout_.element_bytes();
  });
}

void RingTransfer::finish() {
  const std::size_t bytes = layout_.element_bytes();
  if (operation_.kind == OpKind::kBarrier) return;
  if (!reduces()) {
    if (size_ > 1) return;
    return layout_.for_each(0, layout_.count(), [&](const std::byte* in, std::byte* out, std::size_t count) {
      if (out != nullptr) copy(out, in, count * bytes);
    });
  }
  if (size_ > 1 && !schedule_->gathers_blocks()) return;
  const kernels::Reduction reduction{.dtype = operation_.dtype,
                                     .op = operation_.reduce,
                                     .finish = kernels::finish_of(operation_.reduce, operation_.postscale, size_)};
  const std::size_t block = layout_.count() * bytes;
  std::vector<const std::byte*> sources(size_);
  std::size_t offset = 0;
  layout_.for_each(0, layout_.count(), [&](const std::byte* in, std::byte* out, std::size_t count) {
    if (size_ == 1) {
      kernels::scale(operation_.dtype, operation_.prescale, in, out, count);
      sources[0] = out;
    } else {
      for (std::size_t i = 0; i < size_; ++i) sources[i] = blocks_.get() + i * block + offset;
    }
    kernels::reduce(reduction, sources, out, count);
    offset += count * bytes;
  });
}

}  // namespace distrun::backend::tcp
