// CUDA tensors through the C API between ranks that mpirun has started. The plug-in runs over the fake of CUDA. The
// tests cover the engine's work around a backend (fusion, scales, allocated outputs, join, process sets) for device
// tensors.
#include <distrun/distrun.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

extern const char* const kMpiGpuPlugin;

namespace {

std::string last_error() {
  distrun_error error = DISTRUN_INIT(distrun_error);
  distrun_last_error(&error);
  return error.message;
}

struct Session {
  Session() {
    const std::string plugins = std::string("plugins=") + kMpiGpuPlugin;
    const char* const settings[] = {plugins.c_str(), "backend=cuda:mpi"};
    distrun_options options = DISTRUN_INIT(distrun_options);
    options.settings = settings;
    options.num_settings = 2;
    const int32_t code = distrun_init(&options, &raw);
    INFO(last_error());
    REQUIRE(code == DISTRUN_OK);
    distrun_world world = DISTRUN_INIT(distrun_world);
    REQUIRE(distrun_get_world(raw, &world) == DISTRUN_OK);
    rank = world.rank;
    size = world.size;
  }
  ~Session() {
    CHECK(distrun_shutdown(raw) == DISTRUN_OK);
    distrun_close(raw);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  distrun_session* raw = nullptr;
  int rank = 0;
  int size = 1;
};

// One operation on this rank's GPU, with the memory that it uses.
struct Op {
  Op(distrun_kind kind, std::string its_name, std::vector<float> values)
      : name(std::move(its_name)), data(std::move(values)), shape{static_cast<int64_t>(data.size())} {
    raw = DISTRUN_INIT(distrun_op);
    raw.kind = kind;
    raw.dtype = DISTRUN_FLOAT32;
    raw.device_type = 1;
    raw.ndim = 1;
    raw.prescale = raw.postscale = 1.0;
    raw.group = -1;
  }
  distrun_op ready(int gpu) {
    raw.name = name.c_str();
    raw.shape = shape;
    raw.input = data.data();
    raw.output = raw.kind == DISTRUN_ALLGATHER ? nullptr : data.data();
    raw.device_index = gpu;
    return raw;
  }
  std::string name;
  std::vector<float> data;
  int64_t shape[1];
  distrun_op raw;
};

// Submits all operations at once and returns the gathered values.
std::vector<float> run(const Session& session, const std::vector<Op*>& ops) {
  std::vector<distrun_op> raw;
  for (Op* op : ops) raw.push_back(op->ready(session.rank));
  std::vector<distrun_handle*> handles(raw.size());
  REQUIRE(distrun_enqueue(session.raw, raw.data(), raw.size(), handles.data()) == DISTRUN_OK);
  const int32_t code = distrun_wait_all(handles.data(), handles.size(), 60, nullptr);
  INFO(last_error());
  REQUIRE(code == DISTRUN_OK);
  std::vector<float> gathered;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    distrun_result result = DISTRUN_INIT(distrun_result);
    if (raw[i].kind == DISTRUN_ALLGATHER) {
      REQUIRE(distrun_get_result(handles[i], &result) == DISTRUN_OK);
      gathered.resize(result.bytes / sizeof(float));
      std::memcpy(gathered.data(), result.data, result.bytes);
    }
    distrun_release(handles[i]);
  }
  return gathered;
}

void join(const Session& session) {
  distrun_op op = DISTRUN_INIT(distrun_op);
  op.kind = DISTRUN_JOIN;
  op.prescale = op.postscale = 1.0;
  op.group = -1;
  op.device_type = 1;
  op.device_index = session.rank;
  distrun_handle* handle = nullptr;
  REQUIRE(distrun_enqueue(session.raw, &op, 1, &handle) == DISTRUN_OK);
  REQUIRE(distrun_wait(handle, 60) == DISTRUN_OK);
  distrun_release(handle);
}

// The sum 1 + 2 + ... + size.
float sum_of_ranks(const Session& session) { return static_cast<float>(session.size * (session.size + 1)) / 2.0F; }

}  // namespace

TEST_CASE("c api: CUDA tensors by a GPU-aware MPI: fused, scaled, gathered, in process sets, after a join") {
  const Session session;
  std::string why(8192, '\0');
  why.resize(static_cast<std::size_t>(distrun_query(session.raw, "why", why.data(), why.size())));
  INFO(why);
  CHECK(why.find("cuda: mpi (chosen by --backend cuda:mpi)") != std::string::npos);
  CHECK(why.find("cpu: mpi") == std::string::npos);
  const auto mine = static_cast<float>(session.rank + 1);
  const float all = sum_of_ranks(session);

  Op one(DISTRUN_ALLREDUCE, "one", {mine, 2 * mine});
  Op two(DISTRUN_ALLREDUCE, "two", std::vector<float>(1000, mine));
  Op average(DISTRUN_ALLREDUCE, "average", {mine});
  average.raw.reduce = DISTRUN_AVERAGE;
  one.raw.prescale = two.raw.prescale = 3.0;
  run(session, {&one, &two, &average});
  CHECK(one.data == std::vector<float>{3 * all, 6 * all});
  CHECK(two.data == std::vector<float>(1000, 3 * all));
  CHECK(average.data[0] == all / static_cast<float>(session.size));

  std::vector<float> rows;
  for (int rank = 0; rank < session.size; ++rank) {
    rows.insert(rows.end(), static_cast<std::size_t>(rank + 1), static_cast<float>(rank + 1));
  }
  Op blocks(DISTRUN_ALLGATHER, "blocks", std::vector<float>(static_cast<std::size_t>(session.rank + 1), mine));
  CHECK(run(session, {&blocks}) == rows);

  std::vector<int32_t> members(static_cast<std::size_t>(session.size - 1));
  std::iota(members.begin(), members.end(), 1);  // all ranks except 0
  int32_t set = 0;
  REQUIRE(distrun_process_set_add(session.raw, members.data(), members.size(), &set) == DISTRUN_OK);
  if (session.rank > 0) {
    Op inside(DISTRUN_ALLREDUCE, "inside", {mine});
    inside.raw.process_set = set;
    run(session, {&inside});
    CHECK(inside.data[0] == all - 1);
  }

  if (session.rank == 0) {  // the other ranks have joined
    Op alone(DISTRUN_ALLREDUCE, "one", {7, 8});
    alone.raw.prescale = 3.0;
    run(session, {&alone});
    CHECK(alone.data == std::vector<float>{21, 24});
  }
  join(session);
  REQUIRE(distrun_process_set_remove(session.raw, set) == DISTRUN_OK);
}
