// How the JAX handler reads a call, and which call may use a name.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/jax/names.h"
#include "bindings/jax/request.h"

using namespace distrun::jax;
using Claim = Names<int>::Claim;

namespace {

constexpr int kF32 = 11;
constexpr int kS64 = 5;
constexpr int kF64 = 12;

// Attributes in XLA's layout.
class Attributes {
 public:
  void text(const std::string& name, const std::string& value) {
    texts_.push_back(std::make_unique<std::string>(value));
    spans_.push_back(std::make_unique<xla::ByteSpan>(xla::ByteSpan{texts_.back()->data(), texts_.back()->size()}));
    add(name, xla::kStringAttribute, spans_.back().get());
  }
  template <class T>
  void number(const std::string& name, int type, T value) {
    auto held = std::make_shared<T>(value);
    values_held_.push_back(held);
    scalars_.push_back(std::make_unique<xla::Scalar>(xla::Scalar{type, held.get()}));
    add(name, xla::kScalarAttribute, scalars_.back().get());
  }
  xla::Attributes get() {
    return {.struct_size = sizeof(xla::Attributes),
            .extension = nullptr,
            .size = static_cast<std::int64_t>(types_.size()),
            .types = types_.data(),
            .names = names_.data(),
            .values = values_.data()};
  }

 private:
  void add(const std::string& name, int type, void* value) {
    texts_.push_back(std::make_unique<std::string>(name));
    spans_.push_back(std::make_unique<xla::ByteSpan>(xla::ByteSpan{texts_.back()->data(), texts_.back()->size()}));
    types_.push_back(type);
    names_.push_back(spans_.back().get());
    values_.push_back(value);
  }

  std::vector<int> types_;
  std::vector<xla::ByteSpan*> names_;
  std::vector<void*> values_;
  std::vector<std::unique_ptr<std::string>> texts_;
  std::vector<std::unique_ptr<xla::ByteSpan>> spans_;
  std::vector<std::unique_ptr<xla::Scalar>> scalars_;
  std::vector<std::shared_ptr<void>> values_held_;
};

// `count` float32 tensors of shape [3]. Each tensor is also its own result.
struct Call {
  std::array<std::int64_t, 1> shape = {3};
  std::vector<xla::Buffer> buffers;
  std::vector<void*> values;
  std::vector<float> memory;
  xla::CallFrame frame = {};

  explicit Call(std::size_t count, int dtype = kF32) : memory(3 * count) {
    for (std::size_t i = 0; i < count; ++i) {
      buffers.push_back({sizeof(xla::Buffer), nullptr, dtype, &memory[3 * i], 1, shape.data()});
    }
    for (xla::Buffer& buffer : buffers) values.push_back(&buffer);
    frame.arguments = {sizeof(xla::Buffers), nullptr, static_cast<std::int64_t>(count), nullptr, values.data()};
    frame.results = frame.arguments;
  }
};

}  // namespace

TEST_CASE("attributes of a compiled program are read, whatever their order") {
  Attributes attributes;
  attributes.number<std::int64_t>("root", kS64, 3);
  attributes.text("name", "broadcast.step.0");
  attributes.number<std::int64_t>("kind", kS64, DISTRUN_BROADCAST);
  attributes.number<double>("prescale", kF64, 0.5);
  Request request;
  CHECK(read_attributes(attributes.get(), request).empty());
  CHECK(request.name == "broadcast.step.0");
  CHECK(request.kind == DISTRUN_BROADCAST);
  CHECK(request.root == 3);
  CHECK(request.prescale == 0.5);
  CHECK(request.postscale == 1.0);
}

TEST_CASE("what another version has compiled is refused by the attribute's name") {
  Attributes attributes;
  attributes.text("name", "x");
  attributes.number<std::int64_t>("colour", kS64, 1);
  Request request;
  CHECK(read_attributes(attributes.get(), request).find("'colour'") != std::string::npos);
  Attributes wrong_type;
  wrong_type.number<std::int64_t>("prescale", kS64, 1);
  CHECK(read_attributes(wrong_type.get(), request).find("'prescale'") != std::string::npos);
  Request nameless;
  CHECK(read_attributes(Attributes().get(), nameless).find("no name") != std::string::npos);
}

TEST_CASE("each result becomes an operation; several run all or none") {
  Request request;
  request.name = "allreduce.step.0";
  std::vector<std::string> names;
  std::vector<distrun_op> operations;
  Call one(1);
  CHECK(make_operations(request, one.frame, names, operations).empty());
  REQUIRE(operations.size() == 1);
  CHECK(std::string(operations[0].name) == "allreduce.step.0");
  CHECK(operations[0].group == -1);
  CHECK(operations[0].dtype == DISTRUN_FLOAT32);
  CHECK(operations[0].output == one.memory.data());
  CHECK(bytes_of(one.buffers[0], DISTRUN_FLOAT32) == 12);

  names.clear();
  operations.clear();
  Call three(3);
  CHECK(make_operations(request, three.frame, names, operations).empty());
  REQUIRE(operations.size() == 3);
  CHECK(std::string(operations[2].name) == "allreduce.step.0_3of0");
  CHECK(operations[2].group == 0);
}

TEST_CASE("an argument more is the place in the program's order, and does not travel") {
  Request request;
  request.name = "allreduce.step.1";
  std::vector<std::string> names;
  std::vector<distrun_op> operations;
  Call call(2);
  call.frame.results.size = 1;
  CHECK(make_operations(request, call.frame, names, operations).empty());
  REQUIRE(operations.size() == 1);
  CHECK(std::string(operations[0].name) == "allreduce.step.1");
  CHECK(operations[0].group == -1);

  Call other(3);
  other.frame.results.size = 1;
  CHECK(make_operations(request, other.frame, names, operations).find("3 arguments") != std::string::npos);
}

TEST_CASE("a result that the runtime makes has no output") {
  Request request;
  request.name = "gather";
  request.kind = DISTRUN_ALLGATHER;
  std::vector<std::string> names;
  std::vector<distrun_op> operations;
  Call call(1);
  CHECK(make_operations(request, call.frame, names, operations).empty());
  CHECK(operations[0].output == nullptr);
}

// Tuples, tokens and integers of 4 bits are types of XLA too.
TEST_CASE("types that cannot be sent are refused, unknown numbers too") {
  Request request;
  request.name = "x";
  for (const int type : {0, 13, 17, 21, 99, -1}) {
    std::vector<std::string> names;
    std::vector<distrun_op> operations;
    Call call(1, type);
    CHECK(make_operations(request, call.frame, names, operations).find("cannot send arrays of") != std::string::npos);
  }
}

TEST_CASE("a name is one call's at a time, and passes on in order") {
  Names<int> names;
  auto mine = std::make_unique<int>(1);
  auto second = std::make_unique<int>(2);
  auto third = std::make_unique<int>(3);
  int prepared = 0;
  const auto before = [&](int) { ++prepared; };
  CHECK(names.claim("x", 10, mine, before) == Claim::kMine);
  CHECK(mine != nullptr);
  CHECK(names.claim("x", 11, second, before) == Claim::kLater);
  CHECK(names.claim("x", 12, third, before) == Claim::kLater);
  CHECK(prepared == 2);
  CHECK(second == nullptr);
  CHECK(*names.free("x") == 2);
  CHECK(*names.free("x") == 3);
  CHECK(names.free("x") == nullptr);
  CHECK(names.claim("x", 10, mine, before) == Claim::kMine);
}

TEST_CASE("one run of a program cannot have a name in flight twice") {
  Names<int> names;
  auto mine = std::make_unique<int>(1);
  auto other = std::make_unique<int>(2);
  auto again = std::make_unique<int>(3);
  const auto before = [](int) {};
  CHECK(names.claim("x", 10, mine, before) == Claim::kMine);
  CHECK(names.claim("x", 10, other, before) == Claim::kTwiceInOneRun);
  CHECK(other != nullptr);
  CHECK(names.claim("x", 11, other, before) == Claim::kLater);
  CHECK(names.claim("x", 11, again, before) == Claim::kTwiceInOneRun);
  SECTION("unless runs are not known") {
    Names<int> unknown;
    auto one = std::make_unique<int>(1);
    auto two = std::make_unique<int>(2);
    CHECK(unknown.claim("x", 0, one, before) == Claim::kMine);
    CHECK(unknown.claim("x", 0, two, before) == Claim::kLater);
  }
}
