// Calls of the JAX handlers when memory runs out, over fakes of XLA, of CUDA's driver and of the C API.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "bindings/bridge/failures.h"
#include "bindings/jax/call_operation.h"
#include "bindings/jax/cuda.h"
#include "bindings/jax/xla_ffi.h"
#include "test/support/little_memory.h"
#include "test/unit/bindings/fake_core.h"

namespace distrun::jax {
namespace {

using test::allocations_left;
using test::fake_core;

constexpr int kInt64 = 5;
constexpr int kFloat32 = 11;

// The reports that XLA got from all calls.
struct Calls {
  int futures = 0;
  int available = 0;
  int failed = 0;  // futures
  int errors = 0;
  int wrong_errors = 0;
};
Calls calls;

xla::Error* create_error(xla::ErrorCreate* create) {
  const test::PlentyOfMemory plenty;
  auto failure = DISTRUN_INIT(distrun_error);
  const bool known = bridge::find_failure(create->message, failure) && failure.code == DISTRUN_OUT_OF_MEMORY;
  ++calls.errors;
  calls.wrong_errors += known && create->code == xla::kResourceExhausted ? 0 : 1;
  return reinterpret_cast<xla::Error*>(&calls);
}

xla::Error* create_future(xla::FutureCreate* create) {
  ++calls.futures;
  create->future = reinterpret_cast<xla::Future*>(&calls);
  return nullptr;
}

xla::Error* set_available(xla::FutureSetAvailable* set) {
  calls.available += set->future != nullptr ? 1 : 0;
  return nullptr;
}

xla::Error* set_error(xla::FutureSetError* set) {
  calls.failed += set->future != nullptr ? 1 : 0;
  return nullptr;
}

// An allgather of one row, with one row of another rank.
struct Call {
  std::string name = "a name that needs memory of its own";
  std::int64_t kind = DISTRUN_ALLGATHER;
  std::array<xla::ByteSpan, 3> spans = {{{"name", 4}, {"kind", 4}, {name.data(), name.size()}}};
  xla::Scalar scalar = {kInt64, &kind};
  std::array<int, 2> types = {xla::kStringAttribute, xla::kScalarAttribute};
  std::array<xla::ByteSpan*, 2> keys = {spans.data(), &spans[1]};
  std::array<void*, 2> attributes = {&spans[2], &scalar};
  std::array<float, 2> memory = {};
  std::array<std::int64_t, 2> dims = {1, 2};
  xla::Buffer input = {sizeof(xla::Buffer), nullptr, kFloat32, memory.data(), 1, dims.data()};
  xla::Buffer output = {sizeof(xla::Buffer), nullptr, kFloat32, memory.data(), 1, &dims[1]};
  std::array<void*, 1> inputs = {&input};
  std::array<void*, 1> outputs = {&output};
  xla::Api api = {};
  xla::CallFrame frame = {};

  Call() {
    api.struct_size = sizeof api;
    api.error_create = create_error;
    api.stream_get = [](xla::StreamGet* get) -> xla::Error* {
      get->stream = &calls;
      return nullptr;
    };
    api.future_create = create_future;
    api.future_set_available = set_available;
    api.future_set_error = set_error;
    frame.api = &api;
    frame.arguments = {sizeof(xla::Buffers), nullptr, 1, nullptr, inputs.data()};
    frame.results = {sizeof(xla::Buffers), nullptr, 1, nullptr, outputs.data()};
    frame.attributes = {sizeof(xla::Attributes), nullptr, 2, types.data(), keys.data(), attributes.data()};
  }
};

// Two calls with one name, with memory for `allocations` allocations. The second call waits for the first if the first
// is not complete at once. Returns true if the memory was enough.
bool two_calls_with(long allocations, bool complete_at_once, CallOperation::Place place) {
  calls = {};
  Call first;
  Call second;
  fake_core.complete = complete_at_once;
  allocations_left = allocations;
  const bool first_failed = CallOperation::start(first.frame, place) != nullptr;
  const bool second_failed = CallOperation::start(second.frame, place) != nullptr;
  fake_core.complete = true;
  test::complete_watched();
  allocations_left = -1;
  CHECK((first_failed ? 1 : 0) + (second_failed ? 1 : 0) + calls.failed == calls.errors);
  CHECK(calls.available + calls.failed == calls.futures);
  CHECK(calls.wrong_errors == 0);
  CHECK(fake_core.handles == 0);
  CHECK_FALSE((first_failed && first.frame.future != nullptr));
  CHECK_FALSE((second_failed && second.frame.future != nullptr));
  if (calls.errors > 0) return false;
  CHECK(first.memory == std::array<float, 2>{3, 4});
  CHECK(second.memory == std::array<float, 2>{3, 4});
  return true;
}

}  // namespace

// Replaces bindings/jax/cuda_library.cc: one GPU, whose memory is the process's own.
const Cuda& cuda() {
  static const Cuda one = [] {
    Cuda made;
    made.context_of = [](void* stream, void** context) {
      *context = stream;
      return 0;
    };
    made.push_context = [](void*) { return 0; };
    made.pop_context = [](void**) { return 0; };
    made.current_device = [](int* device) { return *device = 0; };
    made.copy = [](unsigned long long to, unsigned long long from, std::size_t bytes, void*) {
      std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
      return 0;
    };
    made.synchronize = [](void*) { return 0; };
    return made;
  }();
  return one;
}

TEST_CASE("jax: a call without memory fails once, wherever memory ends, and frees its name") {
  using Place = CallOperation::Place;
  struct Way {
    bool at_once;  // on a GPU, a call that is not complete blocks
    Place place;
  };
  test::attach_fake_core();
  for (const auto& [at_once, place] : {Way{true, Place::kHost}, Way{false, Place::kHost}, Way{true, Place::kCuda}}) {
    REQUIRE(two_calls_with(-1, at_once, place));
    CHECK(calls.futures == (at_once ? 0 : 2));
    long enough = 0;
    while (!two_calls_with(enough, at_once, place)) ++enough;
    CHECK(enough > 5);
    CHECK(calls.futures == (at_once ? 0 : 2));
  }
  CHECK(bridge::attachment().detach());
}

}  // namespace distrun::jax
