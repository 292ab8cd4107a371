// JAX's handler for GPUs. It gets frames as XLA makes them, on a stream of the fake. It calls the C API in a world of
// size 1, with the plug-in over the fake. The tests check streams, waits and failures.
#include <distrun/distrun.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bindings/bridge/core.h"
#include "bindings/jax/call_operation.h"
#include "bindings/jax/cuda.h"
#include "test/backend/nccl/fake_remote.h"
#include "test/backend/same_call.h"
#if defined(DISTRUN_HAS_CUDA_H)
#include <cuda.h>
#endif

extern const char* const kNcclPlugin;

namespace distrun::jax {
namespace {

constexpr int kInt64 = 5;
constexpr int kFloat32 = 11;
constexpr std::size_t kElements = 4;

const test::FakeRemote& fake() {
  static const auto* const remote = [] {
    void* const plugin = dlopen(kNcclPlugin, RTLD_NOW | RTLD_LOCAL);
    void* const entry = plugin == nullptr ? nullptr : dlsym(plugin, "distrun_fake_remote");
    if (entry == nullptr) throw std::runtime_error(std::string("no fake in ") + kNcclPlugin);
    return reinterpret_cast<decltype(&distrun_fake_remote)>(entry)();
  }();
  return *remote;
}

// Replaces bindings/jax/cuda_library.cc.
Cuda& driver() {
  static Cuda the_one = [] {
    Cuda made;
    made.context_of = fake().context_of;
    made.push_context = fake().cuda->push_context;
    made.pop_context = fake().cuda->pop_context;
    made.current_device = fake().current_device;
    made.copy = fake().cuda->copy;
    made.synchronize = fake().synchronize;
    made.error_name = fake().cuda->error_name;
    return made;
  }();
  return the_one;
}

// A GPU with one stream of XLA.
struct Gpu {
  explicit Gpu(int index) {
    fake().cuda->retain_context(&context, index);
    fake().cuda->push_context(context);
    fake().cuda->stream_create(&stream, 1);
    void* popped = nullptr;
    fake().cuda->pop_context(&popped);
    name = fake().name_of(stream);
  }
  // Work that XLA submits.
  void fill(float* memory, float value) const {
    fake().cuda->push_context(context);
    unsigned bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    fake().cuda->fill32(reinterpret_cast<std::uintptr_t>(memory), bits, kElements, stream);
    void* popped = nullptr;
    fake().cuda->pop_context(&popped);
  }
  void* context = nullptr;
  void* stream = nullptr;
  std::string name;
};

// The session as Python attaches it. Its only plug-in is the one over the fake.
struct Session {
  Session() {
    const std::string setting = std::string("plugins=") + kNcclPlugin;
    const char* const settings[] = {setting.c_str()};
    distrun_options options = DISTRUN_INIT(distrun_options);
    options.settings = settings;
    options.num_settings = 1;
    REQUIRE(distrun_init(&options, &raw) == DISTRUN_OK);
    REQUIRE(bridge::resolve_core(dlopen(nullptr, RTLD_NOW)).empty());
    REQUIRE(bridge::attachment().attach(raw).empty());
    fake().forget_calls();
  }
  ~Session() {
    distrun_shutdown(raw);
    CHECK(bridge::attachment().detach());
    distrun_close(raw);
    CHECK(fake().faults().empty());
  }
  distrun_session* raw = nullptr;
};

// XLA's side: what the handler reported to it, and the values that it gives.
struct Xla {
  int futures = 0;
  std::string message;
  int code = 0;
  void* stream = nullptr;
  bool has_no_stream = false;
};
Xla answers;
int an_error = 0;
int their_error = 0;

const xla::Api& api() {
  static const xla::Api made = [] {
    xla::Api it = {};
    it.struct_size = sizeof it;
    it.error_create = [](xla::ErrorCreate* create) {
      answers.message = create->message;
      answers.code = create->code;
      return reinterpret_cast<xla::Error*>(&an_error);
    };
    it.stream_get = [](xla::StreamGet* get) {
      get->stream = answers.stream;
      return answers.has_no_stream ? reinterpret_cast<xla::Error*>(&their_error) : nullptr;
    };
    it.future_create = [](xla::FutureCreate*) -> xla::Error* {
      ++answers.futures;
      return nullptr;
    };
    return it;
  }();
  return made;
}

// One call on `arrays` arrays of float32. Each array has a separate result. Device memory is the process's own.
struct Call {
  explicit Call(std::int64_t what, std::size_t arrays = 1, std::string called = "allreduce.step@train.py:3.0")
      : name(std::move(called)), kind(what), in(arrays), out(arrays) {
    for (std::size_t i = 0; i < arrays; ++i) {
      buffers.push_back({sizeof(xla::Buffer), nullptr, kFloat32, in[i].data(), 1, dims.data()});
      buffers.push_back({sizeof(xla::Buffer), nullptr, kFloat32, out[i].data(), 1, dims.data()});
    }
    for (std::size_t i = 0; i < arrays; ++i) inputs.push_back(&buffers[2 * i]);
    for (std::size_t i = 0; i < arrays; ++i) outputs.push_back(&buffers[2 * i + 1]);
    const auto count = static_cast<std::int64_t>(arrays);
    frame.api = &api();
    frame.arguments = {sizeof(xla::Buffers), nullptr, count, nullptr, inputs.data()};
    frame.results = {sizeof(xla::Buffers), nullptr, count, nullptr, outputs.data()};
    frame.attributes = {sizeof(xla::Attributes), nullptr, 2, types.data(), keys.data(), attributes.data()};
  }
  xla::Error* make() { return CallOperation::start(frame, CallOperation::Place::kCuda); }

  std::string name;
  std::int64_t kind;
  std::vector<std::array<float, kElements>> in;
  std::vector<std::array<float, kElements>> out;
  std::array<std::int64_t, 1> dims = {kElements};
  std::array<xla::ByteSpan, 3> spans = {{{"name", 4}, {"kind", 4}, {name.data(), name.size()}}};
  xla::Scalar scalar = {kInt64, &kind};
  std::array<int, 2> types = {xla::kStringAttribute, xla::kScalarAttribute};
  std::array<xla::ByteSpan*, 2> keys = {spans.data(), &spans[1]};
  std::array<void*, 2> attributes = {&spans[2], &scalar};
  std::vector<xla::Buffer> buffers;
  std::vector<void*> inputs;
  std::vector<void*> outputs;
  xla::CallFrame frame = {};
};

// The parts that every call needs: a job of one rank, and XLA's stream on a GPU.
struct Job {
  explicit Job(int index) : gpu(index) {
    answers = {};
    answers.stream = gpu.stream;
  }
  Session session;
  Gpu gpu;
};

// A call on its own thread, like one of XLA's, until join().
struct Running {
  explicit Running(Call& call)
      : thread([this, &call] {
          error = call.make();
          done = true;
        }) {}
  xla::Error* join() {
    thread.join();
    return error;
  }
  xla::Error* error = nullptr;
  std::atomic<bool> done = false;
  std::jthread thread;
};

template <class Condition>
bool soon(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

bool called(const std::string& symbol) {
  return soon([&] { return !fake().calls_of({symbol}).empty(); });
}

}  // namespace

const Cuda& cuda() { return driver(); }

TEST_CASE("jax on a gpu: an operation comes after what made its inputs, and before what XLA puts on its stream next",
          "[nccl]") {
  const Job job(0);
  Call call(DISTRUN_ALLREDUCE);
  const auto gate = fake().close_gate(job.gpu.stream);
  job.gpu.fill(call.in[0].data(), 3);
  fake().forget_calls();
  Running running(call);
  REQUIRE(called("ncclAllReduce"));  // on our stream, which waits on the device
  CHECK_FALSE(running.done);
  CHECK(call.out[0][0] == 0);
  const std::string before = fake().calls_of({"cuEventRecord", "cuStreamWaitEvent", "ncclAllReduce"});
  CHECK(before.starts_with("cuEventRecord " + job.gpu.name + "; cuStreamWaitEvent s"));
  CHECK(before.find("cuStreamWaitEvent " + job.gpu.name) == std::string::npos);
  fake().open_gate(gate);
  CHECK(running.join() == nullptr);
  CHECK(call.out[0] == std::array<float, kElements>{3, 3, 3, 3});
  CHECK(fake().calls_of({"cuStreamSynchronize"}).empty());
  CHECK(answers.futures == 0);
  CHECK(call.frame.future == nullptr);
}

TEST_CASE("jax on a gpu: the arrays of a call have one event, and are on the GPU of their stream", "[nccl]") {
  const Job job(1);
  Call call(DISTRUN_ALLREDUCE, 3);
  for (auto& one : call.in) one.fill(2);
  CHECK(call.make() == nullptr);
  for (const auto& one : call.out) CHECK(one[3] == 2);
  CHECK(fake().calls_of({"cuEventRecord"}).find(job.gpu.name) == std::string("cuEventRecord ").size());
  CHECK(fake().calls_of({"cuEventRecord"}).find(job.gpu.name, 20) == std::string::npos);
  CHECK(fake().calls_of({"cuDeviceGet"}) == "cuDeviceGet 1");
}

TEST_CASE("jax on a gpu: what the runtime has allocated is copied on XLA's stream, which alone is waited for",
          "[nccl]") {
  const Job job(0);
  for (const std::int64_t kind : {DISTRUN_ALLGATHER, DISTRUN_ALLTOALL}) {
    fake().forget_calls();
    Call call(kind);
    call.in[0] = {1, 2, 3, 4};
    CHECK(call.make() == nullptr);
    CHECK(call.out[0] == call.in[0]);
    const std::string bytes = std::to_string(sizeof call.out[0]);
    const std::string copy =
        "cuMemcpyDtoDAsync " + job.gpu.name + " " + bytes + "; cuStreamSynchronize " + job.gpu.name;
    CHECK(fake().calls_of({"cuMemcpyDtoDAsync", "cuStreamSynchronize"}).ends_with(copy));
  }
  fake().fail("cuMemcpyDtoDAsync", 719, 0, 1);
  Call call(DISTRUN_ALLGATHER);
  CHECK(call.make() == reinterpret_cast<xla::Error*>(&an_error));
  CHECK(answers.message ==
        "tensor '" + call.name + "': its result cannot be copied: cuMemcpyDtoDAsync: CUDA_ERROR_FAKE");
}

TEST_CASE("jax on a gpu: a second call of the name waits on its own thread", "[nccl]") {
  const Job job(0);
  Call first(DISTRUN_ALLREDUCE);
  Call second(DISTRUN_ALLREDUCE);
  first.in[0].fill(1);
  second.in[0].fill(2);
  const auto gate = fake().close_gate(job.gpu.stream);
  Running one(first);
  REQUIRE(called("ncclAllReduce"));
  Running two(second);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time enough for an error to show
  CHECK_FALSE(one.done);
  CHECK_FALSE(two.done);
  fake().open_gate(gate);
  CHECK(one.join() == nullptr);
  CHECK(two.join() == nullptr);
  CHECK(first.out[0][0] == 1);
  CHECK(second.out[0][0] == 2);
  CHECK(answers.futures == 0);
}

TEST_CASE("jax on a gpu: a job that ends ends the call, when the device no longer has its memory", "[nccl]") {
  const Job job(0);
  Call call(DISTRUN_ALLREDUCE);
  const auto gate = fake().close_gate(job.gpu.stream);
  Running running(call);
  REQUIRE(called("ncclAllReduce"));
  REQUIRE(distrun_abort(job.session.raw, "the test ends it") == DISTRUN_OK);
  REQUIRE(called("ncclCommAbort"));
  CHECK_FALSE(running.done);
  fake().open_gate(gate);
  CHECK(running.join() == reinterpret_cast<xla::Error*>(&an_error));
  CHECK(answers.code == xla::kUnavailable);
  CHECK(answers.message.find("the test ends it") != std::string::npos);
  CHECK(answers.futures == 0);
}

TEST_CASE("jax on a gpu: what NCCL refuses is the call's error", "[nccl]") {
  const Job job(0);
  fake().fail("ncclAllReduce", 1, 0, 1);
  Call call(DISTRUN_ALLREDUCE);
  CHECK(call.make() == reinterpret_cast<xla::Error*>(&an_error));
  CHECK(answers.message.find("unhandled cuda error") != std::string::npos);
}

TEST_CASE("jax on a gpu: a stream that is recorded into a graph is refused", "[nccl]") {
  const Job job(0);
  Call call(DISTRUN_ALLREDUCE);
  fake().capture_streams(true);
  CHECK(call.make() == reinterpret_cast<xla::Error*>(&an_error));
  fake().capture_streams(false);
  CHECK(answers.message.find("CUDA graph") != std::string::npos);
  CHECK(answers.message.find(call.name) != std::string::npos);
  CHECK(call.make() == nullptr);  // the name can be used again
}

TEST_CASE("jax on a gpu: without a stream or a driver it says so, and submits nothing", "[nccl]") {
  const Job job(0);
  Call call(DISTRUN_ALLREDUCE);
  answers.has_no_stream = true;
  CHECK(call.make() == reinterpret_cast<xla::Error*>(&their_error));
  answers.has_no_stream = false;
  driver().missing = "the CUDA driver is not found: libcuda.so.1";
  CHECK(call.make() == reinterpret_cast<xla::Error*>(&an_error));
  driver().missing.clear();
  CHECK(answers.message.find("is not found: libcuda.so.1") != std::string::npos);
  fake().fail("cuStreamGetCtx", 400, 0, 1);
  CHECK(call.make() == reinterpret_cast<xla::Error*>(&an_error));
  CHECK(answers.message.ends_with("cuStreamGetCtx: CUDA_ERROR_FAKE"));
  CHECK(fake().calls_of({"cuEventRecord"}).empty());
  CHECK(call.make() == nullptr);
}

#if defined(DISTRUN_HAS_CUDA_H)
TEST_CASE("jax on a gpu: the driver's functions are as cuda.h has them", "[nccl]") {
#define X(member, symbol, arguments) STATIC_CHECK(test::SameCall<decltype(Cuda::member), decltype(&::symbol)>::value);
  DISTRUN_JAX_CUDA_FUNCTIONS(X)
#undef X
}
#else
TEST_CASE("jax on a gpu: the driver's functions are as cuda.h has them", "[nccl]") {
  SKIP("cuda.h is not on this machine: install the CUDA toolkit, or run scripts/test, which fetches it");
}
#endif

}  // namespace distrun::jax
