#include "runtime/engine/readiness/readiness.h"

#include <algorithm>
#include <tuple>

#include "runtime/engine/readiness/mismatch.h"
#include "runtime/engine/readiness/parts.h"

namespace distrun::engine {

std::vector<int> PendingTensor::missing_ranks() const {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < when.size(); ++i) {
    if (!has(i)) ranks.push_back((*members)[i]);
  }
  return ranks;
}

std::vector<int> PendingTensor::submitted_ranks() const {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < when.size(); ++i) {
    if (has(i) && !joined_instead(i)) ranks.push_back((*members)[i]);
  }
  return ranks;
}

const Signature& PendingTensor::signature_of(std::size_t member) const {
  const auto found = differing.find(member);
  return found == differing.end() ? signature : found->second;
}

std::vector<std::int64_t> PendingTensor::logged_dims() const {
  bool equal = true;
  for (std::size_t i = 0; i < splits.size(); ++i) equal = equal && shares_equally(first_dims[i], splits[i]);
  if (equal) return first_dims;
  std::vector<std::int64_t> rows;
  const auto count = static_cast<std::int64_t>(splits.size());
  for (std::size_t i = 0; i < splits.size(); ++i) {
    if (splits[i].empty()) {
      rows.insert(rows.end(), splits.size(), first_dims[i] / count);
    } else {
      rows.insert(rows.end(), splits[i].begin(), splits[i].end());
    }
  }
  return rows;
}

void Readiness::mark_joined(PendingTensor& tensor, std::size_t member, TimePoint now) {
  tensor.when[member] = now;
  --tensor.missing;
  tensor.joined_ranks.push_back((*tensor.members)[member]);
  tensor.joined_members.resize(tensor.members->size());
  tensor.joined_members[member] = true;
  if (!tensor.first_dims.empty()) tensor.id = kNoId;  // the tensor of that id has rows of this member
}

PendingTensor* Readiness::add(const SubmissionEvent& event) {
  PendingTensor* tensor = nullptr;
  const auto found = pending_.find(TensorKey{.set = event.set, .name = event.name});
  if (found == pending_.end()) {
    auto fresh = std::make_unique<PendingTensor>();
    tensor = fresh.get();
    tensor->set = event.set;
    tensor->name = event.name;
    tensor->members = event.members;
    tensor->signature = *event.signature;
    tensor->when.assign(event.members->size(), PendingTensor::kNever);
    tensor->missing = event.members->size();
    tensor->id = event.id;
    tensor->first = tensor->reported = event.now;
    const std::size_t members = event.members->size();
    if (rows_differ_by_right(event.signature->kind)) tensor->first_dims.assign(members, 0);
    if (traits_of(event.signature->kind).has_splits) tensor->splits.resize(members);
    pending_.emplace(TensorKey{.set = event.set, .name = tensor->name}, std::move(fresh));
  } else {
    tensor = found->second.get();
    if (tensor->has(event.member)) return nullptr;
    if (!compatible(tensor->signature, *event.signature)) tensor->differing.emplace(event.member, *event.signature);
    if (tensor->id != event.id) tensor->id = kNoId;
  }
  tensor->when[event.member] = event.now;
  --tensor->missing;
  if (!event.refusal.empty() && tensor->refusing++ == 0) tensor->refusal = event.refusal;
  if (!tensor->first_dims.empty()) tensor->first_dims[event.member] = event.first_dim;
  if (!tensor->splits.empty()) tensor->splits[event.member].assign(event.splits.begin(), event.splits.end());
  return tensor;
}

void Readiness::erase(const PendingTensor& tensor) {
  pending_.erase(TensorKey{.set = tensor.set, .name = tensor.name});
}

PendingTensor* Readiness::find(int set, std::string_view name) {
  const auto found = pending_.find(TensorKey{.set = set, .name = name});
  return found == pending_.end() ? nullptr : found->second.get();
}

bool Readiness::contains(int set, std::string_view name) const {
  return pending_.contains(TensorKey{.set = set, .name = name});
}

void Readiness::for_each(const std::function<void(const PendingTensor&)>& visit) const {
  for (const auto& [key, tensor] : pending_) visit(*tensor);
}

std::vector<PendingTensor*> Readiness::waiting() {
  std::vector<PendingTensor*> tensors;
  for (auto& [key, tensor] : pending_) {
    if (!tensor->complete()) tensors.push_back(tensor.get());
  }
  std::sort(tensors.begin(), tensors.end(), [](const PendingTensor* a, const PendingTensor* b) {
    return std::tie(a->first, a->set, a->name) < std::tie(b->first, b->set, b->name);
  });
  return tensors;
}

namespace {

std::vector<SplitsOf> splits_of(const PendingTensor& tensor) {
  std::vector<SplitsOf> all;
  for (std::size_t i = 0; i < tensor.members->size(); ++i) {
    if (!tensor.joined_instead(i)) {
      all.push_back({.rank = (*tensor.members)[i], .rows = tensor.first_dims[i], .splits = tensor.splits[i]});
    }
  }
  return all;
}

// Finds an error in an operation that the members agree on but none can run. If only some of them cannot run it,
// another tensor of the group differs between them, and fails the group.
std::optional<ErrorInfo> check_possible(const PendingTensor& tensor) {
  const std::string subject = "tensor '" + tensor.name + "': ";
  if (tensor.refusing > 0 && tensor.refusing + tensor.joined_ranks.size() == tensor.members->size()) {
    return ErrorInfo{
        .code = Errc::kUnsupported,
        .message = subject + "the tensors of a group run together, and one of them cannot run: " + tensor.refusal,
        .tensor = tensor.name};
  }
  const Signature& signature = tensor.signature;
  if (!rows_differ_by_right(signature.kind) || sum_of_rows(tensor.first_dims, signature)) return std::nullopt;
  return ErrorInfo{.code = Errc::kInvalidArgument,
                   .message = subject + "the result of the " + std::string(name_of(signature.kind)) +
                              " is larger than memory can be. Move less data at once",
                   .tensor = tensor.name};
}

}  // namespace

Status verdict(const PendingTensor& tensor, const std::vector<std::string>& hosts) {
  const MismatchContext context{.tensor = tensor.name, .members = tensor.members, .hosts = &hosts};
  std::optional<ErrorInfo> error;
  if (tensor.differing.empty()) {
    error = check_agreed(tensor.signature, context);
    if (!error && !tensor.splits.empty()) error = check_splits(splits_of(tensor), context);
  } else {
    std::vector<RankSignature> all;
    for (std::size_t i = 0; i < tensor.members->size(); ++i) {
      if (tensor.joined_instead(i)) continue;
      all.push_back({.rank = (*tensor.members)[i], .signature = &tensor.signature_of(i)});
    }
    error = find_mismatch(all, context);
  }
  if (!error) error = check_possible(tensor);
  return error ? Status(std::move(*error)) : Status();
}

}  // namespace distrun::engine
