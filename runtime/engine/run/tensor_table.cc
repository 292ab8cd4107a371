#include "runtime/engine/run/tensor_table.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/engine/readiness/parts.h"
#include "runtime/engine/run/overlap.h"

namespace distrun::engine {
namespace {

// Limits that bound one message with tensor names (at most 16 MiB, see net/control/control_plane.h).
constexpr std::size_t kMaxNameBytes = 1024;
constexpr std::size_t kMaxGroup = 4096;
constexpr std::size_t kMaxSplits = 1 << 20;

Status refuse(const Submission& submission, const std::string& what) {
  return Status(ErrorInfo{.code = Errc::kInvalidArgument,
                          .message = "tensor '" + submission.name + "': " + what,
                          .tensor = submission.name});
}

Status check_shape(const Submission& submission) {
  if (submission.shape.size() > kMaxDimensions) {
    return refuse(submission, "a shape has at most " + std::to_string(kMaxDimensions) + " dimensions, not " +
                                  std::to_string(submission.shape.size()));
  }
  if (!fits_in_memory(submission.shape, submission.dtype)) {
    return refuse(submission,
                  "shape " + to_string(submission.shape) +
                      " has a negative dimension or is larger than memory can be. Pass the shape of the tensor");
  }
  return {};
}

Status check_reduction(const Submission& submission) {
  if (!traits_of(submission.kind).reduces) return {};
  const DTypeFamily family = traits_of(submission.dtype).family;
  const std::string dtype(name_of(submission.dtype));
  if (family == DTypeFamily::kMovedOnly) {
    const std::string target =
        submission.dtype == DType::kC32 ? " to complex64" : ", for instance to float16 or float32";
    return refuse(submission, dtype +
                                  " can be moved (broadcast, allgather, alltoall) and not reduced. Convert the "
                                  "tensor" +
                                  target);
  }
  if (!can_reduce(submission.dtype, submission.reduce)) {
    return refuse(submission, dtype + " has no " + std::string(name_of(submission.reduce)) +
                                  ", because complex numbers have no order. Use sum, average or product, or pass the "
                                  "real and imaginary parts (view_as_real)");
  }
  if (family == DTypeFamily::kComplex && submission.reduce == ReduceOp::kProduct &&
      submission.device.type != DeviceType::kCpu) {
    return refuse(submission, "a product of " + dtype + " needs CPU memory. Copy the tensor to the CPU first");
  }
  return {};
}

// Bytes of the output memory that the caller passes; 0 if the engine makes the output.
std::size_t output_bytes(const Submission& submission, std::size_t members, std::size_t index) {
  const std::size_t bytes = static_cast<std::size_t>(num_elements(submission.shape)) * size_of(submission.dtype);
  const OpOutput output = traits_of(submission.kind).output;
  if (output == OpOutput::kShare) {
    // All ranks together refuse a 0-d one.
    const std::int64_t rows = submission.shape.empty() ? 0 : submission.shape.front();
    return rows == 0
               ? 0
               : bytes / static_cast<std::size_t>(rows) * static_cast<std::size_t>(share_of(rows, members, index));
  }
  return output == OpOutput::kAsInput ? bytes : 0;
}

Status check_memory(const Submission& submission, std::size_t members, std::size_t index) {
  if (!moves_data(submission.kind) || num_elements(submission.shape) == 0) return {};
  if (submission.input == nullptr)
    return refuse(submission, "the input is a null pointer. Pass the memory of the tensor");
  const std::size_t out_bytes = output_bytes(submission, members, index);
  if (out_bytes == 0) return {};
  const bool in_place_goes = traits_of(submission.kind).output == OpOutput::kAsInput;
  if (submission.output == nullptr) {
    return refuse(submission, in_place_goes
                                  ? "the output is a null pointer. Pass the memory of the output, which may be "
                                    "that of the input"
                                  : "the output is a null pointer. Pass memory for the share of this rank");
  }
  const auto* in = static_cast<const std::byte*>(submission.input);
  const auto* out = static_cast<const std::byte*>(submission.output);
  const std::size_t bytes = static_cast<std::size_t>(num_elements(submission.shape)) * size_of(submission.dtype);
  if ((in != out || !in_place_goes) && in < out + out_bytes && out < in + bytes) {
    return refuse(submission, in_place_goes
                                  ? "input and output overlap. Use the same memory for both, or separate memory"
                                  : "input and output overlap. Use separate memory for the share");
  }
  return {};
}

MemoryUse use_of(const Submission& submission, std::size_t members, std::size_t index) {
  if (!moves_data(submission.kind)) return {};
  const std::size_t bytes = static_cast<std::size_t>(num_elements(submission.shape)) * size_of(submission.dtype);
  const std::optional<int> root = traits_of(submission.kind).has_root ? std::optional(submission.root) : std::nullopt;
  return {.input = static_cast<const std::byte*>(submission.input),
          .input_bytes = bytes,
          .output = static_cast<const std::byte*>(submission.output),
          .output_bytes = output_bytes(submission, members, index),
          .root = root};
}

// Fields that the operation does not use keep their defaults.
Signature signature_of(const Submission& submission) {
  Signature signature{.kind = submission.kind};
  if (!moves_data(submission.kind)) return signature;
  signature.dtype = submission.dtype;
  signature.device = submission.device.type;
  signature.shape = submission.shape;
  const OpTraits& traits = traits_of(submission.kind);
  if (traits.reduces) {
    signature.reduce = submission.reduce;
    signature.prescale = submission.prescale;
    signature.postscale = submission.postscale;
  }
  if (traits.has_root) signature.root = submission.root;
  if (traits.has_splits) signature.splits = submission.splits;
  return signature;
}

GroupTag tag_of(std::vector<std::string_view> names) {
  std::sort(names.begin(), names.end());
  GroupTag tag{.digest = 0xCBF29CE484222325ULL, .size = static_cast<std::uint32_t>(names.size())};
  tag.first = names.front();
  for (const std::string_view name : names) {
    for (const char c : name) tag.digest = (tag.digest ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;  // FNV-1a
    tag.digest = (tag.digest ^ 0xFFU) * 0x100000001B3ULL;
  }
  return tag;
}

// Keyed by process set and local group number, which is unique within one call. A group of one is no group.
Result<std::map<std::pair<int, int>, GroupTag>> tags_of(std::span<const Submission> submissions) {
  std::map<std::pair<int, int>, std::vector<std::string_view>> names;
  for (const Submission& one : submissions) {
    if (one.group >= 0) names[{one.process_set, one.group}].push_back(one.name);
  }
  std::map<std::pair<int, int>, GroupTag> tags;
  for (auto& [group, list] : names) {
    if (list.size() > kMaxGroup) {
      return Status(Errc::kInvalidArgument, "group " + std::to_string(group.second) + " has " +
                                                std::to_string(list.size()) + " tensors, and at most " +
                                                std::to_string(kMaxGroup) + " can run together");
    }
    if (list.size() > 1) tags[group] = tag_of(std::move(list));
  }
  return tags;
}

}  // namespace

Status TensorTable::check_set(const Submission& submission) const {
  const auto set = sets_.find(submission.process_set);
  if (set == sets_.end()) {
    return refuse(submission, "process set " + std::to_string(submission.process_set) +
                                  " does not exist. Add it on all ranks first");
  }
  const auto& members = set->second;
  const auto own = std::find(members.begin(), members.end(), rank_);
  if (own == members.end()) {
    return refuse(submission, "rank " + std::to_string(rank_) + " is not a member of process set " +
                                  std::to_string(submission.process_set) + ", and only its members may submit to it");
  }
  if (joining_.contains(submission.process_set) && submission.kind != OpKind::kJoin) {
    return refuse(submission, "rank " + std::to_string(rank_) + " has joined process set " +
                                  std::to_string(submission.process_set) +
                                  ". Wait until join() returns before you submit to it again");
  }
  return check_memory(submission, members.size(), static_cast<std::size_t>(own - members.begin()));
}

// A communicator between GPUs has one GPU of each rank. The decision which tensors run together is the same for all
// ranks, so a rank cannot use several GPUs in one set.
Status TensorTable::check_device(const Submission& submission) const {
  if (submission.device.type != DeviceType::kCuda) return {};
  const auto found = gpus_.find(submission.process_set);
  if (found == gpus_.end() || found->second == submission.device.index) return {};
  return refuse(
      submission,
      "it is on cuda:" + std::to_string(submission.device.index) + ", and rank " + std::to_string(rank_) +
          "'s tensors of process set " + std::to_string(submission.process_set) +
          " are on cuda:" + std::to_string(found->second) +
          ". Use one GPU per rank and process set. For another GPU, make another process set of the same ranks: "
          "add_process_set(ranks, members_only=True), in C distrun_process_set_add_by_members");
}

Status TensorTable::check(const Submission& submission) const {
  if (submission.name.empty() || submission.name.size() > kMaxNameBytes) {
    return refuse(submission, "a name has 1 to " + std::to_string(kMaxNameBytes) + " bytes");
  }
  if (submission.kind == OpKind::kJoin && submission.name != kJoinName) {
    return refuse(submission, "the name of a join must be '" + std::string(kJoinName) + "'");
  }
  if (submission.kind != OpKind::kJoin && submission.name == kJoinName) {
    return refuse(submission, "this name is reserved for join(). Choose another one");
  }
  if (submission.splits.size() > kMaxSplits) return refuse(submission, "it has more splits than a job can have ranks");
  DISTRUN_RETURN_IF_ERROR(check_shape(submission));
  DISTRUN_RETURN_IF_ERROR(check_reduction(submission));
  DISTRUN_RETURN_IF_ERROR(check_set(submission));
  DISTRUN_RETURN_IF_ERROR(check_device(submission));
  if (in_flight_.contains(TensorKey{.set = submission.process_set, .name = submission.name})) {
    return Status(ErrorInfo{.code = Errc::kDuplicateName,
                            .message = "tensor '" + submission.name + "' is already in flight on rank " +
                                       std::to_string(rank_) +
                                       ". Wait for it before you submit this name again, or use another name",
                            .tensor = submission.name,
                            .ranks = {rank_}});
  }
  return {};
}

// The sets exist, and this rank is a member: check() has found that.
std::vector<MemoryUse> TensorTable::uses_of(const std::vector<TensorPtr>& tensors) const {
  std::vector<MemoryUse> uses;
  uses.reserve(tensors.size());
  for (const TensorPtr& tensor : tensors) {
    const auto& members = sets_.at(tensor->key().set);
    const auto own = std::find(members.begin(), members.end(), rank_);
    uses.push_back(use_of(tensor->submission(), members.size(), static_cast<std::size_t>(own - members.begin())));
  }
  return uses;
}

// Refuses memory that another tensor of the call, or one in flight, uses. Otherwise the memory is in flight too.
Status TensorTable::enter_memory(const std::vector<TensorPtr>& tensors) {
  const auto on_cpu = [&](std::size_t i) { return tensors[i]->submission().device.type == DeviceType::kCpu; };
  if (tensors.size() == 1 && !on_cpu(0)) return {};
  const std::vector<MemoryUse> uses = uses_of(tensors);
  const auto overlaps = [](const Tensor& tensor, const Tensor& other, const std::string& cure) {
    return refuse(tensor.submission(),
                  "its memory overlaps that of tensor '" + other.submission().name + "', which is " + cure);
  };
  if (const auto found = tensors.size() < 2 ? std::nullopt : find_overlap(uses)) {
    return overlaps(*tensors[found->second], *tensors[found->first],
                    "in the same call. Use separate memory, or one call after the other");
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (const auto other = on_cpu(i) ? memory_.conflict(uses[i]) : nullptr) {
      return overlaps(*tensors[i], *other, "in flight. Wait for the handle of that one first, or use separate memory");
    }
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (on_cpu(i)) memory_.add(uses[i], tensors[i]);
  }
  return {};
}

Result<std::vector<HandlePtr>> TensorTable::submit(std::span<const Submission> submissions, TimePoint now) {
  auto tags = tags_of(submissions);
  if (!tags.ok()) return tags.status();
  std::vector<TensorPtr> tensors;
  std::vector<HandlePtr> handles;
  tensors.reserve(submissions.size());
  handles.reserve(submissions.size());
  for (const Submission& one : submissions) {
    Signature signature = signature_of(one);
    if (const auto tag = tags->find({one.process_set, one.group}); tag != tags->end()) {
      if (one.kind == OpKind::kJoin) return refuse(one, "a join cannot be in a group. Submit it alone");
      signature.group = tag->second;
    }
    tensors.push_back(std::make_shared<Tensor>(one, std::move(signature), now));
    handles.push_back(tensors.back());
  }
  MutexLock lock(mutex_);
  if (!closed_.ok()) return closed_;
  DISTRUN_RETURN_IF_ERROR(enter_all(tensors));
  if (!tensors.empty()) has_new_.store(true, std::memory_order_seq_cst);
  return handles;
}

// Enters all or none, even if memory runs out. A tensor that only half entered would occupy its name for ever.
Status TensorTable::enter_all(const std::vector<TensorPtr>& tensors) {
  std::size_t entered = 0;
  std::vector<int> bound;  // sets whose GPU is decided by these tensors
  const auto take_back = [&]() DISTRUN_REQUIRES(mutex_) {
    for (std::size_t i = 0; i < entered; ++i) remove(*tensors[i]);
    for (const int set : bound) gpus_.erase(set);
  };
  try {
    if (new_.capacity() - new_.size() < tensors.size()) {
      new_.reserve(std::max(2 * new_.capacity(), new_.size() + tensors.size()));
    }
    // Checked one by one, so that a name given twice in one call is found too.
    for (const TensorPtr& tensor : tensors) {
      if (Status status = check(tensor->submission()); !status.ok()) {
        take_back();
        return status;
      }
      ++entered;
      if (decides_gpu(*tensor)) bound.push_back(tensor->key().set);
      enter(tensor);
    }
    if (Status status = enter_memory(tensors); !status.ok()) {
      take_back();
      return status;
    }
  } catch (...) {
    take_back();
    throw;
  }
  new_.insert(new_.end(), tensors.begin(), tensors.end());
  return {};
}

bool TensorTable::decides_gpu(const Tensor& tensor) const {
  return tensor.submission().device.type == DeviceType::kCuda && !gpus_.contains(tensor.key().set);
}

void TensorTable::enter(const TensorPtr& tensor) {
  in_flight_.emplace(tensor->key(), tensor);
  if (decides_gpu(*tensor)) gpus_.emplace(tensor->key().set, tensor->submission().device.index);
  if (tensor->signature().kind == OpKind::kJoin) joining_.insert(tensor->key().set);
}

// A stand-in is never in the table, but another tensor of its name may be there by now.
void TensorTable::remove(const Tensor& tensor) {
  const auto found = in_flight_.find(tensor.key());
  if (found == in_flight_.end() || found->second.get() != &tensor) return;
  if (tensor.signature().kind == OpKind::kJoin) joining_.erase(tensor.key().set);
  in_flight_.erase(found);
}

std::size_t TensorTable::in_flight() const {
  MutexLock lock(mutex_);
  return in_flight_.size();
}

void TensorTable::close(const Status& why) {
  MutexLock lock(mutex_);
  if (closed_.ok() || (closed_.info().usable && !why.info().usable)) closed_ = why;
}

Status TensorTable::closed() const {
  MutexLock lock(mutex_);
  return closed_;
}

void TensorTable::open_set(int set, std::vector<int> members) {
  MutexLock lock(mutex_);
  sets_[set] = std::move(members);
}

Status TensorTable::close_set(int set) {
  MutexLock lock(mutex_);
  if (set == 0) return {Errc::kInvalidArgument, "the global process set 0 cannot be removed"};
  if (sets_.erase(set) == 0) {
    return {Errc::kInvalidArgument, "process set " + std::to_string(set) + " does not exist, so it cannot be removed"};
  }
  return {};
}

void TensorTable::forget_set(int set) {
  MutexLock lock(mutex_);
  sets_.erase(set);
  gpus_.erase(set);
}

Result<std::vector<int>> TensorTable::set_members(int set) const {
  MutexLock lock(mutex_);
  const auto found = sets_.find(set);
  if (found == sets_.end()) {
    return Status(Errc::kInvalidArgument, "process set " + std::to_string(set) + " does not exist");
  }
  return found->second;
}

void TensorTable::take_new(std::vector<TensorPtr>& out) {
  MutexLock lock(mutex_);
  has_new_.store(false, std::memory_order_relaxed);
  out.insert(out.end(), std::make_move_iterator(new_.begin()), std::make_move_iterator(new_.end()));
  new_.clear();
}

void TensorTable::complete(std::span<const Completion> completions) {
  {
    MutexLock lock(mutex_);
    for (const Completion& one : completions) remove(*one.tensor);
  }
  for (const Completion& one : completions) {
    DISTRUN_CHECK(!one.tensor->done(), "a handle completes once");
    one.tensor->status_ = one.status;
    one.tensor->done_.store(true, std::memory_order_release);
  }
}

std::vector<TensorPtr> TensorTable::all_in_flight() const {
  MutexLock lock(mutex_);
  std::vector<TensorPtr> all;
  all.reserve(in_flight_.size());
  for (const auto& [key, tensor] : in_flight_) all.push_back(tensor);
  return all;
}

}  // namespace distrun::engine
