#include "runtime/backend/shm/shm_backend.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <numeric>
#include <utility>

#include "runtime/backend/kernels/copy.h"
#include "runtime/backend/kernels/kernels.h"
#include "runtime/base/clock.h"

namespace distrun::backend::shm {
namespace {

// Chunks packed before the first is unpacked: hides a peer's small delays, and keeps both in the second-level cache.
constexpr std::uint64_t kLag = 2;
// The engine has more to look at than one backend; a call moves at most this many chunks one stage further.
constexpr int kStepsPerCall = 16;

// Chunks below the first are always written through the cache, since latency counts there; chunks from the second on
// are judged apart from smaller ones.
constexpr std::size_t kStreamFrom = 4096;
constexpr std::size_t kLargeChunk = 64 << 10;

std::vector<int> others(const std::vector<int>& members, std::size_t self) {
  std::vector<int> peers = members;
  peers.erase(peers.begin() + static_cast<std::ptrdiff_t>(self));
  return peers;
}

kernels::Reduction reduction_of(const Operation& operation, std::size_t members) {
  return {.dtype = operation.dtype,
          .op = operation.reduce,
          .finish = kernels::finish_of(operation.reduce, operation.postscale, members)};
}

void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from) kernels::copy(to, from, bytes);
}

void copy(std::byte* to, const std::byte* from, std::size_t bytes, bool stream) {
  if (stream) {
    kernels::stream_copy(to, from, bytes);
  } else {
    copy(to, from, bytes);
  }
}

std::size_t output_elements(const Operation& operation, std::size_t self, std::size_t members) {
  const auto& counts = operation.counts;
  if (operation.kind == OpKind::kReducescatter) return counts[self];
  std::size_t total = 0;
  if (counts.empty()) {
    for (const Segment& segment : operation.segments) total += segment.count;
  } else {
    const bool alltoall = operation.kind == OpKind::kAlltoall;
    for (std::size_t i = 0; i < members; ++i) total += counts[alltoall ? i * members + self : i];
  }
  return total;
}

int choice_of(const Plan& plan, std::size_t unit) {
  const std::size_t bytes = std::min(plan.chunk_elements, plan.elements) * unit;
  if (plan.path == Path::kTiny || plan.path == Path::kNothing || bytes < kStreamFrom) return -1;
  return bytes < kLargeChunk ? 0 : 1;
}

}  // namespace

Capabilities shm_capabilities() {
  return {.ops = (1U << kNumOpKinds) - 1,
          .dtypes = (1U << kNumDTypes) - 1,
          .devices = 1U << static_cast<unsigned>(DeviceType::kCpu),
          .scatter_gather = true,
          .revocable = true,
          .polls_memory = true};
}

ShmBackend::ShmBackend(const ShmOptions& options)
    : link_(options.link),
      members_(options.members),
      self_(options.self),
      large_output_(options.large_output),
      crowded_(options.crowded),
      memory_(options.memory),
      window_(memory_.bytes, options.members.size(), options.slot_bytes),
      bells_(options.link, others(options.members, options.self)),
      ready_(window_, &MemberLines::ready, options.self),
      reduced_(window_, &MemberLines::reduced, options.self),
      done_(window_, &MemberLines::done, options.self),
      sources_(options.members.size(), nullptr) {}

Status ShmBackend::start(const Operation& operation, std::uint64_t token) {
  if (aborted_.requested()) return aborted_.why();
  if (operation.device.type != DeviceType::kCpu) {
    return {Errc::kUnsupported, "The backend shm works on CPU memory only; copy the tensor to the CPU first."};
  }
  const Plan plan = plan_of(operation, members_.size(), window_.slot_bytes(), crowded_);
  if (plan.path == Path::kTiny) {
    jobs_.emplace_back(operation, token, plan, next_tiny_++);
  } else {
    Job& job = jobs_.emplace_back(operation, token, plan, next_chunk_);
    next_chunk_ += plan.chunks;
    job.large_output = output_elements(operation, self_, members_.size()) * job.unit >= large_output_;
    job.stores = choice_of(plan, job.unit);
    if (job.stores >= 0 && job.reduces()) {
      std::uint64_t& next = next_tried_[static_cast<std::size_t>(job.stores)];
      job.first_tried = next;
      next += plan.chunks;
    }
  }
  return {};
}

bool ShmBackend::progress() {
  if (aborted_.requested()) return fail_all();
  bool moved = false;
  // After an abort the next call completes the operations.
  for (int steps = 0; steps < kStepsPerCall && !jobs_.empty() && !aborted_.requested() && step(); ++steps) {
    moved = true;
  }
  return moved;
}

void ShmBackend::completed(std::vector<Completed>& out) {
  out.insert(out.end(), std::make_move_iterator(finished_.begin()), std::make_move_iterator(finished_.end()));
  finished_.clear();
}

int ShmBackend::lost_peer() const {
  const auto lost = link_->lost();
  return lost && std::find(members_.begin(), members_.end(), *lost) != members_.end() ? *lost : -1;
}

bool ShmBackend::fail_all() {
  const bool any = !jobs_.empty();
  for (const Job& job : jobs_) finished_.push_back({.token = job.token, .status = aborted_.why()});
  jobs_.clear();
  return any;
}

// What others wait for comes first; unpacking waits until the lag is reached, unless there is nothing else to do.
bool ShmBackend::step() {
  if (retire()) return true;
  const bool lagging = chunks_packed_ - chunks_unpacked_ >= kLag;
  if (reduce_next()) return true;
  if (lagging && unpack_next()) return true;
  if (pack_next()) return true;
  return !lagging && unpack_next();
}

bool ShmBackend::retire() {
  const Job& front = jobs_.front();
  if (front.unpacked < front.plan.chunks) return false;
  finished_.push_back({.token = front.token, .status = {}});
  jobs_.pop_front();
  if (pack_job_ > 0) --pack_job_;
  if (reduce_job_ > 0) --reduce_job_;
  return true;
}

bool ShmBackend::pack_next() {
  while (pack_job_ < jobs_.size() && jobs_[pack_job_].packed == jobs_[pack_job_].plan.chunks) ++pack_job_;
  if (pack_job_ == jobs_.size()) return false;
  Job& job = jobs_[pack_job_];
  if (job.plan.path == Path::kTiny) return pack_tiny(job);

  const bool broadcast = job.plan.path == Path::kBroadcast;
  if (broadcast && job.operation.root != static_cast<int>(self_)) {  // contributes nothing
    job.packed = job.plan.chunks;
    chunks_packed_ += job.plan.chunks;
    return true;
  }
  const std::uint64_t chunk = job.first + job.packed;
  if (job.plan.path == Path::kChain) {
    if (!chain_ready(chunk)) return false;
    add_to_chain(job, chunk);
    ++job.packed;
    ++chunks_packed_;
    return true;
  }
  if (chunk >= kSlots && !done_.all_reached(chunk - kSlots + 1)) return false;
  std::byte* slot = window_.slot(self_, chunk);
  const bool stream = streams(job, job.packed);
  if (job.plan.path == Path::kAllgather) {
    pack_block(job, slot, stream);
  } else if (job.plan.path == Path::kScatter || job.plan.path == Path::kExchange) {
    pack_pieces(job, slot, stream);
  } else {
    const std::size_t bytes = job.elements_of(job.packed) * job.unit;
    timed(job, job.packed, bytes, [&] { pack_chunk(job, slot, stream); });
  }
  ++job.packed;
  ++chunks_packed_;
  if (broadcast) {
    ready_.publish_and_ring(chunk + 1, bells_);
  } else {
    ready_.publish(chunk + 1, bells_);
  }
  return true;
}

bool ShmBackend::reduce_next() {
  while (reduce_job_ < jobs_.size() && jobs_[reduce_job_].reduced == jobs_[reduce_job_].plan.chunks) ++reduce_job_;
  if (reduce_job_ == jobs_.size()) return false;
  Job& job = jobs_[reduce_job_];
  if (job.plan.path != Path::kTwoPhase) {
    job.reduced = job.plan.chunks;
    return true;
  }
  const std::uint64_t chunk = job.first + job.reduced;
  if (!ready_.all_reached(chunk + 1)) return false;
  timed(job, job.reduced, 0, [&] { reduce_part(job, streams(job, job.reduced)); });
  ++job.reduced;
  reduced_.publish(chunk + 1, bells_);
  return true;
}

bool ShmBackend::unpack_next() {
  Job& job = jobs_.front();
  if (job.plan.path == Path::kTiny) return unpack_tiny(job);
  const std::uint64_t chunk = job.first + job.unpacked;
  switch (job.plan.path) {
    case Path::kOneShot:
      if (!ready_.all_reached(chunk + 1)) return false;
      timed(job, job.unpacked, 0, [&] { unpack_one_shot(job); });
      break;
    case Path::kChain:
      if (!ready_.reached(members_.size() - 1, chunk + 1)) return false;
      unpack_chain(job);
      break;
    case Path::kTwoPhase:
      if (!reduced_.all_reached(chunk + 1)) return false;
      timed(job, job.unpacked, 0, [&] { unpack_two_phase(job); });
      break;
    case Path::kBroadcast:
      if (!ready_.reached(static_cast<std::size_t>(job.operation.root), chunk + 1)) return false;
      unpack_broadcast(job);
      break;
    case Path::kAllgather:
      if (!ready_.all_reached(chunk + 1)) return false;
      unpack_blocks(job);
      break;
    case Path::kScatter:
      if (!ready_.all_reached(chunk + 1)) return false;
      reduce_own_part(job);
      break;
    case Path::kExchange:
      if (!ready_.all_reached(chunk + 1)) return false;
      unpack_exchange(job);
      break;
    case Path::kTiny:
    case Path::kNothing:
      return false;
  }
  if (job.reduces() && job.stores >= 0) {
    choices_[static_cast<std::size_t>(job.stores)].finished(job.first_tried + job.unpacked);
  }
  ++job.unpacked;
  ++chunks_unpacked_;
  done_.publish(chunk + 1, bells_);
  return true;
}

// The line that operation t uses was last used by t - 2. This member starts t only after it has read t - 1 from all
// members, and each of them published t - 1 only after it had read t - 2: nobody reads the line any more.
bool ShmBackend::pack_tiny(Job& job) {
  if (tiny_finished_ + 1 != job.first) return false;
  std::byte* payload = window_.tiny(self_, job.first).payload;
  if (job.operation.kind == OpKind::kAllgather) {
    pack_block(job, payload, false);
  } else {
    pack_elements(job, job.plan.elements, payload, false);
  }
  job.packed = 1;
  publish_tiny(job.first);
  return true;
}

void ShmBackend::publish_tiny(std::uint64_t number) {
  std::atomic_ref<std::uint64_t>(window_.tiny(self_, number).number).store(number, std::memory_order_seq_cst);
  if (tiny_arrived(number)) bells_.ring();  // the last one in; as in Tally::publish
}

bool ShmBackend::tiny_arrived(std::uint64_t number) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const std::atomic_ref<std::uint64_t> published(window_.tiny(i, number).number);
    if (published.load(std::memory_order_seq_cst) < number) return false;
  }
  return true;
}

bool ShmBackend::unpack_tiny(Job& job) {
  if (job.packed == 0 || !tiny_arrived(job.first)) return false;
  if (job.operation.kind == OpKind::kAllgather) {
    for (std::size_t i = 0; i < members_.size(); ++i) sources_[i] = window_.tiny(i, job.first).payload;
    collect_blocks(job, 0, job.plan.elements);
  } else {
    const kernels::Reduction what = reduction_of(job.operation, members_.size());
    std::size_t at = 0;
    job.unpack_at.advance(job.plan.elements, [&](const Segment& segment, std::size_t offset, std::size_t count) {
      for (std::size_t i = 0; i < members_.size(); ++i) sources_[i] = window_.tiny(i, job.first).payload + at;
      kernels::reduce(what, sources_, segment.out + offset * job.unit, count);
      at += count * job.unit;
    });
  }
  job.unpacked = 1;
  tiny_finished_ = job.first;
  return true;
}

bool ShmBackend::streams(const Job& job, std::uint64_t k) const {
  if (job.stores < 0) return false;
  const StoreChoice& choice = choices_[static_cast<std::size_t>(job.stores)];
  return job.reduces() ? choice.streams(job.first_tried + k) : choice.streams();
}

template <class Work>
void ShmBackend::timed(const Job& job, std::uint64_t k, std::size_t bytes, Work&& work) {
  if (job.stores < 0 || !job.reduces() || !StoreChoice::in_trial(job.first_tried + k)) {
    work();
    return;
  }
  const TimePoint start = Clock::now();
  work();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  choices_[static_cast<std::size_t>(job.stores)].add(job.first_tried + k, bytes, seconds);
}

// Two-phase: nobody else reads the own part, and reduce_part() takes it from the input.
void ShmBackend::pack_chunk(Job& job, std::byte* slot, bool stream) {
  const std::size_t elements = job.elements_of(job.packed);
  if (job.plan.path != Path::kTwoPhase || job.operation.prescale != 1.0) {
    pack_elements(job, elements, slot, stream);
    return;
  }
  const Range own = part_of(elements, job.unit, self_, members_.size());
  pack_elements(job, own.begin, slot, stream);
  job.pack_at.skip(own.count());
  pack_elements(job, elements - own.end, slot + own.end * job.unit, stream);
}

void ShmBackend::pack_elements(Job& job, std::size_t count, std::byte* to, bool stream) {
  const DType dtype = job.operation.dtype;
  const double factor = job.operation.kind == OpKind::kAllreduce ? job.operation.prescale : 1.0;
  job.pack_at.advance(count, [&](const Segment& segment, std::size_t offset, std::size_t here) {
    const std::byte* from = segment.in + offset * job.unit;
    const std::size_t step = stream ? block_.size() / job.unit : here;
    for (std::size_t at = 0; factor != 1.0 && at < here; at += step) {
      const std::size_t now = std::min(step, here - at);
      std::byte* scaled = stream ? block_.data() : to;
      kernels::scale(dtype, factor, from + at * job.unit, scaled, now);
      if (stream) kernels::stream_copy(to + at * job.unit, scaled, now * job.unit);
    }
    if (factor == 1.0) copy(to, from, here * job.unit, stream);
    to += here * job.unit;
  });
}

// The part of the own block that belongs to the chunk; blocks shorter than the longest end earlier.
void ShmBackend::pack_block(const Job& job, std::byte* to, bool stream) {
  const Segment& segment = job.operation.segments[0];
  const std::size_t from = std::min(static_cast<std::size_t>(job.packed) * job.plan.chunk_elements, segment.count);
  const std::size_t limit = job.plan.path == Path::kTiny ? segment.count : job.plan.chunk_elements;
  copy(to, segment.in + from * job.unit, std::min(segment.count - from, limit) * job.unit, stream);
}

void ShmBackend::point_sources(std::uint64_t chunk, std::size_t offset) {
  for (std::size_t i = 0; i < sources_.size(); ++i) sources_[i] = window_.slot(i, chunk) + offset;
}

// The own contribution is read where it came from, which is still in the cache, unless it was rounded on its way.
void ShmBackend::unpack_one_shot(Job& job) {
  const kernels::Reduction what = reduction_of(job.operation, members_.size());
  const std::size_t elements = job.elements_of(job.unpacked);
  std::size_t at = 0;
  job.unpack_at.advance(elements, [&](const Segment& segment, std::size_t offset, std::size_t count) {
    point_sources(job.first + job.unpacked, at);
    if (job.operation.prescale == 1.0) sources_[self_] = segment.in + offset * job.unit;
    std::byte* out = segment.out + offset * job.unit;
    kernels::reduce(what, sources_, out, count, job.streams_to(segment));
    at += count * job.unit;
  });
}

// From all members' contributions into the own output, and from there into the own slot for the others. Nobody else
// touches this part of the own slot before it is published.
void ShmBackend::reduce_part(Job& job, bool stream) {
  const std::uint64_t chunk = job.first + job.reduced;
  const std::size_t elements = job.elements_of(job.reduced);
  const Range own = part_of(elements, job.unit, self_, members_.size());
  const kernels::Reduction what = reduction_of(job.operation, members_.size());
  std::size_t at = own.begin * job.unit;
  job.reduce_at.skip(own.begin);
  job.reduce_at.advance(own.count(), [&](const Segment& segment, std::size_t offset, std::size_t count) {
    point_sources(chunk, at);
    if (job.operation.prescale == 1.0) sources_[self_] = segment.in + offset * job.unit;
    std::byte* result = segment.out + offset * job.unit;
    kernels::reduce(what, sources_, result, count);
    copy(window_.slot(self_, chunk) + at, result, count * job.unit, stream);
    at += count * job.unit;
  });
  job.reduce_at.skip(elements - own.end);
}

// The first member starts a chunk when its slot is free, each other one when the one before it has added its own.
bool ShmBackend::chain_ready(std::uint64_t chunk) {
  if (self_ > 0) return ready_.reached(self_ - 1, chunk + 1);
  return chunk < kSlots || done_.all_reached(chunk - kSlots + 1);
}

void ShmBackend::add_to_chain(Job& job, std::uint64_t chunk) {
  const bool last = self_ + 1 == members_.size();
  kernels::Reduction what = reduction_of(job.operation, members_.size());
  if (!last) what.finish = {};
  std::byte* slot = window_.slot(0, chunk);
  job.pack_at.advance(job.elements_of(job.packed), [&](const Segment& segment, std::size_t offset, std::size_t count) {
    const std::byte* own = segment.in + offset * job.unit;
    const std::array<const std::byte*, 2> sources = {slot, own};
    if (self_ == 0) {
      copy(slot, own, count * job.unit);
    } else {
      kernels::reduce(what, sources, slot, count);
    }
    slot += count * job.unit;
  });
  if (last) {
    ready_.publish_and_ring(chunk + 1, bells_);
  } else {
    ready_.publish_to(chunk + 1, bells_, members_[self_ + 1]);
  }
}

void ShmBackend::unpack_chain(Job& job) {
  const std::byte* from = window_.slot(0, job.first + job.unpacked);
  job.unpack_at.advance(job.elements_of(job.unpacked),
                        [&](const Segment& segment, std::size_t offset, std::size_t count) {
                          copy(segment.out + offset * job.unit, from, count * job.unit, job.streams_to(segment));
                          from += count * job.unit;
                        });
}

void ShmBackend::unpack_two_phase(Job& job) {
  const std::uint64_t chunk = job.first + job.unpacked;
  const std::size_t elements = job.elements_of(job.unpacked);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Range part = part_of(elements, job.unit, i, members_.size());
    if (i == self_) {
      job.unpack_at.skip(part.count());  // there since reduce_part()
      continue;
    }
    const std::byte* from = window_.slot(i, chunk) + part.begin * job.unit;
    job.unpack_at.advance(part.count(), [&](const Segment& segment, std::size_t offset, std::size_t count) {
      copy(segment.out + offset * job.unit, from, count * job.unit, job.streams_to(segment));
      from += count * job.unit;
    });
  }
}

void ShmBackend::unpack_broadcast(Job& job) {
  const bool root = job.operation.root == static_cast<int>(self_);
  const std::byte* from = window_.slot(static_cast<std::size_t>(job.operation.root), job.first + job.unpacked);
  job.unpack_at.advance(job.elements_of(job.unpacked),
                        [&](const Segment& segment, std::size_t offset, std::size_t count) {
                          const bool in_place = root && segment.in == segment.out;
                          if (!in_place)
                            copy(segment.out + offset * job.unit, from, count * job.unit, job.large_output);
                          from += count * job.unit;
                        });
}

void ShmBackend::unpack_blocks(const Job& job) {
  point_sources(job.first + job.unpacked, 0);
  collect_blocks(job, static_cast<std::size_t>(job.unpacked) * job.plan.chunk_elements, job.plan.chunk_elements);
}

// Elements [from, from + limit) of every member's block, from sources_ into the output. The own block comes from the
// input; it may be there already.
void ShmBackend::collect_blocks(const Job& job, std::size_t from, std::size_t limit) {
  const Segment& segment = job.operation.segments[0];
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const std::size_t count = job.operation.counts[i];
    if (from >= count) continue;
    const std::byte* source = i == self_ ? segment.in + from * job.unit : sources_[i];
    std::byte* to = segment.out + (job.offsets[i] + from) * job.unit;
    copy(to, source, std::min(count - from, limit) * job.unit, job.large_output && to != source);
  }
}

// Each other member's piece at its place in the slot; the own one is read from the input.
void ShmBackend::pack_pieces(const Job& job, std::byte* slot, bool stream) {
  const bool scatter = job.plan.path == Path::kScatter;
  const std::size_t stride = job.plan.chunk_elements * job.unit;
  const std::byte* block = job.operation.segments[0].in;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const std::size_t count = job.operation.counts[scatter ? i : self_ * members_.size() + i];
    const Range piece = job.piece_of(count, job.packed);
    const std::byte* from = block + piece.begin * job.unit;
    std::byte* to = slot + i * stride;
    if (scatter && job.operation.prescale != 1.0) {
      kernels::scale(job.operation.dtype, job.operation.prescale, from, to, piece.count());
    } else if (i != self_) {
      copy(to, from, piece.count() * job.unit, stream);
    }
    block += count * job.unit;
  }
}

void ShmBackend::reduce_own_part(const Job& job) {
  const Segment& segment = job.operation.segments[0];
  const Range piece = job.piece_of(job.operation.counts[self_], job.unpacked);
  if (piece.count() == 0) return;
  point_sources(job.first + job.unpacked, self_ * job.plan.chunk_elements * job.unit);
  if (job.operation.prescale == 1.0) sources_[self_] = segment.in + (job.offsets[self_] + piece.begin) * job.unit;
  kernels::reduce(reduction_of(job.operation, members_.size()), sources_, segment.out + piece.begin * job.unit,
                  piece.count(), job.streams_to(segment));
}

void ShmBackend::unpack_exchange(const Job& job) {
  const auto& counts = job.operation.counts;
  const Segment& segment = job.operation.segments[0];
  const std::size_t members = members_.size();
  const std::size_t own_row = self_ * members;
  const auto own_at = std::accumulate(counts.begin() + static_cast<std::ptrdiff_t>(own_row),
                                      counts.begin() + static_cast<std::ptrdiff_t>(own_row + self_), std::size_t{0});
  point_sources(job.first + job.unpacked, self_ * job.plan.chunk_elements * job.unit);
  std::byte* block = segment.out;
  for (std::size_t i = 0; i < members; ++i) {
    const std::size_t count = counts[i * members + self_];
    const Range piece = job.piece_of(count, job.unpacked);
    const std::byte* from = i == self_ ? segment.in + (own_at + piece.begin) * job.unit : sources_[i];
    copy(block + piece.begin * job.unit, from, piece.count() * job.unit, job.large_output);
    block += count * job.unit;
  }
}

}  // namespace distrun::backend::shm
