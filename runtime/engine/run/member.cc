#include "runtime/engine/run/member.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/engine/run/stand_in.h"

namespace distrun::engine {
namespace {

void send_ready(TensorId id, std::vector<Message>& out) {
  if (!out.empty()) {
    if (auto* ready = std::get_if<message::Ready>(&out.back())) {
      ready->ids.push_back(id);
      return;
    }
  }
  out.emplace_back(message::Ready{.ids = {id}});
}

void send_submitted(const Tensor& tensor, const std::string& refusal, std::vector<Message>& out) {
  const TensorKey key = tensor.key();
  out.emplace_back(message::Submitted{
      .set = key.set, .name = std::string(key.name), .signature = tensor.signature(), .refusal = refusal});
}

Status broken(const std::string& what) {
  return {Errc::kProtocol, "the decision log names " + what + ". This is a bug in distrun, please report it"};
}

}  // namespace

void Member::submit(const TensorPtr& tensor, std::vector<Message>& out, const std::string& refusal) {
  const TensorKey key = tensor->key();
  const ResponseCache::Record* record = cache_.find(key.set, key.name);
  if (record != nullptr && refusal.empty() && record->signature == tensor->signature()) {
    send_ready(record->id, out);
  } else {
    send_submitted(*tensor, refusal, out);
  }
  announced_.emplace(key, tensor);
  const Device device = tensor->submission().device;
  if (device.type == DeviceType::kCuda) {
    gpus_.try_emplace(key.set, device.index);
    own_gpu_ = device.index;
  }
  if (tensor->submission().stand_in_gpu >= 0) own_gpu_ = tensor->submission().stand_in_gpu;
  if (tensor->signature().kind == OpKind::kJoin) joined_.insert(key.set);
}

Result<TensorPtr> Member::take(TensorKey key) {
  const auto found = announced_.find(key);
  if (found == announced_.end()) {
    return broken("tensor '" + std::string(key.name) + "', which is not in flight on this rank");
  }
  TensorPtr tensor = std::move(found->second);
  announced_.erase(found);
  if (tensor->signature().kind == OpKind::kJoin) joined_.erase(key.set);
  return tensor;
}

// The leader treats a rank that has joined as if it had submitted every tensor.
Result<TensorPtr> Member::take_or_stand_in(TensorKey key, const Signature* signature) {
  if (!joined_.contains(key.set) || announced_.contains(key)) return take(key);
  if (signature == nullptr)
    return broken("tensor '" + std::string(key.name) + "' without its description, for a rank that has joined");
  const auto gpu = gpus_.find(key.set);
  return make_stand_in(key.set, key.name, *signature, gpu == gpus_.end() ? own_gpu_ : gpu->second);
}

Result<std::vector<RunTensor>> Member::run(const entry::Run& run) {
  std::vector<RunTensor> tensors;
  tensors.reserve(run.tensors.size());
  for (const TensorRef& ref : run.tensors) {
    const bool by_id = ref.name.empty();
    const ResponseCache::Record* record = by_id ? cache_.find(ref.id) : nullptr;
    if (by_id && record == nullptr) return broken("the unknown tensor id " + std::to_string(ref.id));
    const std::string_view name = by_id ? std::string_view(record->name) : std::string_view(ref.name);
    const Signature* signature = by_id ? &record->signature : ref.signature ? &*ref.signature : nullptr;
    auto tensor = take_or_stand_in({.set = run.set, .name = name}, signature);
    if (!tensor.ok()) return tensor.status();
    const auto& dims = by_id ? record->first_dims : ref.first_dims;
    if (!by_id && ref.id != kNoId) {
      cache_.define({.id = ref.id,
                     .set = run.set,
                     .name = ref.name,
                     .signature = (*tensor)->signature(),
                     .first_dims = ref.first_dims});
    }
    tensors.push_back({.tensor = *std::move(tensor), .first_dims = dims});
  }
  return tensors;
}

Result<TensorPtr> Member::fail(const entry::Fail& failed) { return take({.set = failed.set, .name = failed.name}); }

void Member::evict(const entry::Evict& evict) {
  for (const TensorId id : evict.ids) cache_.erase(id);
}

TensorPtr Member::oldest() const {
  const auto found = std::min_element(announced_.begin(), announced_.end(), [](const auto& a, const auto& b) {
    return a.second->submitted_at() < b.second->submitted_at();
  });
  return found == announced_.end() ? nullptr : found->second;
}

}  // namespace distrun::engine
