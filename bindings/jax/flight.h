// One call of the handler on its way.
//
// XLA keeps arguments and results alive until the handler has returned or, where it gave a future, until that is set;
// what describes them (shapes) only until the handler has returned. A name can be in flight once, so a call whose name
// is taken waits for the other one, as happens when a compiled function is run twice at once. In one run of one program
// that is refused: which of the two comes first could differ between the ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/bridge/core.h"
#include "bindings/jax/request.h"
#include "bindings/jax/xla_ffi.h"

namespace distrun::jax {

class Flight final : public bridge::Flight {
 public:
  // The handler: null, with a future in the frame unless the operation is complete; or an error.
  static xla::Error* start(xla::CallFrame& frame) noexcept;

  explicit Flight(const xla::Api* api) : api_(api) {}
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;
  ~Flight() override;

  void complete() noexcept override;

 private:
  struct Outcome {
    int code = 0;  // XLA's; 0: success
    std::string text;
    const char* fixed = nullptr;  // instead of it, where there may be no memory
  };
  struct Result {
    void* data;
    std::size_t bytes;
  };

  // What `body`, which fails or throws before anything has been handed over, comes to.
  template <class Body>
  static Outcome guarded(const Body& body) noexcept;
  static xla::Error* begin(std::unique_ptr<Flight> flight, xla::CallFrame& frame);
  static void hand_on(const std::string& name);
  static Outcome outcome_of(const distrun_error& error);
  static xla::Error* make_error(const xla::Api* api, const Outcome& outcome);

  Outcome prepare(const xla::CallFrame& frame);
  [[nodiscard]] Outcome in_flight_already() const;
  Outcome submit(const std::optional<bridge::Attachment::Lease>& lease);
  void give_future(xla::CallFrame& frame);
  [[nodiscard]] bool done() const;
  Outcome take_results() noexcept;
  [[nodiscard]] Outcome take_gathered(std::size_t index, const distrun_result& result) const;
  void tell(const Outcome& outcome);

  const xla::Api* api_;
  Request request_;
  std::int64_t run_ = 0;
  std::vector<std::string> names_;
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<distrun_op> operations_;
  std::vector<Result> results_;
  std::vector<distrun_handle*> handles_;
  xla::Future* future_ = nullptr;
};

}  // namespace distrun::jax
