#include "runtime/api/join/control.h"

#include <catch2/catch_test_macros.hpp>

#include "runtime/api/join/exchange.h"
#include "test/support/fake_store.h"

namespace distrun::api {
namespace {

using Answer = SharedControl::Answer;

TEST_CASE("an answer survives the store, and damaged ones are refused", "[api]") {
  for (const Answer answer : {Answer::kYes, Answer::kTcpWasSet, Answer::kSeveralHosts, Answer::kNoSharedMemory}) {
    const SharedControl one{.answer = answer, .reason = "memfd_create: not permitted"};
    const std::string bytes = encode(one);
    const auto back = decode_shared_control(bytes);
    REQUIRE(back.ok());
    CHECK(*back == one);
    CHECK_FALSE(decode_shared_control(bytes + "x").ok());
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      CHECK_FALSE(decode_shared_control(bytes.substr(0, length)).ok());
    }
  }
  std::string unknown = encode({});
  unknown[0] = 4;
  CHECK_FALSE(decode_shared_control(unknown).ok());
}

TEST_CASE("the first rank that refuses is named, and only faults are worth a warning", "[api]") {
  CHECK(refusal_of_any({{}, {}}).empty());
  const std::vector<SharedControl> answers = {{},
                                              {.answer = Answer::kSeveralHosts, .reason = "several hosts"},
                                              {.answer = Answer::kNoSharedMemory, .reason = "no memfd"},
                                              {.answer = Answer::kTcpWasSet, .reason = "control=tcp was set"}};
  CHECK(refusal_of_any(answers) == "rank 1: several hosts");
  CHECK(faults_of(answers) == std::vector<std::string>{"", "", "no memfd", ""});
}

TEST_CASE("control=shm is an error where a rank has no shared memory, with the reason", "[api]") {
  const net::World world{.rank = 0, .size = 2};
  test::FakeStore store;
  REQUIRE(store.set("control/1", encode({.answer = Answer::kNoSharedMemory, .reason = "no memfd"})).ok());
  auto wait_set = net::WaitSet::create();
  REQUIRE(wait_set.ok());
  std::vector<std::string> lines;
  const Log log("warning", 0, [&](const std::string& line) { lines.push_back(line); });
  const auto control = choose_control({.world = world,
                                       .key = nullptr,
                                       .store = store,
                                       .wait_set = **wait_set,
                                       .host_link = nullptr,
                                       .host_link_error = "the link failed",
                                       .setting = "shm",
                                       .hosts = {"node0", "node0"},
                                       .log = log},
                                      deadline_after(5));
  REQUIRE_FALSE(control.ok());
  CHECK(control.status().code() == Errc::kUnsupported);
  CHECK(control.status().message() == "control=shm is not possible here: rank 0: the link failed");
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("the ranks of node0 cannot share memory on their host") != std::string::npos);
}

}  // namespace
}  // namespace distrun::api
