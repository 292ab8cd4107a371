#include "runtime/backend/hierarchical/pipeline.h"

#include <algorithm>
#include <utility>

#include "runtime/backend/hierarchical/device_order.h"
#include "runtime/backend/kernels/kernels.h"

namespace distrun::backend::hierarchical {
namespace {

constexpr std::size_t kScatter = 0;
constexpr std::size_t kBetween = 1;
constexpr std::size_t kGather = 2;
constexpr std::size_t kStages = 3;

// Pieces in flight together: enough to keep three stages busy. Before its next piece, a member waits only for earlier
// pieces. All members do so, and therefore there is no deadlock.
constexpr std::size_t kAhead = 8;

ReduceOp without_division(ReduceOp op) { return op == ReduceOp::kAverage ? ReduceOp::kSum : op; }

}  // namespace

Status Pipeline::start(const Operation& operation, std::uint64_t token) {
  if (stages_.on_device) DISTRUN_RETURN_IF_ERROR(reserve(operation.device));
  auto whole = std::make_unique<Allreduce>();
  whole->operation = operation;
  whole->token = token;
  const std::size_t most = piece_elements(stages_.piece_bytes, size_of(operation.dtype), layout_.lanes);
  for (const Segment& segment : operation.segments) whole->pieces += (segment.count + most - 1) / most;
  allreduces_.push_back(std::move(whole));
  return {};
}

// Allocates all parts at once, before the first operation. Allocating memory that a device can reach waits for the
// device, whose work may wait for peers that wait for this rank. The executor starts such an operation alone.
Status Pipeline::reserve(Device device) {
  for (; reserved_ < kAhead; ++reserved_) {
    auto part = make_part(device);
    if (!part.ok()) return part.status().with_context("memory for pieces of tensors on their way between hosts");
    spare_.push_back(*std::move(part));
  }
  return {};
}

// Cuts the next piece from the first operation that has elements left.
bool Pipeline::take_piece() {
  if (pieces_.size() >= kAhead || !failure_.ok()) return false;
  const auto next = std::ranges::find_if(allreduces_, [](const auto& whole) { return whole->taken < whole->pieces; });
  if (next == allreduces_.end()) return false;
  Allreduce& whole = **next;
  while (whole.begin == whole.operation.segments[whole.segment].count) {
    ++whole.segment;
    whole.begin = 0;
  }
  const Segment& segment = whole.operation.segments[whole.segment];
  const std::size_t bytes = size_of(whole.operation.dtype);
  auto part = take_part(whole.operation.device);
  if (!part.ok()) {
    fail(part.status().with_context("a piece of a tensor on its way between hosts"));
    return false;
  }
  auto piece = std::make_unique<Piece>();
  piece->whole = &whole;
  piece->number = next_piece_++;
  piece->in = segment.in + whole.begin * bytes;
  piece->out = segment.out + whole.begin * bytes;
  piece->count = std::min(piece_elements(stages_.piece_bytes, bytes, layout_.lanes), segment.count - whole.begin);
  piece->parts = parts_of(layout_, piece->count, bytes);
  piece->part = *std::move(part);
  if (whole.taken++ == 0) whole.first = piece->number;
  whole.begin += piece->count;
  pieces_.push_back(std::move(piece));
  return true;
}

Result<Memory> Pipeline::make_part(Device device) {
  return stages_.scatter->stage(device, layout_.carries() ? part_bytes(stages_.piece_bytes, layout_.lanes) : 0);
}

Result<Memory> Pipeline::take_part(Device device) {
  if (spare_.empty()) return make_part(device);
  Memory part = std::move(spare_.back());
  spare_.pop_back();
  return part;
}

bool Pipeline::progress() {
  bool moved = false;
  while (take_piece()) moved = true;
  for (const auto& piece : pieces_) moved = advance(*piece) || moved;
  retire();
  return moved;
}

// Moves the piece into its next stage, if it is this piece's turn there.
bool Pipeline::advance(Piece& piece) {
  if (!piece.ready || !failure_.ok() || piece.stage == kStages) return false;
  if (piece.stage == kBetween && stages_.between == nullptr) piece.stage = kGather;
  if (next_in_[piece.stage] != piece.number || !may_enter(piece)) return false;
  ++next_in_[piece.stage];
  piece.ready = false;
  ++piece.whole->in_stages;
  if (const Status status = enter(piece); !status.ok()) {
    --piece.whole->in_stages;
    fail(status);
  }
  return true;
}

bool Pipeline::may_enter(const Piece& piece) const {
  if (!stages_.on_device || piece.stage == kBetween) return true;
  const Allreduce& whole = *piece.whole;
  const auto given = [&](std::size_t stage) { return next_in_[stage] - std::min(next_in_[stage], whole.first); };
  const std::size_t place = piece.number - whole.first;
  if (piece.stage == kGather) return may_gather(place, whole.pieces, given(kScatter));
  // The last piece of the previous operation must also have entered the gather stage.
  return next_in_[kGather] >= whole.first && may_scatter(place, given(kGather));
}

Status Pipeline::enter(Piece& piece) {
  const Operation& operation = piece.whole->operation;
  Operation step{.dtype = operation.dtype, .device = operation.device, .reduce = without_division(operation.reduce)};
  const std::size_t own = piece.parts[layout_.local];
  if (piece.stage == kScatter) {
    step.kind = OpKind::kReducescatter;
    step.prescale = operation.prescale;
    step.marks = operation.marks;
    piece.segment = {.in = piece.in, .out = piece.part.get(), .count = piece.count};
  } else if (piece.stage == kBetween) {
    step.kind = OpKind::kAllreduce;
    step.device = {};
    piece.segment = {.in = piece.part.get(), .out = piece.part.get(), .count = own};
  } else {
    step.kind = OpKind::kAllgather;
    piece.segment = {.in = piece.part.get(), .out = piece.out, .count = own};
  }
  step.segments = {&piece.segment, 1};
  if (step.kind != OpKind::kAllreduce) step.counts = piece.parts;
  Backend* const stages[kStages] = {stages_.scatter, stages_.between, stages_.gather};
  return stages[piece.stage]->start(step, piece.number);
}

void Pipeline::ended(std::size_t number, const Completed& what) {
  const auto found = std::ranges::find_if(pieces_, [&](const auto& piece) { return piece->number == what.token; });
  DISTRUN_CHECK(found != pieces_.end() && (*found)->stage == number, "a stage completes what is in it");
  Piece& piece = **found;
  --piece.whole->in_stages;
  if (!what.status.ok()) return fail(what.status);
  if (number == kBetween) leave_scatter(piece);
  if (number == kGather) ++piece.whole->done;
  ++piece.stage;
  piece.ready = true;
}

// The part now has the sum over all members, so an average divides by the number of all members.
void Pipeline::leave_scatter(Piece& piece) const {
  const Operation& operation = piece.whole->operation;
  const kernels::Finish finish = kernels::finish_of(operation.reduce, operation.postscale, members_);
  if (finish.divisor == 1 && finish.factor == 1.0) return;
  const kernels::Reduction divide{.dtype = operation.dtype, .op = ReduceOp::kSum, .finish = finish};
  const std::array<const std::byte*, 1> source = {piece.part.get()};
  kernels::reduce(divide, source, piece.part.get(), piece.parts[layout_.local]);
}

// Replaces the codes that fail only a tensor. After any failure, nothing goes through the pipeline any more.
void Pipeline::fail(const Status& why) {
  if (!failure_.ok()) return;
  ErrorInfo info = why.info();
  if (info.code == Errc::kUnsupported || info.code == Errc::kInvalidArgument) info.code = Errc::kSystem;
  failure_ = Status(std::move(info));
}

void Pipeline::retire() {
  while (!pieces_.empty() && pieces_.front()->stage == kStages) {
    spare_.push_back(std::move(pieces_.front()->part));
    pieces_.pop_front();
  }
  while (!allreduces_.empty()) {
    const Allreduce& whole = *allreduces_.front();
    const bool done = whole.done == whole.pieces;
    if (whole.in_stages > 0 || (!done && failure_.ok())) return;
    finished_.push_back({.token = whole.token, .status = done ? Status() : failure_});
    if (!done) std::erase_if(pieces_, [&](const auto& piece) { return piece->whole == &whole; });
    allreduces_.pop_front();
  }
}

void Pipeline::completed(std::vector<Completed>& out) {
  out.insert(out.end(), std::make_move_iterator(finished_.begin()), std::make_move_iterator(finished_.end()));
  finished_.clear();
}

}  // namespace distrun::backend::hierarchical
