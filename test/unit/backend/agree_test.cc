#include "runtime/backend/agree.h"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <string>

namespace distrun::backend {
namespace {

// A store where the other members answer as soon as this one waits for them, not before.
class PromptStore final : public net::Store {
 public:
  Status set(const std::string& key, const std::string& value) override {
    values[key] = value;
    return {};
  }
  Result<std::string> get(const std::string& key, TimePoint deadline) override {
    const auto found = values.find(key);
    if (deadline <= Clock::now() || found == values.end()) return Status(Errc::kTimeout, "no rank has set " + key);
    return found->second;
  }
  Result<std::int64_t> add(const std::string&, std::int64_t) override { return 0; }
  Result<std::optional<std::string>> swap(const std::string&, const std::optional<std::string>&,
                                          const std::optional<std::string>&) override {
    return std::optional<std::string>();
  }
  Result<std::int64_t> count(const std::string&) override { return 0; }
  Status erase(const std::string&, int) override { return {}; }

  std::map<std::string, std::string> values;
};

const Status kRefused(Errc::kSystem, "connection refused");
const std::string kWorked = outcome_of({});

Status agree_as(int index, const Status& mine, PromptStore& store) {
  const TimePoint used_up = Clock::now() - std::chrono::seconds(1);
  return agree("step", mine, {.id = "0", .members = {4, 5, 6}, .index = index}, store, used_up);
}

}  // namespace

TEST_CASE("agree: what has failed is told after the deadline too") {
  PromptStore store;
  store.values = {{"step/1", kWorked}, {"step/2", outcome_of(kRefused)}};
  CHECK(agree_as(0, {}, store).message() == "rank 6: connection refused");
  CHECK(status_of(store.values["step/verdict"]).message() == "rank 6: connection refused");
  CHECK(agree_as(1, {}, store).message() == "rank 6: connection refused");
  CHECK(agree_as(2, kRefused, store).message() == "rank 6: connection refused");

  store.values = {{"step/1", kWorked}, {"step/2", kWorked}};
  CHECK(agree_as(0, {}, store).ok());
  CHECK(agree_as(1, {}, store).ok());
}

TEST_CASE("agree: an error that was told counts more than a member that said nothing") {
  PromptStore store;
  store.values = {{"step/2", outcome_of(kRefused)}};
  CHECK(agree_as(0, {}, store).message() == "rank 6: connection refused");
  CHECK(agree_as(0, kRefused, store).message() == "rank 4: connection refused");
  store.values.clear();
  CHECK(agree_as(0, {}, store).message() == "rank 5: no rank has set step/1");
}

TEST_CASE("agree: a member that hears no verdict knows its own error") {
  PromptStore store;
  CHECK(agree_as(1, kRefused, store).message() == "connection refused");
  CHECK(agree_as(1, {}, store).message() == "no rank has set step/verdict");
}

TEST_CASE("agree: whether a step worked is no matter of the text") {
  CHECK(status_of(kWorked).ok());
  for (const std::string text : {"", "ok", "connection refused"}) {
    const Status back = status_of(outcome_of(Status(Errc::kSystem, text)));
    CHECK(back.code() == Errc::kUnsupported);
    CHECK(back.message() == text);
  }
  CHECK(status_of("ok").code() == Errc::kProtocol);
}

}  // namespace distrun::backend
