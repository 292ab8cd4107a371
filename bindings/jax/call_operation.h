// One call of the handler, while it is in flight.
//
// XLA keeps arguments and results alive until the handler has returned. If the handler gave a future, XLA keeps them
// until the future is set. It keeps their descriptions (shapes) only until the handler has returned. Only one call at a
// time may use a name, so a second call with the name waits for the first. This happens if a compiled function runs
// twice at once. Within one run of one program it is an error, since ranks could disagree on which call comes first.
//
// On a GPU, XLA calls the handler on the thread that puts the program on XLA's stream, piece by piece. The handler
// passes that stream with the tensors, and the operation starts on the device after the work that is on the stream by
// then. The handler returns when the operation is complete. So all later work on the stream finds the results. No
// stream waits for the host, and the handler waits for no other work on the device. docs/internals/threads.md explains
// why this is correct.
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

  // The handler. Returns null, or an error. Unless the operation is complete, it puts a future into the frame. On a GPU
  // it is always complete.
  static xla::Error* start(xla::CallFrame& frame, Place place) noexcept;

  class Later;
  CallOperation(const xla::Api* api, Later* later) : api_(api), later_(later) {}
  CallOperation(const CallOperation&) = delete;
  CallOperation& operator=(const CallOperation&) = delete;
  ~CallOperation() override;

  void complete() noexcept override;

 private:
  struct Outcome {
    int code = 0;  // a code of XLA; 0: success
    std::string text;
    const char* fixed = nullptr;   // used instead of `text` if there may be no memory
    xla::Error* theirs = nullptr;  // used instead of both: an error made by XLA
  };
  struct Result {
    void* data;
    std::size_t bytes;
  };

  // Runs `body` before anything was submitted, and turns its failure or exception into an outcome.
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
  void set_outcome(Outcome outcome);

  const xla::Api* api_;
  CudaStream stream_;   // only on a GPU
  Later* const later_;  // only on a GPU; belongs to the handler, which waits for it
  Request request_;
  std::int64_t run_ = 0;
  std::vector<std::string> names_;
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<distrun_op> operations_;
  std::vector<Result> results_;
  std::vector<distrun_handle*> handles_;
  xla::Future* future_ = nullptr;
};

// An outcome that the handler waits for. A std::promise would allocate memory if it were destroyed without an outcome.
class CallOperation::Later {
 public:
  void set_outcome(Outcome outcome) {
    const std::lock_guard lock(mutex_);  // held to the end: the waiting thread frees this object
    outcome_ = std::move(outcome);
    ready_.notify_one();
  }
  Outcome wait() {
    std::unique_lock lock(mutex_);
    // condition_variable::wait needs GLIBCXX_3.4.30, which is newer than the wheel may require.
    ready_.wait_until(lock, std::chrono::steady_clock::time_point::max(), [this] { return outcome_.has_value(); });
    return *std::move(outcome_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::optional<Outcome> outcome_;
};

}  // namespace distrun::jax
