#include "runtime/backend/tcp/schedule.h"

#include <algorithm>
#include <vector>

#include "runtime/base/status.h"

namespace distrun::backend::tcp {
namespace {

constexpr std::size_t kAlignment = 64;  // blocks begin on cache lines, so that two members' kernels never share a line

std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// Elements in a full chunk.
std::size_t chunk_of(const Task& task, const Tuning& tuning) {
  return std::max<std::size_t>(1, tuning.chunk_bytes / task.element_bytes);
}

// The begin of each member's block. The last entry is the end of the last block.
std::vector<std::size_t> offsets_of(std::span<const std::size_t> counts) {
  std::vector<std::size_t> offsets(counts.size() + 1, 0);
  for (std::size_t i = 0; i < counts.size(); ++i) offsets[i + 1] = offsets[i] + counts[i];
  return offsets;
}

// The order of the messages of `slices` slices with `steps` steps each. The slices are taken in groups of `window`.
// Within a group, all slices make step 0, then all make step 1, and so on. So one chunk is in transit while another one
// is reduced.
class Rounds {
 public:
  Rounds() = default;
  Rounds(std::size_t slices, std::size_t steps, std::size_t window)
      : slices_(slices), steps_(steps), window_(std::max<std::size_t>(1, std::min(window, slices))) {}

  struct Position {
    std::size_t slice, step, group_slices;
    // A message carries the data that this slice received in the step before.
    [[nodiscard]] std::size_t after(std::size_t i) const { return step == 0 ? 0 : i - group_slices + 1; }
  };
  [[nodiscard]] std::size_t messages() const { return slices_ * steps_; }
  [[nodiscard]] Position position(std::size_t i) const {
    const std::size_t group = i / (window_ * steps_);
    const std::size_t group_slices = std::min(window_, slices_ - group * window_);
    const std::size_t rest = i - group * window_ * steps_;
    return {.slice = group * window_ + rest % group_slices, .step = rest / group_slices, .group_slices = group_slices};
  }

 private:
  std::size_t slices_ = 1, steps_ = 1, window_ = 1;
};

// Reduce-scatter, then all-gather around the ring, in slices of size() blocks with one chunk each. In step s, member r
// sends block r - s and receives block r - 1 - s. In steps 0 to n - 2 the received block is a partial sum, which is
// finished in step n - 2. In later steps it is a finished block. The sum of block b starts with the input of member b
// and then follows the ring. So the order of the additions is the same in every run.
class RingReduce final : public Schedule {
 public:
  RingReduce(const Task& task, const Tuning& tuning)
      : size_(task.size), index_(task.index), count_(task.count), steps_(2 * (task.size - 1)) {
    unit_ = std::max<std::size_t>(1, kAlignment / task.element_bytes);
    const std::size_t chunk_units = std::max<std::size_t>(1, tuning.chunk_bytes / (unit_ * task.element_bytes));
    units_ = divide_up(count_, unit_);
    slices_ = std::max<std::size_t>(1, divide_up(units_, chunk_units * size_));
    rounds_ = Rounds(slices_, steps_, tuning.window);
  }

  [[nodiscard]] std::size_t sends() const override { return rounds_.messages(); }
  [[nodiscard]] std::size_t receives() const override { return rounds_.messages(); }

  [[nodiscard]] Transfer send(std::size_t i) const override {
    const Rounds::Position at = rounds_.position(i);
    Transfer transfer = block(at.slice, index_ + steps_ + 2 - at.step);
    transfer.place = at.step == 0 ? Place::kInput : at.step + 1 < size_ ? Place::kPartial : Place::kOutput;
    transfer.after = at.after(i);
    return transfer;
  }

  [[nodiscard]] Transfer receive(std::size_t i) const override {
    const Rounds::Position at = rounds_.position(i);
    Transfer transfer = block(at.slice, index_ + steps_ + 1 - at.step);
    transfer.place = at.step + 2 < size_ ? Place::kPartial : at.step + 2 == size_ ? Place::kFinal : Place::kOutput;
    transfer.out_at = transfer.begin;
    return transfer;
  }

 private:
  // Distributes the elements evenly over all chunks, in whole cache lines. steps_ + 2 is a multiple of the size.
  [[nodiscard]] Transfer block(std::size_t slice, std::size_t number) const {
    const std::size_t chunk = slice * size_ + number % size_;
    const std::size_t begin = boundary(chunk);
    return {.begin = begin, .count = boundary(chunk + 1) - begin};
  }

  [[nodiscard]] std::size_t boundary(std::size_t chunk) const {
    const std::size_t chunks = slices_ * size_;
    const std::size_t whole = units_ / chunks * chunk + std::min(chunk, units_ % chunks);
    return std::min(count_, whole * unit_);
  }

  std::size_t size_, index_, count_, steps_;
  std::size_t unit_ = 1;    // elements per cache line
  std::size_t units_ = 0;   // cache lines in the operation
  std::size_t slices_ = 1;  // every slice has one chunk per member
  Rounds rounds_;
};

// Sends every member's whole input around the ring once. Each member then adds all inputs in member order. For small
// operations, where latency costs more than bandwidth.
class BlockGather final : public Schedule {
 public:
  explicit BlockGather(const Task& task) : size_(task.size), index_(task.index), count_(task.count) {}
  [[nodiscard]] std::size_t sends() const override { return count_ == 0 ? 0 : size_ - 1; }
  [[nodiscard]] std::size_t receives() const override { return sends(); }
  [[nodiscard]] Transfer send(std::size_t i) const override { return block(index_ + size_ - i, i); }
  [[nodiscard]] Transfer receive(std::size_t i) const override { return block(index_ + size_ - 1 - i, 0); }
  [[nodiscard]] bool gathers_blocks() const override { return true; }

 private:
  [[nodiscard]] Transfer block(std::size_t number, std::size_t after) const {
    return {.place = Place::kBlock, .begin = number % size_ * count_, .count = count_, .after = after};
  }
  std::size_t size_, index_, count_;
};

// In step s, member r sends block r - s, which it received in step s - 1, and receives block r - 1 - s. Blocks are sent
// in chunks.
class RingGather final : public Schedule {
 public:
  RingGather(const Task& task, const Tuning& tuning)
      : size_(task.size), index_(task.index), chunk_(chunk_of(task, tuning)), offsets_(offsets_of(task.counts)) {
    sent_before_.resize(size_, 0);
    received_before_.resize(size_, 0);
    for (std::size_t s = 0; s + 1 < size_; ++s) {
      sent_before_[s + 1] = sent_before_[s] + chunks(index_ + size_ - s);
      received_before_[s + 1] = received_before_[s] + chunks(index_ + size_ - 1 - s);
    }
  }

  [[nodiscard]] std::size_t sends() const override { return sent_before_.back(); }
  [[nodiscard]] std::size_t receives() const override { return received_before_.back(); }

  [[nodiscard]] Transfer send(std::size_t i) const override {
    const std::size_t step = step_of(sent_before_, i);
    Transfer transfer = chunk(index_ + size_ - step, i - sent_before_[step]);
    if (step == 0) {
      transfer.place = Place::kInput;
      transfer.keep = true;
      transfer.out_at = transfer.begin;
      transfer.begin -= offsets_[index_];
    } else {
      transfer.after = i - sent_before_[1] + 1;
    }
    return transfer;
  }

  [[nodiscard]] Transfer receive(std::size_t i) const override {
    const std::size_t step = step_of(received_before_, i);
    return chunk(index_ + size_ - 1 - step, i - received_before_[step]);
  }

 private:
  [[nodiscard]] std::size_t chunks(std::size_t number) const {
    const std::size_t block = number % size_;
    return divide_up(offsets_[block + 1] - offsets_[block], chunk_);
  }
  [[nodiscard]] static std::size_t step_of(const std::vector<std::size_t>& before, std::size_t i) {
    return static_cast<std::size_t>(std::ranges::upper_bound(before, i) - before.begin()) - 1;
  }
  [[nodiscard]] Transfer chunk(std::size_t number, std::size_t which) const {
    const std::size_t block = number % size_;
    const std::size_t begin = offsets_[block] + which * chunk_;
    return {.place = Place::kOutput, .begin = begin, .count = std::min(chunk_, offsets_[block + 1] - begin)};
  }

  std::size_t size_, index_, chunk_;
  std::vector<std::size_t> offsets_;          // of each member's block in the output
  std::vector<std::size_t> sent_before_;      // messages sent before step s
  std::vector<std::size_t> received_before_;  // messages received before step s
};

// The first half of RingReduce, for parts of any size. In step s, member r sends part r - 1 - s and receives part r - 2
// - s. In step n - 2 it receives its own part. The sum of a part starts with the input of the member after the part's
// owner. Slice k is chunk k of every part. A part without a chunk k sends an empty message for it.
class RingScatter final : public Schedule {
 public:
  RingScatter(const Task& task, const Tuning& tuning)
      : size_(task.size), index_(task.index), chunk_(chunk_of(task, tuning)), offsets_(offsets_of(task.counts)) {
    rounds_ = Rounds(divide_up(*std::ranges::max_element(task.counts), chunk_), size_ - 1, tuning.window);
  }

  [[nodiscard]] std::size_t sends() const override { return rounds_.messages(); }
  [[nodiscard]] std::size_t receives() const override { return rounds_.messages(); }

  [[nodiscard]] Transfer send(std::size_t i) const override {
    const Rounds::Position at = rounds_.position(i);
    Transfer transfer = chunk(index_ + 2 * size_ - 1 - at.step, at.slice);
    transfer.place = at.step == 0 ? Place::kInput : Place::kPartial;
    transfer.after = at.after(i);
    return transfer;
  }

  [[nodiscard]] Transfer receive(std::size_t i) const override {
    const Rounds::Position at = rounds_.position(i);
    Transfer transfer = chunk(index_ + 2 * size_ - 2 - at.step, at.slice);
    transfer.place = at.step + 2 == size_ ? Place::kFinal : Place::kPartial;
    if (transfer.place == Place::kFinal) transfer.out_at = transfer.begin - offsets_[index_];
    return transfer;
  }

 private:
  [[nodiscard]] Transfer chunk(std::size_t number, std::size_t which) const {
    const std::size_t part = number % size_;
    const std::size_t begin = std::min(offsets_[part] + which * chunk_, offsets_[part + 1]);
    return {.begin = begin, .count = std::min(chunk_, offsets_[part + 1] - begin)};
  }

  std::size_t size_, index_, chunk_;
  std::vector<std::size_t> offsets_;  // of each part in the input
  Rounds rounds_;
};

// Data goes from the root along the ring to the root's left neighbour. Each member forwards a chunk as soon as it has
// it.
class Chain final : public Schedule {
 public:
  Chain(const Task& task, const Tuning& tuning)
      : count_(task.count),
        chunk_(chunk_of(task, tuning)),
        chunks_(divide_up(task.count, chunk_)),
        first_(task.index == task.root),
        last_((task.index + 1) % task.size == task.root) {}

  [[nodiscard]] std::size_t sends() const override { return last_ ? 0 : chunks_; }
  [[nodiscard]] std::size_t receives() const override { return first_ ? 0 : chunks_; }
  [[nodiscard]] Transfer send(std::size_t i) const override {
    Transfer transfer = receive(i);
    if (first_) {
      transfer.place = Place::kInput;
      transfer.keep = true;
      transfer.out_at = transfer.begin;
    } else {
      transfer.after = i + 1;
    }
    return transfer;
  }
  [[nodiscard]] Transfer receive(std::size_t i) const override {
    return {.place = Place::kOutput, .begin = i * chunk_, .count = std::min(chunk_, count_ - i * chunk_)};
  }

 private:
  std::size_t count_, chunk_, chunks_;
  bool first_, last_;
};

// Each member sends n - 1 empty messages. When the last one arrives, it depends on all members.
class Barrier final : public Schedule {
 public:
  explicit Barrier(const Task& task) : size_(task.size) {}
  [[nodiscard]] std::size_t sends() const override { return size_ - 1; }
  [[nodiscard]] std::size_t receives() const override { return size_ - 1; }
  [[nodiscard]] Transfer send(std::size_t i) const override { return {.after = i}; }
  [[nodiscard]] Transfer receive(std::size_t) const override { return {}; }

 private:
  std::size_t size_;
};

}  // namespace

std::unique_ptr<Schedule> make_schedule(const Task& task, const Tuning& tuning) {
  DISTRUN_CHECK(task.size > 1 && task.index < task.size, "a ring needs two members, this one among them");
  DISTRUN_CHECK(task.kind != OpKind::kAllgather || task.counts.size() == task.size, "an allgather needs all counts");
  DISTRUN_CHECK(task.kind != OpKind::kReducescatter || task.counts.size() == task.size,
                "a reducescatter needs all counts");
  DISTRUN_CHECK(task.root < task.size, "the root is not a member");
  switch (task.kind) {
    case OpKind::kAllreduce:
      if (task.count * task.element_bytes * task.size <= tuning.gather_bytes)
        return std::make_unique<BlockGather>(task);
      return std::make_unique<RingReduce>(task, tuning);
    case OpKind::kAllgather:
      return std::make_unique<RingGather>(task, tuning);
    case OpKind::kBroadcast:
      return std::make_unique<Chain>(task, tuning);
    case OpKind::kBarrier:
      return std::make_unique<Barrier>(task);
    case OpKind::kReducescatter:
      return std::make_unique<RingScatter>(task, tuning);
    default:
      break;
  }
  DISTRUN_CHECK(false, "no operation of a ring");
}

}  // namespace distrun::backend::tcp
