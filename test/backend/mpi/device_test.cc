// Operations on GPUs over a fake of CUDA and this test's MPI, whose members are all in this process. It checks the
// order of calls, the arguments of MPI, failures and aborts. The test calls every member itself, so that it controls
// each step.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "runtime/backend/mpi/device_queue.h"
#include "runtime/backend/mpi/devices.h"
#include "runtime/backend/plugin/host_group.h"
#include "test/backend/nccl/fake_gpus.h"
#include "test/backend/nccl/fake_world.h"
#include "test/backend/record.h"

extern "C" {
extern int (*fake_mpi_isend)(const void* data, int count, void* type, int to, int tag, void* comm, void** request);
extern int (*fake_mpi_irecv)(void* data, int count, void* type, int from, int tag, void* comm, void** request);
extern int (*fake_mpi_ibarrier)(void* comm, void** request);
extern int (*fake_mpi_test)(void** request, int* done, void* status);
}

namespace distrun::backend::mpi_plugin {
namespace {

namespace fake = test::fake_gpus;

// Never destroyed, as in the plug-in.
Process& process() {
  static Process& only = []() -> Process& {
    auto& made = *new Process(plugin::host_table());
    REQUIRE(made.usable({{"OMPI_COMM_WORLD_SIZE", "1"}, {"DISTRUN_RANK", "0"}}, 1, true).ok());
    return made;
  }();
  return only;
}

// The messages of all members. Each member's communicator holds the member's number.
struct Request {
  int from = 0;
  int to = 0;
  int tag = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool sends = false;
  bool done = false;
};
struct Post {
  std::deque<std::unique_ptr<Request>> requests;
  std::vector<std::pair<const std::byte*, std::size_t>> given;  // the buffers that MPI has received
};
Post post;
int numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};

std::size_t bytes_of(void* type) {
  const auto& types = process().library().is.types;
  return size_of(static_cast<DType>(std::ranges::find(types, type) - types.begin()));
}

// A message arrives when both the send and the receive are there.
void put(Request made, void** request) {
  post.given.emplace_back(made.data, made.bytes);
  post.requests.push_back(std::make_unique<Request>(made));
  Request& mine = *post.requests.back();
  *request = &mine;
  for (const auto& other : post.requests) {
    if (other->done || other->sends == mine.sends || other->from != mine.from || other->to != mine.to) continue;
    if (other->tag != mine.tag) continue;
    REQUIRE(other->bytes == mine.bytes);
    const Request& sender = mine.sends ? mine : *other;
    const Request& receiver = mine.sends ? *other : mine;
    if (mine.bytes > 0) std::memcpy(receiver.data, sender.data, mine.bytes);
    other->done = mine.done = true;
    return;
  }
}

int number_of(void* comm) { return *static_cast<int*>(comm); }

// An MPI built with CUDA assumes that memory belongs to the current context.
void insist_on(const char* call, int gpu) {
  if (fake::current_gpu() != gpu) {
    fake::world().fault(std::string(call) + " while GPU " + std::to_string(fake::current_gpu()) + " is current, not " +
                        std::to_string(gpu));
  }
}

int send(const void* data, int count, void* type, int to, int tag, void* comm, void** request) {
  insist_on("MPI_Isend", number_of(comm));
  fake::world().note("MPI_Isend", std::to_string(count) + " to " + std::to_string(to));
  put({.from = number_of(comm),
       .to = to,
       .tag = tag,
       .data = static_cast<std::byte*>(const_cast<void*>(data)),
       .bytes = static_cast<std::size_t>(count) * bytes_of(type),
       .sends = true},
      request);
  return 0;
}

int receive(void* data, int count, void* type, int from, int tag, void* comm, void** request) {
  insist_on("MPI_Irecv", number_of(comm));
  fake::world().note("MPI_Irecv", std::to_string(count) + " from " + std::to_string(from));
  put({.from = from,
       .to = number_of(comm),
       .tag = tag,
       .data = static_cast<std::byte*>(data),
       .bytes = static_cast<std::size_t>(count) * bytes_of(type)},
      request);
  return 0;
}

int test_one(void** request, int* done, void*) {
  void* const none = process().library().is.no_request;
  if (*request != none) {
    const Request& mine = *static_cast<Request*>(*request);
    insist_on("MPI_Test", mine.sends ? mine.from : mine.to);
  }
  *done = *request == none || static_cast<Request*>(*request)->done ? 1 : 0;
  if (*done != 0) *request = none;
  return 0;
}

struct Member {
  Member(int index, int members)
      : channel{.process = &process(), .comm = &numbers[index], .index = index, .members = members},
        queue(process(), record.host()) {}
  ~Member() { CHECK_FALSE(record.twice); }
  [[nodiscard]] std::string outcome(std::uint64_t token) const { return record.outcome(token); }
  test::Record record;
  Channel channel;
  DeviceQueue queue;
};

// One member's part in an operation, with the memory that it uses. The GPU has the number of the member.
struct Op {
  Op(std::int32_t kind, int member, std::vector<std::vector<float>> its_inputs, std::size_t outputs = 0)
      : inputs(std::move(its_inputs)), output(outputs) {
    for (auto& one : inputs) {
      float* to = outputs == 0 ? one.data() : output.data();
      segments.push_back({.input = one.data(), .output = to, .count = one.size()});
    }
    raw = {.struct_size = sizeof(raw),
           .kind = kind,
           .dtype = DISTRUN_BACKEND_FLOAT32,
           .reduce = DISTRUN_BACKEND_SUM,
           .device_type = DISTRUN_BACKEND_CUDA,
           .device_index = member,
           .segments = segments.data(),
           .num_segments = segments.size(),
           .prescale = 1.0,
           .postscale = 1.0};
  }
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;
  [[nodiscard]] bool has(const std::byte* data) const {
    const auto within = [data](const std::vector<float>& of) {
      const auto* first = reinterpret_cast<const std::byte*>(of.data());
      return data >= first && data < first + of.size() * sizeof(float);
    };
    return within(output) || std::ranges::any_of(inputs, within);
  }
  std::vector<std::vector<float>> inputs;
  std::vector<float> output;
  std::vector<distrun_backend_segment> segments;
  distrun_backend_operation raw{};
};

struct Rig {
  explicit Rig(int size) {
    for (const auto& one : post.requests) one->done = true;  // requests that an earlier test case gave up
    fake_mpi_isend = &send;
    fake_mpi_irecv = &receive;
    fake_mpi_test = &test_one;
    for (int i = 0; i < size; ++i) {
      REQUIRE(find_gpu(i).ok());
      members.push_back(std::make_unique<Member>(i, size));
    }
    fake::forget_calls();
  }
  ~Rig() {
    fake::hold(false);
    CHECK(fake::faults().empty());
    post.given.clear();
  }
  void start(std::deque<Op>& ops, std::uint64_t token) {
    for (std::size_t i = 0; i < members.size(); ++i) {
      members[i]->queue.start(members[i]->channel, ops[i].raw, token);
    }
  }
  void look(int times = 40) {
    for (int i = 0; i < times; ++i) {
      for (const auto& one : members) REQUIRE(one->queue.progress().ok());
    }
  }
  // Runs the operations of all members until they complete.
  void run(std::deque<Op>& ops) {
    static std::uint64_t token = 1000;
    start(ops, ++token);
    look();
    for (const auto& one : members) CHECK(one->outcome(token) == "ok");
    for (const auto& [data, bytes] : post.given) {
      for (const Op& op : ops) CHECK_FALSE(op.has(data));
    }
    CHECK_FALSE(post.given.empty());
  }
  std::vector<std::unique_ptr<Member>> members;
};

std::deque<Op> sums(int members, const std::vector<std::vector<float>>& of_first) {
  std::deque<Op> ops;
  for (int i = 0; i < members; ++i) {
    auto values = of_first;
    for (auto& one : values) {
      for (float& value : one) value *= static_cast<float>(i + 1);
    }
    ops.emplace_back(DISTRUN_BACKEND_ALLREDUCE, i, std::move(values));
  }
  return ops;
}

const std::vector<std::string> kWork = {"cuStreamWaitEvent", "cuLaunchKernel", "cuEventRecord", "MPI_Isend",
                                        "MPI_Irecv"};

std::string number_of_stream(int gpu) {
  const auto found = find_gpu(gpu);
  REQUIRE(found.ok());
  return "s" + std::to_string(static_cast<fake::Stream*>((*found)->stream())->number);
}

// Like calls_of(), but with "s" for our stream on this GPU.
std::string work_of(int gpu) {
  std::string text = fake::calls_of(kWork);
  const std::string name = number_of_stream(gpu);
  for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos; ++at) text.replace(at, name.size(), "s");
  return text;
}

}  // namespace

TEST_CASE("mpi on GPUs: marks, pack, event, messages, unpack, event: each when what is before it is over") {
  Rig rig(2);
  fake::hold(true);
  auto ops = sums(2, {{1, 2}, {}, {3}});
  auto gpu = find_gpu(0);
  auto mark = (*gpu)->mark(nullptr);
  REQUIRE(mark.ok());
  void* marks[] = {mark->get()};
  ops[0].raw.marks = marks;
  ops[0].raw.num_marks = 1;
  fake::forget_calls();
  Member& first = *rig.members[0];
  first.queue.start(first.channel, ops[0].raw, 1);
  for (int i = 0; i < 5; ++i) REQUIRE(first.queue.progress().ok());
  const std::string packing = "cuStreamWaitEvent s; cuLaunchKernel s pack_float32 2 pieces; cuEventRecord s";
  CHECK(work_of(0) == packing);
  fake::run();
  for (int i = 0; i < 5; ++i) REQUIRE(first.queue.progress().ok());
  const std::string first_step = packing + "; MPI_Irecv 1 from 1; MPI_Isend 2 to 1";
  CHECK(work_of(0) == first_step);

  // The other member does its part. After that, nothing is sent on until the sum is ready.
  fake::hold(false);
  Member& second = *rig.members[1];
  second.queue.start(second.channel, ops[1].raw, 1);
  REQUIRE(second.queue.progress().ok());
  fake::hold(true);
  fake::forget_calls();
  for (int i = 0; i < 5; ++i) REQUIRE(first.queue.progress().ok());
  CHECK(work_of(0) == "cuLaunchKernel s combine_float32 1 pieces; cuEventRecord s");
  fake::run();
  fake::forget_calls();
  for (int i = 0; i < 5; ++i) REQUIRE(first.queue.progress().ok());
  CHECK(work_of(0) ==
        "MPI_Irecv 2 from 1; MPI_Isend 1 to 1; cuLaunchKernel s unpack_float32 2 pieces; cuEventRecord s");
  CHECK(first.outcome(1) == "in flight");
  CHECK(ops[0].inputs[0] == std::vector<float>{1, 2});
  fake::hold(false);
  rig.look();
  CHECK(first.outcome(1) == "ok");
  CHECK(second.outcome(1) == "ok");
  CHECK(ops[0].inputs == std::vector<std::vector<float>>{{3, 6}, {}, {9}});
  CHECK(ops[1].inputs == ops[0].inputs);
  (*gpu)->unmark(*std::move(mark));
}

TEST_CASE("mpi on GPUs: MPI is never given a tensor, whatever is done with it") {
  Rig rig(3);
  auto reduced = sums(3, {{1, 2, 3, 4}, {5}});
  rig.run(reduced);
  CHECK(reduced[2].inputs == std::vector<std::vector<float>>{{6, 12, 18, 24}, {30}});

  const std::uint64_t counts[] = {1, 0, 2};
  std::deque<Op> scattered;
  std::deque<Op> gathered;
  std::deque<Op> exchanged;
  std::deque<Op> cast;
  const std::uint64_t sent[3][3] = {{1, 0, 2}, {1, 1, 1}, {0, 3, 0}};
  const std::uint64_t received[3][3] = {{1, 1, 0}, {0, 1, 3}, {2, 1, 0}};
  for (int i = 0; i < 3; ++i) {
    const auto me = static_cast<std::size_t>(i);
    const auto value = static_cast<float>(i + 1);
    scattered.emplace_back(DISTRUN_BACKEND_REDUCESCATTER, i, std::vector<std::vector<float>>{{value, 2, 3 * value}},
                           std::max<std::size_t>(counts[me], 1));
    scattered.back().raw.counts = counts;
    gathered.emplace_back(DISTRUN_BACKEND_ALLGATHER, i,
                          std::vector<std::vector<float>>{std::vector<float>(counts[me], value)}, 3);
    gathered.back().raw.counts = counts;
    exchanged.emplace_back(DISTRUN_BACKEND_ALLTOALL, i,
                           std::vector<std::vector<float>>{{value, value + 10, value + 20}},
                           me == 1   ? 4
                           : me == 2 ? 3
                                     : 2);
    exchanged.back().raw.counts = sent[me];
    exchanged.back().raw.recv_counts = received[me];
    cast.emplace_back(DISTRUN_BACKEND_BROADCAST, i, std::vector<std::vector<float>>{{value, value}, {value}});
    cast.back().raw.root = 1;
  }
  rig.run(scattered);
  CHECK(scattered[0].output == std::vector<float>{6});
  CHECK(scattered[2].output == std::vector<float>{6, 18});
  rig.run(gathered);
  for (const Op& op : gathered) CHECK(op.output == std::vector<float>{1, 3, 3});
  rig.run(exchanged);
  CHECK(exchanged[0].output == std::vector<float>{1, 2});
  CHECK(exchanged[1].output == std::vector<float>{12, 3, 13, 23});
  CHECK(exchanged[2].output == std::vector<float>{11, 21, 22});
  rig.run(cast);
  for (const Op& op : cast) CHECK(op.inputs == std::vector<std::vector<float>>{{2, 2}, {2}});
}

TEST_CASE("mpi on GPUs: a group's operations go one after the other, and their memory is used again") {
  Rig rig(2);
  auto once = sums(2, {{1, 2, 3}});
  auto again = sums(2, {{4, 5}});
  fake::forget_calls();
  rig.start(once, 1);
  rig.start(again, 2);
  rig.look();
  CHECK(once[0].inputs[0] == std::vector<float>{3, 6, 9});
  CHECK(again[1].inputs[0] == std::vector<float>{12, 15});
  CHECK(fake::calls_of({"cuMemAlloc"}).empty());  // the members reuse the memory of earlier cases
}

TEST_CASE("mpi on GPUs: an average is divided and scaled at the end, a prescale comes before") {
  Rig rig(2);
  auto ops = sums(2, {{2, 4}});
  for (Op& op : ops) {
    op.raw.reduce = DISTRUN_BACKEND_AVERAGE;
    op.raw.prescale = 2;
    op.raw.postscale = 10;
  }
  rig.run(ops);
  CHECK(ops[0].inputs[0] == std::vector<float>{60, 120});
}

TEST_CASE("mpi on GPUs: a call of CUDA that fails is named, and what is on the device is waited for") {
  Rig rig(2);
  constexpr int kLaunchFailed = 719;
  auto ops = sums(2, {{1}});
  fake::hold(true);
  fake::fail("cuEventRecord", kLaunchFailed);
  rig.start(ops, 1);
  Member& first = *rig.members[0];
  const Status failed = first.queue.progress().status();
  CHECK(failed.message().find("cuda:0: cuEventRecord: ") == 0);
  // The pack kernel still reads the tensor.
  CHECK_FALSE(first.queue.give_up(failed));
  CHECK(first.outcome(1) == "in flight");
  fake::run();
  CHECK(first.queue.give_up({Errc::kAborted, "something that follows from it"}));
  CHECK(first.outcome(1) == failed.message());
  fake::hold(false);
  CHECK(rig.members[1]->queue.give_up(failed));
}

TEST_CASE("mpi on GPUs: a device that cannot tell any more is not waited for") {
  Rig rig(2);
  auto ops = sums(2, {{1}});
  rig.start(ops, 1);
  fake::fail("cuEventQuery", 719);
  Member& first = *rig.members[0];
  const Status failed = first.queue.progress().status();
  CHECK(failed.message().find("cuEventQuery") != std::string::npos);
  fake::fail("cuEventQuery", 719);
  CHECK(first.queue.give_up(failed));
  CHECK(first.outcome(1) == failed.message());
  rig.members[1]->queue.give_up(failed);
}

TEST_CASE("mpi on GPUs: what is given up between its messages is over at once, and a late message writes no tensor") {
  Rig rig(2);
  auto ops = sums(2, {{1, 2}});
  auto waiting = sums(2, {{7}});
  rig.members[0]->queue.start(rig.members[0]->channel, ops[0].raw, 1);
  rig.members[0]->queue.start(rig.members[0]->channel, waiting[0].raw, 2);
  REQUIRE(rig.members[0]->queue.progress().ok());
  const Status why(Errc::kRankLost, "rank 1 was killed");
  CHECK(rig.members[0]->queue.give_up(why));
  CHECK(rig.members[0]->outcome(1) == why.message());
  CHECK(rig.members[0]->outcome(2) == why.message());
  // Its message still arrives.
  rig.members[1]->queue.start(rig.members[1]->channel, ops[1].raw, 1);
  REQUIRE(rig.members[1]->queue.progress().ok());
  CHECK(ops[0].inputs[0] == std::vector<float>{1, 2});
  CHECK(rig.members[1]->queue.give_up(why));
}

TEST_CASE("mpi on GPUs: what is given up while it is packed or unpacked is over when the device is done with it") {
  Rig rig(1);
  auto ops = sums(1, {{1, 2}});
  fake::hold(true);
  rig.start(ops, 1);
  rig.look(3);
  Member& only = *rig.members[0];
  const Status why(Errc::kAborted, "enough");
  CHECK_FALSE(only.queue.give_up(why));
  CHECK(only.outcome(1) == "in flight");
  fake::run();
  CHECK(only.queue.give_up(why));
  CHECK(only.outcome(1) == "enough");

  auto more = sums(1, {{3}});
  rig.members[0] = std::make_unique<Member>(0, 1);
  rig.start(more, 2);
  rig.look(1);
  fake::run();
  rig.look(1);  // one member: no messages
  Member& other = *rig.members[0];
  CHECK_FALSE(other.queue.give_up(why));
  fake::run();
  CHECK(other.queue.give_up(why));
  CHECK(other.outcome(2) == "enough");
}

}  // namespace distrun::backend::mpi_plugin
