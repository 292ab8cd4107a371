#include "runtime/api/backends/why.h"

#include <catch2/catch_test_macros.hpp>
#include <map>

#include "runtime/base/json.h"

namespace distrun::api {
namespace {

using backend::LoserCode;
using backend::Offer;

Offer offer(const std::string& name, int score) {
  return {
      .backend = name, .available = true, .reason = name + " works", .score = score, .capabilities = {.devices = 1}};
}

Choice choice_of(const std::vector<std::vector<Offer>>& offers, const std::string& setting = "auto") {
  std::vector<int> members;
  std::vector<std::string> hosts;
  for (std::size_t i = 0; i < offers.size(); ++i) {
    members.push_back(static_cast<int>(i) + 3);
    hosts.push_back("node" + std::to_string(i + 3));
  }
  auto selection = backend::select(DeviceType::kCpu, offers, members, hosts, setting, true);
  REQUIRE(selection.ok());
  return {.process_set = 2, .device = DeviceType::kCpu, .selection = *std::move(selection)};
}

Offer absent(const std::string& name, backend::Absence why) {
  Offer out = offer(name, 0);
  out.available = false;
  out.absence = why;
  out.reason = "a \"library\" is missing";
  return out;
}

TEST_CASE("the text and the JSON have the same facts", "[api]") {
  const Choice choice =
      choice_of({{offer("shm", 80), offer("tcp", 50)}, {offer("shm", 80), absent("mpi", {}), offer("tcp", 40)}});
  CHECK(to_text(choice) ==
        "process set 2: cpu: shm (shm works)\n  not mpi: rank 3 (node3): it is not installed\n  "
        "not tcp: lower score (40 < 80)");
  const std::string json = to_json(std::vector{choice});
  CHECK(json == R"([{"process_set": 2, "device": "cpu", "backend": "shm", )"
                R"("chosen": {"code": "highest_score", "reason": "shm works", "score": 80}, "losers": [)"
                R"({"backend": "mpi", "code": "not_offered", "reason": "rank 3 (node3): it is not installed", )"
                R"("rank": 3, "host": "node3"}, )"
                R"j({"backend": "tcp", "code": "lower_score", "reason": "lower score (40 < 80)", "score": 40}]}])j");
  CHECK(parse_json(json));
  CHECK(to_json(std::vector<Choice>{}) == "[]");
}

TEST_CASE("a loser's code says what kind of reason it is", "[api]") {
  using backend::Absence;
  Offer elsewhere = offer("gpus", 90);
  elsewhere.capabilities.devices = 2;
  Offer idle = offer("idle", 90);
  idle.nothing_to_do = "one host";
  const Choice choice =
      choice_of({{offer("b", 50), offer("c", 50), offer("d", 10), elsewhere, idle, absent("missing", Absence::kMissing),
                  absent("set", Absence::kUnmetSetting), absent("tried", Absence::kSetUpFailed)}});
  CHECK(choice.selection.backend == "b");
  CHECK_FALSE(choice.selection.set);
  std::map<std::string, LoserCode> codes;
  for (const backend::Loser& loser : choice.selection.losers) codes[loser.backend] = loser.code;
  CHECK(codes == std::map<std::string, LoserCode>{{"c", LoserCode::kSameScore},
                                                  {"d", LoserCode::kLowerScore},
                                                  {"gpus", LoserCode::kNoDevice},
                                                  {"idle", LoserCode::kNothingToDo},
                                                  {"missing", LoserCode::kMissing},
                                                  {"set", LoserCode::kUnmetSetting},
                                                  {"tried", LoserCode::kSetUpFailed}});
  CHECK(parse_json(to_json(std::vector{choice})));  // the reasons contain quotes
}

TEST_CASE("a backend that the setting names says so, and so do the others", "[api]") {
  const Choice choice = choice_of({{offer("shm", 80), offer("tcp", 50)}}, "tcp");
  CHECK(choice.selection.set);
  CHECK(choice.selection.score == 50);
  REQUIRE(choice.selection.losers.size() == 1);
  CHECK(choice.selection.losers[0].code == LoserCode::kNotTheOneSet);
  CHECK(to_json(std::vector{choice}).find(R"("chosen": {"code": "set", "reason": "chosen by --backend tcp")") !=
        std::string::npos);
}

TEST_CASE("of two members with versions that differ the second is named", "[api]") {
  Offer other = offer("mpi", 90);
  other.capabilities.exclusive = true;
  const Choice choice = choice_of({{offer("mpi", 90), offer("tcp", 50)}, {other, offer("tcp", 50)}});
  REQUIRE(choice.selection.losers.size() == 1);
  CHECK(choice.selection.losers[0].code == LoserCode::kOtherVersion);
  CHECK(choice.selection.losers[0].rank == 4);
  CHECK(choice.selection.losers[0].host == "node4");
}

}  // namespace
}  // namespace distrun::api
