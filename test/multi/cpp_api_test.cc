// The C++ headers as a program uses them, with the number of ranks that the launcher starts.
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <complex>
#include <cstdint>
#include <cstring>
#include <distrun/distrun.hpp>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "test/support/temporary_file.h"

// A 16-bit float type of another library.
struct Half {
  std::uint16_t bits;
};
template <>
struct distrun::ElementType<Half> : std::integral_constant<distrun_dtype, DISTRUN_FLOAT16> {};
struct Float8 {
  std::uint8_t bits;
};
template <>
struct distrun::ElementType<Float8> : std::integral_constant<distrun_dtype, DISTRUN_FLOAT8_E5M2> {};

namespace {

using distrun::Operation;
using distrun::Request;
using Counts = std::vector<std::int64_t>;

distrun::Session* g_session = nullptr;  // one session for all cases; main opens and closes it

int rank() { return g_session->rank(); }
int size() { return g_session->size(); }

// The code of the error that `call` throws, or 0 if it returns.
template <class Call>
int code_of(const Call& call) {
  try {
    call();
  } catch (const distrun::Error& error) {
    CHECK(std::strlen(error.what()) > 0);
    return error.code;
  }
  return 0;
}

Counts from_all(std::int64_t first, std::int64_t step) {
  Counts made;
  for (int i = 0; i < size(); ++i) made.push_back(first + step * i);
  return made;
}

}  // namespace

TEST_CASE("a request has what the C API has: shape, scale, reduction, an output apart") {
  const std::vector<float> data(6, static_cast<float>(rank() + 1));
  std::vector<float> sum(6);
  auto request = Request::allreduce("scaled", sum.data(), {2, 3}, DISTRUN_SUM);
  request.input = data.data();
  request.prescale = 2.0;
  request.postscale = 0.5;
  Operation operation = g_session->submit(request);
  operation.wait();
  CHECK(sum == std::vector<float>(6, static_cast<float>(size() * (size() + 1)) / 2));
  CHECK(data.front() == static_cast<float>(rank() + 1));
  CHECK(operation.shape() == Counts{2, 3});
  CHECK(operation.bytes() == 24);
  CHECK(operation.data() == sum.data());
  CHECK_FALSE(operation.failure());
}

TEST_CASE("16-bit floats, and those of another library") {
  const auto count = static_cast<std::size_t>(size());
  const std::uint16_t halves[] = {0x3c00, 0x4000, 0x4200, 0x4400};  // 1, 2, 3, 4
  const std::uint16_t brains[] = {0x3f80, 0x4000, 0x4040, 0x4080};
  std::vector<distrun::Float16> half(3, {halves[0]});
  std::vector<distrun::BFloat16> brain(3, {brains[0]});
  std::vector<Half> own(3, {halves[0]});
  g_session->allreduce("half", half.data(), 3, DISTRUN_SUM);
  g_session->allreduce("brain", brain.data(), 3, DISTRUN_SUM);
  g_session->allreduce("own", own.data(), 3, DISTRUN_SUM);
  REQUIRE(count <= 4);
  CHECK(half[2].bits == halves[count - 1]);
  CHECK(brain[2].bits == brains[count - 1]);
  CHECK(own[2].bits == halves[count - 1]);
}

TEST_CASE("unsigned integers, complex numbers, and an 8-bit float that is only moved") {
  std::vector<std::uint64_t> large(2, std::uint64_t{1} << 63);
  g_session->allreduce("large", large.data(), 2, DISTRUN_MAX);
  CHECK(large[1] == std::uint64_t{1} << 63);
  std::vector<std::uint16_t> small(3, 2);
  g_session->allreduce("small", small.data(), 3, DISTRUN_SUM);
  CHECK(small[2] == 2 * size());
  using Complex = std::complex<float>;
  std::vector<Complex> spectrum(3, {1, static_cast<float>(rank())});
  g_session->allreduce("spectrum", spectrum.data(), 3, DISTRUN_AVERAGE);
  CHECK(spectrum[2] == Complex(1, static_cast<float>(size() - 1) / 2));
  std::vector<std::complex<double>> turned(2, {0, 1});
  g_session->allreduce("turned", turned.data(), 2, DISTRUN_PRODUCT);
  const std::complex<double> powers[] = {{0, 1}, {-1, 0}, {0, -1}, {1, 0}};
  CHECK(turned[1] == powers[(size() - 1) % 4]);
  CHECK(code_of([&] { g_session->allreduce("spectrum", spectrum.data(), 3, DISTRUN_MAX); }) ==
        DISTRUN_INVALID_ARGUMENT);
  std::vector<Float8> narrow(2, {static_cast<std::uint8_t>(rank() + 1)});
  Operation gathered = g_session->submit(Request::allgather("narrow", narrow.data(), {2}));
  gathered.wait();
  CHECK(gathered.values<Float8>().back().bits == size());
  CHECK(code_of([&] { g_session->allreduce("narrow", narrow.data(), 2, DISTRUN_SUM); }) == DISTRUN_INVALID_ARGUMENT);
}

TEST_CASE("rows of an allgather may differ, and are told with the output's shape and size") {
  const auto rows = static_cast<std::int64_t>(rank() + 1);
  const std::vector<std::int32_t> mine(static_cast<std::size_t>(2 * rows), rank());
  Operation operation = g_session->submit(Request::allgather("rows", mine.data(), {rows, 2}));
  operation.wait();
  const std::int64_t all = size() * (size() + 1) / 2;
  CHECK(operation.rows() == from_all(1, 1));
  CHECK(operation.shape() == Counts{all, 2});
  CHECK(operation.bytes() == static_cast<std::size_t>(all) * 2 * sizeof(std::int32_t));
  const auto values = operation.values<std::int32_t>();
  CHECK(values.size() == static_cast<std::size_t>(2 * all));
  CHECK(values.back() == size() - 1);
  CHECK(std::memcmp(operation.data(), values.data(), operation.bytes()) == 0);
  CHECK(code_of([&] { (void)operation.values<float>(); }) == DISTRUN_INVALID_ARGUMENT);
}

TEST_CASE("an alltoall tells how many rows came from each") {
  const std::vector<std::int64_t> splits(static_cast<std::size_t>(size()), rank() + 1);
  const std::vector<float> mine(static_cast<std::size_t>(size() * (rank() + 1)), static_cast<float>(rank()));
  Operation operation = g_session->alltoall_async("splits", mine.data(), mine.size(), splits);
  operation.wait();
  CHECK(operation.rows() == from_all(1, 1));
  CHECK(operation.bytes() == operation.values<float>().size() * sizeof(float));
  CHECK(operation.values<float>().back() == static_cast<float>(size() - 1));
}

TEST_CASE("every operation in flight at once, in a process set and in the global one") {
  std::vector<std::int32_t> everybody(static_cast<std::size_t>(size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  const int set = GENERATE(false, true) ? g_session->add_process_set(everybody, true) : 0;
  const int last = size() - 1;
  const std::vector<float> ones(static_cast<std::size_t>(size()), 1.0F);
  std::vector<float> sum = ones;
  float of_root = static_cast<float>(rank());
  std::vector<float> share(static_cast<std::size_t>(g_session->share_of(size() + 1, set)));
  const std::vector<float> longer(ones.size() + 1, 1.0F);
  std::vector<Operation> operations;
  operations.push_back(g_session->allreduce_async("sum", sum.data(), sum.size(), DISTRUN_SUM, set));
  operations.push_back(g_session->broadcast_async("root", &of_root, 1, last, set));
  operations.push_back(g_session->allgather_async("gather", ones.data(), 1, set));
  operations.push_back(g_session->alltoall_async("exchange", ones.data(), ones.size(), {}, set));
  operations.push_back(
      g_session->reducescatter_async("share", longer.data(), longer.size(), share.data(), DISTRUN_SUM, set));
  operations.push_back(g_session->barrier_async(set, "all are here"));
  distrun::wait_all(operations, 60.0);
  CHECK(sum.back() == static_cast<float>(size()));
  CHECK(of_root == static_cast<float>(last));
  CHECK(operations[2].values<float>() == ones);
  CHECK(operations[3].values<float>() == ones);
  CHECK(share == std::vector<float>(rank() == 0 ? 2 : 1, static_cast<float>(size())));
  CHECK(operations[4].shape() == Counts{rank() == 0 ? 2 : 1});
  Operation joined = g_session->join_async(set);
  joined.wait();
  CHECK(joined.rows().size() == 1);
  if (set != 0) g_session->drop_process_set(set);
}

TEST_CASE("a share that no memory has room for is an error that names the tensor and its size") {
  const double one = 1;
  const std::size_t count = std::size_t{1} << 59;
  std::string said;
  std::string tensor;
  CHECK(code_of([&] {
          try {
            (void)g_session->reducescatter("huge", &one, count, DISTRUN_SUM);
          } catch (const distrun::Error& error) {
            said = error.what();
            tensor = error.tensor;
            throw;
          }
        }) == DISTRUN_OUT_OF_MEMORY);
  CHECK(tensor == "huge");
  CHECK(said == "reducescatter 'huge': no memory for the share of this rank, " +
                    std::to_string(g_session->share_of(static_cast<std::int64_t>(count))) + " of " +
                    std::to_string(count) + " elements of 8 bytes");
}

TEST_CASE("of a group all run or none") {
  float first = 1;
  float second = 1;
  std::vector<Request> requests = {Request::allreduce("together.a", &first, {1}, DISTRUN_SUM),
                                   Request::allreduce("together.b", &second, {1}, DISTRUN_SUM)};
  for (Request& request : requests) request.group = 0;
  auto operations = g_session->submit(requests);
  distrun::wait_all(operations);
  CHECK(first + second == static_cast<float>(2 * size()));
  if (size() == 1) return;
  // Ranks disagree about the dtype of the second operation, so the first one does not run either.
  requests[1].dtype = rank() == 0 ? DISTRUN_INT32 : DISTRUN_FLOAT32;
  first = 1;
  operations = g_session->submit(requests);
  CHECK(code_of([&] { distrun::wait_all(operations); }) == DISTRUN_MISMATCH);
  CHECK(first == 1);
  for (const Operation& operation : operations) {
    REQUIRE(operation.failure());
    CHECK(operation.failure()->code == DISTRUN_MISMATCH);
  }
}

TEST_CASE("an operation of the C API, submitted as it is") {
  float values[2] = {1, 1};
  const std::int64_t shape[1] = {1};
  std::vector<distrun_op> ops(2, DISTRUN_INIT(distrun_op));
  const char* const names[2] = {"raw.a", "raw.b"};
  for (std::size_t i = 0; i < 2; ++i) {
    ops[i].kind = DISTRUN_ALLREDUCE;
    ops[i].name = names[i];
    ops[i].dtype = DISTRUN_FLOAT32;
    ops[i].reduce = DISTRUN_SUM;
    ops[i].shape = shape;
    ops[i].ndim = 1;
    ops[i].input = ops[i].output = &values[i];
    ops[i].prescale = ops[i].postscale = 1.0;
    ops[i].group = -1;
  }
  auto both = g_session->submit(ops.data(), ops.size());
  std::size_t place = distrun::wait_any(both, 60.0);
  both[place].wait();
  both[place] = Operation();
  CHECK(distrun::wait_any(both, 60.0) == 1 - place);
  g_session->submit(ops[0]).wait();
  CHECK(values[0] == static_cast<float>(size() * size()));
  CHECK(values[1] == static_cast<float>(size()));
  CHECK(g_session->submit(ops.data(), 0).empty());
}

TEST_CASE("what is wrong is refused with a sentence, and nothing is in flight") {
  float value = 1;
  CHECK(code_of([&] { (void)g_session->submit(Request::allreduce(std::string("a\0b", 3), &value, {1})); }) ==
        DISTRUN_INVALID_ARGUMENT);
  CHECK(code_of([&] {
          (void)g_session->submit({Request::allreduce("good", &value, {1}), Request::allreduce("", &value, {1})});
        }) == DISTRUN_INVALID_ARGUMENT);
  g_session->allreduce("good", &value, 1);
  Operation none;
  CHECK(code_of([&] { none.wait(); }) == DISTRUN_INVALID_ARGUMENT);
  CHECK(code_of([&] { (void)none.wait_for(0.0); }) == DISTRUN_INVALID_ARGUMENT);
  std::vector<Operation> nones(2);
  CHECK(code_of([&] { (void)distrun::wait_any(nones, 0.0); }) == DISTRUN_INVALID_ARGUMENT);
  distrun::wait_all(nones, 0.0);
}

TEST_CASE("who asks again and again whether an operation is done") {
  float value = 1;
  if (rank() == 0) {
    Operation operation = g_session->allreduce_async("asked for", &value, 1, DISTRUN_SUM);
    if (size() > 1) CHECK_FALSE(operation.wait_for(0.01));
    g_session->barrier();
    while (!operation.wait_for(0.01)) {
    }
  } else {
    g_session->barrier();
    g_session->allreduce("asked for", &value, 1, DISTRUN_SUM);
  }
  CHECK(value == static_cast<float>(size()));
}

TEST_CASE("a library takes the program's session, and leaves it open") {
  {
    distrun::Session borrowed = distrun::Session::current();
    CHECK(borrowed.get() == g_session->get());
    float value = 1;
    borrowed.allreduce("mylib/value", &value, 1, DISTRUN_SUM);
    CHECK(value == static_cast<float>(size()));
  }
  g_session->barrier();
}

TEST_CASE("a watch tells one thread what is done") {
  std::vector<float> values(20, 1.0F);
  std::vector<Operation> operations;
  for (std::size_t i = 0; i < values.size(); ++i) {
    operations.push_back(g_session->allreduce_async("watched." + std::to_string(i), &values[i], 1, DISTRUN_SUM));
  }
  distrun::Watch watch(g_session->get());
  std::size_t taken = 0;
  std::thread taker([&] {
    while (const auto tag = watch.next(60.0))
      taken += *static_cast<float*>(*tag) == static_cast<float>(size()) ? 1U : 0U;
  });
  for (std::size_t i = 0; i < values.size(); ++i) watch.add(operations[i], &values[i]);
  watch.add(operations, &values[0]);
  watch.end();
  taker.join();
  CHECK(taken == values.size() + 1);
  CHECK(code_of([&] { watch.add(operations, nullptr); }) == DISTRUN_SHUT_DOWN);
  distrun::Watch idle(g_session->get());
  CHECK(code_of([&] { (void)idle.next(0.01); }) == DISTRUN_TIMEOUT);
}

TEST_CASE("sets made apart, questions, hashes and the timeline") {
  const int set = g_session->add_process_set_apart({rank()}, 60.0);
  float value = 1;
  g_session->allreduce("alone", &value, 1, DISTRUN_SUM, set);
  CHECK(value == 1);
  CHECK(g_session->process_set_ranks(set) == std::vector<std::int32_t>{rank()});
  g_session->drop_process_set(set);
  CHECK(g_session->query("why").find("cpu: ") != std::string::npos);
  CHECK(distrun::query("backends").find("shm") != std::string::npos);
  CHECK(distrun::query("settings").size() > 255);  // longer than the buffer of the first query
  CHECK(distrun::query("no such question").empty());
  const auto mac = g_session->mac("test", "data", 4);
  CHECK(g_session->allgather("macs", mac.data(), mac.size()).back() == mac.back());
  const distrun::test::TemporaryFile own;
  std::string path = own.path();  // all ranks use rank 0's path
  g_session->broadcast("path", reinterpret_cast<std::uint8_t*>(path.data()), path.size(), 0);
  g_session->start_timeline(path);
  g_session->allreduce("told", &value, 1, DISTRUN_SUM);
  g_session->stop_timeline();
  if (rank() == 0) CHECK(own.text().find("told") != std::string::npos);
  g_session->barrier();
}

int main(int argc, char** argv) {
  bool refused = false;
  try {
    (void)distrun::Session::current();
  } catch (const distrun::Error& error) {
    refused = error.code == DISTRUN_NOT_INITIALIZED;
  }
  distrun::Session session;
  g_session = &session;
  const int failures = Catch::Session().run(argc, argv);
  session.shutdown();
  return refused ? failures : 1;
}
