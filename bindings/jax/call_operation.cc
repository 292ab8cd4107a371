#include "bindings/jax/call_operation.h"

#include <cstring>
#include <exception>
#include <utility>

#include "bindings/bridge/failures.h"
#include "bindings/jax/names.h"

namespace distrun::jax {
namespace {

using bridge::core;

// How long XLA's thread waits before the call goes to the watch. Ranks that call at the same time need less, and a
// change of threads costs about half of this.
constexpr double kInlineSeconds = 100e-6;

// Never destroyed: operations may be in flight when the process ends.
Names<CallOperation>& names_in_flight() {
  static auto* const the_one = new Names<CallOperation>;
  return *the_one;
}

int xla_code(std::int32_t code) {
  switch (code) {
    case DISTRUN_INVALID_ARGUMENT:
    case DISTRUN_DUPLICATE_NAME:
    case DISTRUN_MISMATCH:
      return xla::kInvalidArgument;
    case DISTRUN_NOT_INITIALIZED:
    case DISTRUN_SHUT_DOWN:
      return xla::kFailedPrecondition;
    case DISTRUN_TIMEOUT:
      return xla::kDeadlineExceeded;
    case DISTRUN_UNSUPPORTED:
      return xla::kUnimplemented;
    case DISTRUN_OUT_OF_MEMORY:
      return xla::kResourceExhausted;
    case DISTRUN_INTERRUPTED:
      return xla::kCancelled;
    case DISTRUN_PROTOCOL:
    case DISTRUN_SYSTEM:
    case DISTRUN_INTERNAL:
      return xla::kInternal;
    default:
      return xla::kUnavailable;  // a rank was lost or left, the job was aborted
  }
}

constexpr const char* kNotAttachedText =
    "distrun is not initialized. Call hvd.init() before you run a function that communicates.";

std::int64_t run_of(const xla::CallFrame& frame) {
  xla::RunIdGet get{.struct_size = sizeof get, .extension = nullptr, .context = frame.context, .run_id = 0};
  const std::size_t end = offsetof(xla::Api, run_id_get) + sizeof(void*);
  if (frame.api->struct_size < end || frame.api->run_id_get == nullptr) return 0;
  return frame.api->run_id_get(&get) == nullptr ? get.run_id : 0;
}

std::string at_tensor(const std::string& name, const std::string& wrong) { return "tensor '" + name + "': " + wrong; }

}  // namespace

CallOperation::~CallOperation() {
  for (distrun_handle* handle : handles_) core.distrun_release(handle);
}

template <class Body>
CallOperation::Outcome CallOperation::guarded(const Body& body) noexcept {
  try {
    return body();
  } catch (const std::exception&) {
    const distrun_error error = bridge::failure_of_exception();
    bridge::remember_failure(error);
    return {.code = xla_code(error.code), .fixed = error.message};
  }
}

xla::Error* CallOperation::start(xla::CallFrame& frame, Place place) noexcept {
  using Claim = Names<CallOperation>::Claim;
  std::unique_ptr<CallOperation> operation;
  Later later;
  auto claim = Claim::kMine;
  const Outcome wrong = guarded([&]() -> Outcome {
    operation = std::make_unique<CallOperation>(frame.api, place == Place::kCuda ? &later : nullptr);
    if (Outcome refused = operation->prepare(frame); refused.code != 0) return refused;
    const auto give_future = [&frame](CallOperation& waiting) { waiting.give_future(frame); };
    claim = names_in_flight().claim(operation->request_.name, operation->run_, operation, give_future);
    return claim == Claim::kTwiceInOneRun ? operation->in_flight_already() : Outcome{};
  });
  if (wrong.code != 0) return make_error(frame.api, wrong);
  if (claim == Claim::kMine) {
    if (const auto outcome = begin(std::move(operation), frame)) return make_error(frame.api, *outcome);
  }
  return place == Place::kCuda ? make_error(frame.api, later.wait()) : nullptr;
}

CallOperation::Outcome CallOperation::in_flight_already() const {
  return {
      .code = xla::kInvalidArgument,
      .text = "'" + request_.name +
              "' is in flight already in this run of the program. If the program uses several devices of this rank "
              "(jax.pmap, sharded arrays), start one rank for each device. If a jitted function with it is called "
              "several times inside another one, remove the inner jax.jit (for lax.scan: unroll). If two operations "
              "have this name, rename one."};
}

// Called when this call has the name. Returns nothing if the outcome comes later.
std::optional<CallOperation::Outcome> CallOperation::begin(std::unique_ptr<CallOperation> operation,
                                                           xla::CallFrame& frame) {
  Outcome outcome;
  {
    const auto lease = bridge::attachment().lease();
    const std::vector<distrun_handle*>& handles = operation->handles_;
    outcome = operation->submit(lease);
    if (outcome.code == 0 && !operation->done()) {
      // On a GPU there is no reason to wait on another thread, unless a signal ends this wait.
      const double seconds = operation->later_ != nullptr ? -1.0 : kInlineSeconds;
      core.distrun_wait_all(handles.data(), handles.size(), seconds, nullptr);
    }
    if (outcome.code == 0 && !operation->done()) {
      operation->give_future(frame);
      lease->watch(handles, operation.release());
      return std::nullopt;
    }
    if (outcome.code == 0) outcome = operation->take_results();
  }
  hand_on(operation->request_.name);
  return outcome;
}

// Frees the name and starts the next call that waited for it.
void CallOperation::hand_on(const std::string& name) {
  while (std::unique_ptr<CallOperation> next = names_in_flight().free(name)) {
    Outcome outcome;
    {
      const auto lease = bridge::attachment().lease();
      const std::vector<distrun_handle*>& handles = next->handles_;
      outcome = next->submit(lease);
      if (outcome.code == 0) return lease->watch(handles, next.release());
    }
    next->set_outcome(std::move(outcome));
  }
}

void CallOperation::complete() noexcept {
  const std::unique_ptr<CallOperation> own(this);
  Outcome outcome = take_results();
  hand_on(request_.name);
  set_outcome(std::move(outcome));
}

CallOperation::Outcome CallOperation::prepare(const xla::CallFrame& frame) {
  std::string wrong = read_attributes(frame.attributes, request_);
  if (wrong.empty()) wrong = make_operations(request_, frame, names_, operations_);
  if (!wrong.empty()) return {.code = xla::kInvalidArgument, .text = wrong + "."};
  if (later_ != nullptr) {
    if (Outcome refused = open_stream(frame); refused.code != 0) return refused;
  }
  run_ = run_of(frame);
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    distrun_op& op = operations_[i];
    shapes_.emplace_back(op.shape, op.shape + op.ndim);
    op.shape = shapes_.back().data();
    const auto& buffer = *static_cast<const xla::Buffer*>(frame.results.values[i]);
    results_.push_back({.data = buffer.data, .bytes = bytes_of(buffer, op.dtype)});
  }
  return {};
}

CallOperation::Outcome CallOperation::open_stream(const xla::CallFrame& frame) {
  xla::StreamGet get{.struct_size = sizeof get, .extension = nullptr, .context = frame.context, .stream = nullptr};
  if (xla::Error* error = api_->stream_get(&get); error != nullptr) return {.code = xla::kInternal, .theirs = error};
  if (const std::string wrong = stream_.open(get.stream); !wrong.empty()) {
    return {.code = xla::kInternal, .text = at_tensor(names_[0], "the stream of XLA cannot be used: " + wrong)};
  }
  for (distrun_op& op : operations_) {
    op.device_type = 1;
    op.device_index = stream_.device();
    op.stream = stream_.raw();
  }
  return {};
}

CallOperation::Outcome CallOperation::submit(const std::optional<bridge::Attachment::Lease>& lease) {
  if (!lease) return {.code = xla::kFailedPrecondition, .fixed = kNotAttachedText};
  return guarded([&]() -> Outcome {
    handles_.resize(operations_.size());
    const std::int32_t code =
        core.distrun_enqueue(lease->session(), operations_.data(), operations_.size(), handles_.data());
    if (code == DISTRUN_OK) return {};
    handles_.clear();
    auto error = DISTRUN_INIT(distrun_error);
    core.distrun_last_error(&error);
    return outcome_of(error);
  });
}

void CallOperation::give_future(xla::CallFrame& frame) {
  if (later_ != nullptr) return;
  xla::FutureCreate create{.struct_size = sizeof create, .extension = nullptr, .future = nullptr};
  api_->future_create(&create);
  frame.future = future_ = create.future;
}

bool CallOperation::done() const {
  for (distrun_handle* handle : handles_) {
    if (core.distrun_poll(handle) == 0) return false;
  }
  return true;
}

// Called when every handle is complete.
CallOperation::Outcome CallOperation::take_results() noexcept {
  return guarded([this]() -> Outcome {
    for (distrun_handle* handle : handles_) {
      auto error = DISTRUN_INIT(distrun_error);
      core.distrun_get_error(handle, &error);
      if (error.code != DISTRUN_OK) return outcome_of(error);
    }
    for (std::size_t i = 0; i < handles_.size(); ++i) {
      if (operations_[i].output != nullptr) continue;
      auto result = DISTRUN_INIT(distrun_result);
      core.distrun_get_result(handles_[i], &result);
      if (Outcome outcome = take_gathered(i, result); outcome.code != 0) return outcome;
    }
    return {};
  });
}

// The size of the result was fixed when the function was traced. So all members must have sent the same number of rows.
CallOperation::Outcome CallOperation::take_gathered(std::size_t index, const distrun_result& result) const {
  bool even = result.bytes == results_[index].bytes;
  std::string rows;
  for (std::uint32_t i = 0; i < result.num_members; ++i) {
    even = even && result.first_dims[i] == result.first_dims[0];
    rows += (i == 0 ? "" : ", ") + std::to_string(result.first_dims[i]);
  }
  if (!even) {
    return {.code = xla::kInvalidArgument,
            .text = at_tensor(names_[index],
                              "the ranks sent " + rows +
                                  " rows. Inside jax.jit all ranks must send the same number, because XLA fixes "
                                  "the size of the result. Call it outside jax.jit, or pad.")};
  }
  if (result.bytes == 0) return {};
  if (later_ == nullptr) {
    std::memcpy(results_[index].data, result.data, result.bytes);
    return {};
  }
  const std::string wrong = stream_.copy(result.data, results_[index].data, result.bytes);
  if (wrong.empty()) return {};
  return {.code = xla::kInternal, .text = at_tensor(names_[index], "its result cannot be copied: " + wrong)};
}

CallOperation::Outcome CallOperation::outcome_of(const distrun_error& error) {
  bridge::remember_failure(error);
  return {.code = xla_code(error.code), .text = error.message};
}

// Returns null for success.
xla::Error* CallOperation::make_error(const xla::Api* api, const Outcome& outcome) {
  if (outcome.code == 0 || outcome.theirs != nullptr) return outcome.theirs;
  xla::ErrorCreate create{.struct_size = sizeof create,
                          .extension = nullptr,
                          .message = outcome.fixed != nullptr ? outcome.fixed : outcome.text.c_str(),
                          .code = outcome.code};
  return api->error_create(&create);
}

void CallOperation::set_outcome(Outcome outcome) {
  if (later_ != nullptr) return later_->set_outcome(std::move(outcome));
  if (xla::Error* error = make_error(api_, outcome); error != nullptr) {
    xla::FutureSetError set{.struct_size = sizeof set, .extension = nullptr, .future = future_, .error = error};
    api_->future_set_error(&set);
    return;
  }
  xla::FutureSetAvailable set{.struct_size = sizeof set, .extension = nullptr, .future = future_};
  api_->future_set_available(&set);
}

}  // namespace distrun::jax
