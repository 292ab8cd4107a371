// A backend of n ranks in this process. Each rank copies its contribution into a shared table. When all contributions
// are there, each rank computes its own output from them. Nothing is written earlier (revocable), so a test may kill a
// rank at any moment. Only f32 and i32.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/base/annotations.h"

namespace distrun::test {

struct FakeBackendOptions {
  bool scatter_gather = true;
  backend::MovedBy moved_by = backend::MovedBy::kMemory;  // kCalls: wakes no rank
  bool exclusive = false;
  int hangs = -1;                             // the data of this rank never arrives
  int starves = -1;                           // this rank has no memory for the operations that it starts
  std::function<void(int rank)> meddle = {};  // called when a rank has something in flight; may throw
  std::function<bool(int rank)> holds = {};   // while this is true, the rank's operations stay in flight
  bool moves = false;                         // with `holds`: progress() says all the time that something moved
};

// The state that the backends of all ranks and groups share. It must outlive them.
class FakeFabric {
 public:
  // `wake` is called when something happened that `rank` may wait for, on the thread that caused it.
  explicit FakeFabric(std::function<void(int rank)> wake) : wake_(std::move(wake)) {}

  // `group` is unique per process set.
  std::unique_ptr<backend::Backend> backend(int group, const std::vector<int>& members, int rank,
                                            FakeBackendOptions options = {});

  // The rank's connections end. Its peers notice this; operations that need the rank make no more progress.
  void kill(int rank) {
    std::vector<int> peers;
    {
      const MutexLock lock(mutex_);
      dead_ = rank;
      for (const auto& [group, members] : members_) peers.insert(peers.end(), members.begin(), members.end());
    }
    for (const int peer : peers) wake_(peer);
  }
  // Operations that are in flight or have a contribution, over the fabric's life. For tests of fusion and packing.
  [[nodiscard]] int operations() const {
    const MutexLock lock(mutex_);
    return operations_;
  }
  // The most that any one rank had in flight at once, over all its groups.
  [[nodiscard]] int most_in_flight() const {
    const MutexLock lock(mutex_);
    return most_in_flight_;
  }
  [[nodiscard]] std::size_t most_segments() const {
    const MutexLock lock(mutex_);
    return most_segments_;
  }

 private:
  friend class FakeBackend;
  struct Slot {
    std::map<int, std::vector<std::byte>> inputs;  // by rank
    int readers = 0;
  };
  mutable Mutex mutex_;
  std::map<int, std::vector<int>> members_ DISTRUN_GUARDED_BY(mutex_);
  std::map<std::pair<int, std::uint64_t>, Slot> slots_ DISTRUN_GUARDED_BY(mutex_);  // by group and operation number
  int dead_ DISTRUN_GUARDED_BY(mutex_) = -1;
  int operations_ DISTRUN_GUARDED_BY(mutex_) = 0;
  std::map<int, int> in_flight_ DISTRUN_GUARDED_BY(mutex_);  // by rank
  int most_in_flight_ DISTRUN_GUARDED_BY(mutex_) = 0;
  std::size_t most_segments_ DISTRUN_GUARDED_BY(mutex_) = 0;
  const std::function<void(int)> wake_;
};

class FakeBackend final : public backend::Backend {
 public:
  FakeBackend(FakeFabric& fabric, int group, std::vector<int> members, int rank, FakeBackendOptions options)
      : fabric_(fabric),
        group_(group),
        members_(std::move(members)),
        rank_(rank),
        hangs_(options.hangs == rank),
        starves_(options.starves == rank),
        meddle_(std::move(options.meddle)),
        holds_(std::move(options.holds)),
        moves_(options.moves) {
    capabilities_ = {.ops = ~0U, .dtypes = kTypes, .devices = 1, .scatter_gather = options.scatter_gather};
    capabilities_.revocable = true;
    capabilities_.moved_by = options.moved_by;
    capabilities_.exclusive = options.exclusive;
  }

  [[nodiscard]] std::string_view name() const override { return "fake"; }
  [[nodiscard]] const backend::Capabilities& capabilities() const override { return capabilities_; }

  Status start(const backend::Operation& operation, std::uint64_t token) override {
    {
      const MutexLock lock(fabric_.mutex_);
      if (!aborted_.ok()) return aborted_;
      if (starves_) return {Errc::kOutOfMemory, "no memory for what passes through"};
      auto& slot = fabric_.slots_[{group_, next_}];
      if (!hangs_) slot.inputs[rank_] = contribution(operation);
      fabric_.most_segments_ = std::max(fabric_.most_segments_, operation.segments.size());
      if (rank_ == members_.front()) ++fabric_.operations_;
      fabric_.most_in_flight_ = std::max(fabric_.most_in_flight_, ++fabric_.in_flight_[rank_]);
    }
    queue_.push_back({.operation = operation, .token = token, .number = next_++});
    for (const int member : members_) {
      if (member != rank_ && capabilities_.moved_by != backend::MovedBy::kCalls) fabric_.wake_(member);
    }
    return {};
  }

  bool progress() override {
    const MutexLock lock(fabric_.mutex_);
    if (queue_.empty()) return false;
    if (meddle_) meddle_(rank_);
    const auto found = fabric_.slots_.find({group_, queue_.front().number});
    if (!aborted_.ok()) {
      for (const Queued& one : queue_) done_.push_back({.token = one.token, .status = aborted_});
      queue_.clear();
      return true;
    }
    if (found->second.inputs.size() < members_.size()) return false;
    if (holds_ && holds_(rank_)) return moves_;
    produce(queue_.front().operation, found->second);
    done_.push_back({.token = queue_.front().token, .status = {}});
    queue_.pop_front();
    --fabric_.in_flight_[rank_];
    if (++found->second.readers == static_cast<int>(members_.size())) fabric_.slots_.erase(found);
    return true;
  }

  void completed(std::vector<backend::Completed>& out) override {
    out.insert(out.end(), done_.begin(), done_.end());
    done_.clear();
  }
  void abort(const Status& why) override {
    const MutexLock lock(fabric_.mutex_);
    if (aborted_.ok()) aborted_ = why;
  }
  [[nodiscard]] std::optional<EndedLink> lost_peer() const override {
    const MutexLock lock(fabric_.mutex_);
    const bool ours = std::find(members_.begin(), members_.end(), fabric_.dead_) != members_.end();
    if (!ours || fabric_.dead_ == rank_) return std::nullopt;
    return EndedLink{.peer = fabric_.dead_, .end = LinkEnd::kClosed};
  }

 private:
  static constexpr std::uint32_t kTypes =
      1U << static_cast<unsigned>(DType::kF32) | 1U << static_cast<unsigned>(DType::kI32);
  struct Queued {
    backend::Operation operation;
    std::uint64_t token = 0;
    std::uint64_t number = 0;
  };

  static std::vector<std::byte> contribution(const backend::Operation& operation) {
    std::vector<std::byte> bytes;
    for (const backend::Segment& one : operation.segments) {
      const std::size_t size = one.count * size_of(operation.dtype);
      const std::size_t at = bytes.size();
      bytes.resize(at + size);
      if (size > 0) std::memcpy(bytes.data() + at, one.in, size);
    }
    return bytes;
  }

  void produce(const backend::Operation& operation, const FakeFabric::Slot& slot) const {
    if (operation.kind == OpKind::kAllgather) {
      std::byte* out = operation.segments.front().out;
      for (const int member : members_) {
        const auto& input = slot.inputs.at(member);
        if (!input.empty()) std::memcpy(out, input.data(), input.size());
        out += input.size();
      }
    } else if (operation.kind == OpKind::kAlltoall) {
      exchange(operation, slot);
    } else if (operation.kind == OpKind::kReducescatter) {
      scatter(operation, slot);
    } else if (operation.kind == OpKind::kBroadcast) {
      const backend::Segment& segment = operation.segments.front();
      const auto& input = slot.inputs.at(members_[static_cast<std::size_t>(operation.root)]);
      if (!input.empty()) std::memmove(segment.out, input.data(), input.size());
    } else if (operation.dtype == DType::kF32) {
      reduce<float>(operation, slot);
    } else {
      reduce<std::int32_t>(operation, slot);
    }
  }

  [[nodiscard]] std::size_t index() const {
    return static_cast<std::size_t>(std::find(members_.begin(), members_.end(), rank_) - members_.begin());
  }

  void exchange(const backend::Operation& operation, const FakeFabric::Slot& slot) const {
    const std::size_t unit = size_of(operation.dtype);
    std::byte* out = operation.segments.front().out;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const auto row = operation.counts.subspan(i * members_.size(), members_.size());
      std::size_t at = 0;
      for (std::size_t j = 0; j < index(); ++j) at += row[j] * unit;
      const std::size_t bytes = row[index()] * unit;
      if (bytes > 0) std::memcpy(out, slot.inputs.at(members_[i]).data() + at, bytes);
      out += bytes;
    }
  }

  // Computes the whole sum and keeps this member's part of it.
  void scatter(const backend::Operation& operation, const FakeFabric::Slot& slot) const {
    const std::size_t unit = size_of(operation.dtype);
    std::vector<std::byte> whole(operation.segments.front().count * unit);
    const backend::Segment all{.in = nullptr, .out = whole.data(), .count = operation.segments.front().count};
    backend::Operation sum = operation;
    sum.segments = {&all, 1};
    if (operation.dtype == DType::kF32) {
      reduce<float>(sum, slot);
    } else {
      reduce<std::int32_t>(sum, slot);
    }
    std::size_t at = 0;
    for (std::size_t i = 0; i < index(); ++i) at += operation.counts[i] * unit;
    const std::size_t bytes = operation.counts[index()] * unit;
    if (bytes > 0) std::memcpy(operation.segments.front().out, whole.data() + at, bytes);
  }

  template <class T>
  void reduce(const backend::Operation& operation, const FakeFabric::Slot& slot) const {
    std::vector<const std::byte*> inputs;
    for (const int member : members_) inputs.push_back(slot.inputs.at(member).data());
    const std::size_t members = inputs.size();
    for (const backend::Segment& segment : operation.segments) {
      for (std::size_t i = 0; i < segment.count; ++i) {
        double value = 0;
        for (std::size_t member = 0; member < members; ++member) {
          T element;
          std::memcpy(&element, inputs[member], sizeof(T));
          inputs[member] += sizeof(T);
          const double scaled = static_cast<double>(element) * operation.prescale;
          value = member == 0 ? scaled : combined(operation.reduce, value, scaled);
        }
        if (operation.reduce == ReduceOp::kAverage) value /= static_cast<double>(members_.size());
        const T result = static_cast<T>(value * operation.postscale);
        std::memcpy(segment.out + i * sizeof(T), &result, sizeof(T));
      }
    }
  }

  static double combined(ReduceOp op, double a, double b) {
    if (op == ReduceOp::kMin) return std::min(a, b);
    if (op == ReduceOp::kMax) return std::max(a, b);
    return op == ReduceOp::kProduct ? a * b : a + b;
  }

  FakeFabric& fabric_;
  const int group_;
  const std::vector<int> members_;
  const int rank_;
  const bool hangs_;
  const bool starves_;
  const std::function<void(int)> meddle_;
  const std::function<bool(int)> holds_;
  const bool moves_;
  backend::Capabilities capabilities_;
  std::deque<Queued> queue_;
  std::uint64_t next_ = 0;
  std::vector<backend::Completed> done_;
  Status aborted_ DISTRUN_GUARDED_BY(fabric_.mutex_);
};

inline std::unique_ptr<backend::Backend> FakeFabric::backend(int group, const std::vector<int>& members, int rank,
                                                             FakeBackendOptions options) {
  {
    const MutexLock lock(mutex_);
    members_[group] = members;
  }
  return std::make_unique<FakeBackend>(*this, group, members, rank, std::move(options));
}

}  // namespace distrun::test
