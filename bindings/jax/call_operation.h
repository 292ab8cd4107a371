// One call of the handler on its way.
//
// XLA keeps arguments and results alive until the handler has returned or, where it gave a future, until that is set;
// what describes them (shapes) only until the handler has returned. A name can be in flight once, so a call whose name
// is taken waits for the other one, as happens when a compiled function is run twice at once. In one run of one program
// that is refused: which of the two comes first could differ between the ranks.
//
// On a GPU the handler is called on the thread that puts the program on XLA's stream, piece by piece. It hands that
// stream over with the tensors (the operation starts on the device when what is on it by then is done) and returns when
// the operation is complete, so whatever XLA puts on the stream next finds the results. No stream is made to wait for
// the host, and nothing else on the device is waited for. docs/threads.md says why that is sound.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bridge/core.h"
#include "bindings/jax/cuda.h"
#include "bindings/jax/request.h"
#include "bindings/jax/xla_ffi.h"

namespace distrun::jax {

class CallOperation final : public bridge::PendingOperation {
 public:
  enum class Place { kHost, kCuda };

  // The handler: null, with a future in the frame unless the operation is complete, as it always is on a GPU; or an
  // error.
  static xla::Error* start(xla::CallFrame& frame, Place place) noexcept;

  class Later;
  CallOperation(const xla::Api* api, Later* later) : api_(api), later_(later) {}
  CallOperation(const CallOperation&) = delete;
  CallOperation& operator=(const CallOperation&) = delete;
  ~CallOperation() override;

  void complete() noexcept override;

 private:
  struct Outcome {
    int code = 0;  // XLA's; 0: success
    std::string text;
    const char* fixed = nullptr;   // instead of it, where there may be no memory
    xla::Error* theirs = nullptr;  // instead of both: XLA's own
  };
  struct Result {
    void* data;
    std::size_t bytes;
  };

  // What `body`, which fails or throws before anything has been handed over, comes to.
  template <class Body>
  static Outcome guarded(const Body& body) noexcept;
  static std::optional<Outcome> begin(std::unique_ptr<CallOperation> operation, xla::CallFrame& frame);
  static void hand_on(const std::string& name);
  static Outcome outcome_of(const distrun_error& error);
  static xla::Error* make_error(const xla::Api* api, const Outcome& outcome);

  Outcome prepare(const xla::CallFrame& frame);
  Outcome open_stream(const xla::CallFrame& frame);
  [[nodiscard]] Outcome in_flight_already() const;
  Outcome submit(const std::optional<bridge::Attachment::Lease>& lease);
  void give_future(xla::CallFrame& frame);
  [[nodiscard]] bool done() const;
  Outcome take_results() noexcept;
  [[nodiscard]] Outcome take_gathered(std::size_t index, const distrun_result& result) const;
  void tell(Outcome outcome);

  const xla::Api* api_;
  CudaStream stream_;   // on a GPU
  Later* const later_;  // on a GPU; the handler's, which waits for it
  Request request_;
  std::int64_t run_ = 0;
  std::vector<std::string> names_;
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<distrun_op> operations_;
  std::vector<Result> results_;
  std::vector<distrun_handle*> handles_;
  xla::Future* future_ = nullptr;
};

// An outcome for a handler that waits for it. Needs no memory, as std::promise does when it is given up.
class CallOperation::Later {
 public:
  void tell(Outcome outcome) {
    const std::lock_guard lock(mutex_);  // until it is over: who waits frees this
    outcome_ = std::move(outcome);
    told_.notify_one();
  }
  Outcome wait() {
    std::unique_lock lock(mutex_);
    // condition_variable::wait needs GLIBCXX_3.4.30, more than the wheel may.
    told_.wait_until(lock, std::chrono::steady_clock::time_point::max(), [this] { return outcome_.has_value(); });
    return *std::move(outcome_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable told_;
  std::optional<Outcome> outcome_;
};

}  // namespace distrun::jax
