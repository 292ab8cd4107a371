#include "runtime/engine/run/executor.h"

#include <algorithm>
#include <utility>

namespace distrun::engine {
namespace {

// Every member gets the same answer about what a backend cannot do. So the tensor fails on every rank, and the job
// continues.
bool concerns_only_the_tensor(const Status& status) {
  return status.code() == Errc::kUnsupported || status.code() == Errc::kInvalidArgument;
}

Status no_backend(const ProcessSet& set, DeviceType device) {
  return {Errc::kUnsupported, "process set " + std::to_string(set.id) + " has no backend for device " +
                                  std::string(name_of(device)) +
                                  ". Move the tensor to the CPU, or install a backend for the device"};
}

}  // namespace

Status Executor::can_run(const ProcessSet& set, const Tensor& tensor) {
  const Signature& signature = tensor.signature();
  if (!moves_data(signature.kind)) return {};
  const backend::Backend* backend = set.backend_for(signature.device);
  const SentAs sent = sent_as(signature.kind, signature.reduce, signature.dtype);
  const Status can = backend == nullptr ? no_backend(set, signature.device) : backend->can(signature.kind, sent.dtype);
  if (can.ok()) return {};
  ErrorInfo info = can.with_context("tensor '" + tensor.submission().name + "'").info();
  info.tensor = tensor.submission().name;
  return Status(std::move(info));
}

void Executor::run(ProcessSet& set, std::vector<RunTensor> tensors, std::vector<Completion>& done) {
  auto flight = std::make_unique<Flight>();
  flight->set = set.id;
  flight->tensors = std::move(tensors);
  flight->agreed = flight->started = Clock::now();
  if (!aborted_.ok()) return finish(*flight, aborted_, done);
  const Tensor& first = *flight->tensors.front().tensor;
  // All members have agreed to run it, and that is all a barrier or a join needs.
  if (first.signature().kind == OpKind::kBarrier) return finish(*flight, {}, done);
  if (first.signature().kind == OpKind::kJoin) {
    flight->tensors.front().tensor->output().first_dims = flight->tensors.front().first_dims;
    joins_.push_back(std::move(flight));
    return finish_joins(done);
  }
  Status status = can_run(set, first);
  if (!status.ok()) return finish(*flight, status, done);
  backend::Backend* backend = set.backend_for(first.signature().device);
  status = prepare(set, *backend, huge_pages_, *flight);
  if (!status.ok()) return finish(*flight, status, done);
  flight->backend = backend;
  flight->counted.emplace(active_, set);
  const bool waits = flight->is_on_device() || backend->capabilities().exclusive;
  if (!waits) return start(std::move(flight), done);
  waiting_.push_back(std::move(flight));
  start_waiting(done);
}

void Executor::start(std::unique_ptr<Flight> flight, std::vector<Completion>& done) {
  const std::uint64_t token = next_token_++;
  const backend::Capabilities& can = flight->backend->capabilities();
  flight->operation.alone = flights_.empty();
  flight->started = Clock::now();
  // Stored before the backend gets the operation, because the backend points to data that the flight owns.
  Flight& kept = *flights_.emplace(token, std::move(flight)).first->second;
  Status status;
  try {
    status = kept.backend->start(kept.operation, token);
  } catch (...) {
    flights_.erase(token);
    throw;
  }
  if (!status.ok()) {
    const auto refused = flights_.extract(token);
    return finish(*refused.mapped(), status, done);
  }
  kept.moves = &flights_like(can);
  ++*kept.moves;
  if (kept.is_on_device()) ++on_devices_;
  exclusive_ = exclusive_ || can.exclusive;
}

void Executor::start_waiting(std::vector<Completion>& done) {
  while (!waiting_.empty() && !exclusive_) {
    const Flight& first = *waiting_.front();
    const bool alone = first.backend->capabilities().exclusive && first.is_on_device();
    if (alone && on_devices_ > 0) return;
    std::unique_ptr<Flight> next = std::move(waiting_.front());
    waiting_.pop_front();
    start(std::move(next), done);
  }
}

void Executor::finish_joins(std::vector<Completion>& done) {
  for (std::size_t i = 0; i < joins_.size();) {
    if (aborted_.ok() && (in_flight(joins_[i]->set) > 0 || !held_.empty())) {
      ++i;
      continue;
    }
    const std::unique_ptr<Flight> join = std::move(joins_[i]);
    joins_.erase(joins_.begin() + static_cast<std::ptrdiff_t>(i));
    finish(*join, aborted_, done);
  }
}

void Executor::finish(Flight& flight, const Status& status, std::vector<Completion>& done) {
  if (status.ok()) unpack(flight);
  const bool hold = !status.ok() && !concerns_only_the_tensor(status) && aborted_.ok();
  if (hold && failure_.ok()) failure_ = status;
  const TimePoint ended = observer_ != nullptr ? Clock::now() : TimePoint{};
  for (RunTensor& one : flight.tensors) {
    Output& output = one.tensor->output();
    const Signature& signature = one.tensor->signature();
    const bool as_input = traits_of(signature.kind).output == OpOutput::kAsInput;
    if (as_input && status.ok()) {
      output.shape = signature.shape;
      output.bytes = payload_bytes(signature);
    }
    if (observer_ != nullptr) observer_->ran(*one.tensor, flight.agreed, flight.started, ended);
    const bool broken = !status.ok() && !aborted_.ok();
    (hold ? held_ : done).push_back({.tensor = std::move(one.tensor), .status = broken ? aborted_ : status});
  }
}

void Executor::collect(backend::Backend& backend, std::vector<Completion>& done) {
  backend.completed(completed_);
  // If one completion throws, the others stay in completed_ for the next call.
  while (collected_ < completed_.size()) {
    const backend::Completed one = std::move(completed_[collected_++]);
    const auto found = flights_.find(one.token);
    DISTRUN_CHECK(found != flights_.end(), "a backend completes what was started on it");
    const std::unique_ptr<Flight> flight = std::move(found->second);
    flights_.erase(found);
    --*flight->moves;
    if (flight->is_on_device()) --on_devices_;
    if (flight->backend->capabilities().exclusive) exclusive_ = false;
    finish(*flight, one.status, done);
  }
  completed_.clear();
  collected_ = 0;
  start_waiting(done);
}

std::size_t& Executor::flights_like(const backend::Capabilities& can) {
  switch (can.moved_by) {
    case backend::MovedBy::kCalls:
      return asked_;
    case backend::MovedBy::kOwnThread:
      return elsewhere_;
    case backend::MovedBy::kMemory:
      return in_memory_;
    case backend::MovedBy::kDescriptors:
      break;
  }
  return by_descriptors_;
}

bool Executor::progress(std::vector<Completion>& done, bool everywhere) {
  if (!aborted_.ok()) {
    for (const auto& flight : std::exchange(waiting_, {})) finish(*flight, aborted_, done);
    for (Completion& one : std::exchange(held_, {})) done.push_back({.tensor = one.tensor, .status = aborted_});
  }
  const std::size_t before = flights_.size();
  bool moved = false;
  if (everywhere || !aborted_.ok()) {
    for (auto& [id, set] : sets_.all()) moved = progress(set, done) || moved;
  } else {
    turn_ = active_;  // a copy, because active_ changes when operations end
    for (ProcessSet* set : turn_) moved = progress(*set, done) || moved;
  }
  if (!joins_.empty()) finish_joins(done);
  return moved || flights_.size() != before;
}

bool Executor::progress(ProcessSet& set, std::vector<Completion>& done) {
  bool moved = false;
  for (const auto& backend : set.backends) {
    if (!backend) continue;
    moved = backend->progress() || moved;
    collect(*backend, done);
  }
  return moved;
}

void Executor::abort(const Status& why) {
  if (!aborted_.ok()) return;
  aborted_ = why;
  for (auto& [id, set] : sets_.all()) {
    for (const auto& backend : set.backends) {
      if (backend) backend->abort(why);
    }
  }
  failure_ = {};
}

int Executor::in_flight(int set) const {
  const ProcessSet* found = sets_.find(set);  // null: the set was removed, or this rank is no member
  return found == nullptr ? 0 : found->in_flight;
}

const Tensor* Executor::oldest(TimePoint& since) const {
  const Tensor* tensor = nullptr;
  for (const auto& [token, flight] : flights_) {
    if (tensor != nullptr && flight->started >= since) continue;
    since = flight->started;
    tensor = flight->tensors.front().tensor.get();
  }
  return tensor;
}

}  // namespace distrun::engine
