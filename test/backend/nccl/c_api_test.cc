// CUDA tensors through the C API in a world of size 1, on the plug-in over the fake.
#include <distrun/distrun.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <distrun/distrun.hpp>
#include <string>
#include <vector>

extern const char* const kNcclPlugin;

namespace {

std::string last_error() {
  distrun_error error = DISTRUN_INIT(distrun_error);
  distrun_last_error(&error);
  return error.message;
}

std::string ask(distrun_session* session, const char* what) {
  std::string text(4096, '\0');
  text.resize(static_cast<std::size_t>(distrun_query(session, what, text.data(), text.size())));
  return text;
}

// A session whose only plug-in is the one over the fake.
struct Session {
  Session() {
    const std::string setting = std::string("plugins=") + kNcclPlugin;
    const char* const settings[] = {setting.c_str()};
    distrun_options options = DISTRUN_INIT(distrun_options);
    options.settings = settings;
    options.num_settings = 1;
    REQUIRE(distrun_init(&options, &raw) == DISTRUN_OK);
  }
  ~Session() {
    CHECK(distrun_shutdown(raw) == DISTRUN_OK);
    distrun_close(raw);
  }
  distrun_session* raw = nullptr;
};

distrun_op on_gpu(distrun_kind kind, const char* name, const float* input, float* output, const int64_t* shape) {
  distrun_op op = DISTRUN_INIT(distrun_op);
  op.kind = kind;
  op.name = name;
  op.dtype = DISTRUN_FLOAT32;
  op.device_type = 1;
  op.shape = shape;
  op.ndim = 1;
  op.input = input;
  op.output = output;
  op.prescale = op.postscale = 1.0;
  op.group = -1;
  return op;
}

TEST_CASE("c api: CUDA tensors go to nccl, which says so") {
  const Session session;
  CHECK(ask(session.raw, "why").find("cuda: nccl (NCCL 2.32.3)") != std::string::npos);
  CHECK(ask(session.raw, "why").find("cpu: self") != std::string::npos);
  const int64_t shape[] = {4};
  float data[] = {1, 2, 3, 4};
  float sum[4] = {};
  distrun_op ops[] = {on_gpu(DISTRUN_ALLREDUCE, "a", data, sum, shape),
                      on_gpu(DISTRUN_ALLGATHER, "b", data, nullptr, shape)};
  ops[0].prescale = 3;
  distrun_handle* handles[2] = {};
  REQUIRE(distrun_enqueue(session.raw, ops, 2, handles) == DISTRUN_OK);
  REQUIRE(distrun_wait_all(handles, 2, 30, nullptr) == DISTRUN_OK);
  CHECK(sum[3] == 12);
  distrun_result result = DISTRUN_INIT(distrun_result);
  REQUIRE(distrun_get_result(handles[1], &result) == DISTRUN_OK);
  CHECK(result.bytes == sizeof(data));
  CHECK(std::memcmp(result.data, data, sizeof(data)) == 0);
  for (distrun_handle* handle : handles) distrun_release(handle);
}

TEST_CASE("c api: a device that there cannot be is refused") {
  const Session session;
  const int64_t shape[] = {1};
  float data[] = {1};
  distrun_op op = on_gpu(DISTRUN_ALLREDUCE, "a", data, data, shape);
  op.device_index = 1 << 20;
  distrun_handle* handle = nullptr;
  CHECK(distrun_enqueue(session.raw, &op, 1, &handle) == DISTRUN_INVALID_ARGUMENT);
  CHECK(last_error().find("no device has the number 1048576") != std::string::npos);
}

TEST_CASE("C++: a request names its GPU, and the output of an allgather is there") {
  distrun::Session session({std::string("plugins=") + kNcclPlugin});
  std::vector<float> data = {1, 2, 3, 4};
  auto reduce = distrun::Request::allreduce("a", data.data(), {2, 2}, DISTRUN_SUM);
  auto gather = distrun::Request::allgather("b", data.data(), {4});
  reduce.device = gather.device = distrun::cuda(0);
  session.submit(reduce).wait();
  distrun::Operation gathered = session.submit(gather);
  gathered.wait();
  CHECK(session.query("why").find("cuda: nccl") != std::string::npos);
  CHECK(gathered.bytes() == 4 * sizeof(float));
  CHECK(std::memcmp(gathered.data(), data.data(), gathered.bytes()) == 0);  // the memory of the fake GPU is host memory
  CHECK_THROWS_AS(gathered.values<float>(), distrun::Error);
  gather.device.index = 1 << 20;
  CHECK_THROWS_AS(session.submit(gather), distrun::Error);
}

}  // namespace
