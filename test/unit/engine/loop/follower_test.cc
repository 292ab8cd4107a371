#include "runtime/engine/follower.h"

#include <catch2/catch_test_macros.hpp>
#include <memory>

#include "test/support/fake_backend.h"

namespace distrun::engine {
namespace {

class Provider final : public BackendProvider {
 public:
  bool breaks = false;  // making a backend fails
  std::vector<int> sets_gone;
  std::vector<int> sets_settled;

  Result<std::vector<std::unique_ptr<backend::Backend>>> make(int set, const std::vector<int>& members) override {
    if (breaks) return Status(Errc::kSystem, "no memory");
    std::vector<std::unique_ptr<backend::Backend>> backends;
    backends.push_back(fabric_.backend(set, members, 0));
    return backends;
  }
  void set_decided(int set) override { sets_settled.push_back(set); }
  void gone(int set) override { sets_gone.push_back(set); }

 private:
  test::FakeFabric fabric_{[](int) {}};
};

// A rank that is alone in its job.
struct Alone {
  Provider provider;
  EngineOptions options{.hosts = {"a"}, .backends = &provider};
  TensorTable table{0};
  WakeWord news;
  Follower follower{options, table, news};
  std::vector<float> memory = std::vector<float>(4, 2.0F);
  std::vector<Message> said;

  Alone() { REQUIRE(follower.open().ok()); }

  HandlePtr submit(const std::string& name, int set = 0) {
    const Submission one{
        .name = name, .shape = {4}, .process_set = set, .input = memory.data(), .output = memory.data()};
    auto handles = table.submit(std::span(&one, 1), Clock::now());
    REQUIRE(handles.ok());
    follower.submit(said);
    return handles->front();
  }
  std::shared_ptr<CallTicket> call(Call call) {
    auto ticket = std::make_shared<CallTicket>();
    follower.call({.call = std::move(call), .ticket = ticket}, said);
    return ticket;
  }
  Follower::Followed follow(Entry entry) { return follower.follow(entry); }
  void finish() {
    for (int turn = 0; turn < 100 && !follower.executor().idle(); ++turn) follower.progress(true);
    follower.complete();
  }
};

Entry run_of(const std::string& name, int set = 0) {
  return entry::Run{.set = set, .tensors = {{.name = name, .first_dims = {}}}};
}

TEST_CASE("what is submitted is announced, runs when the log says so, and completes") {
  Alone rank;
  const HandlePtr handle = rank.submit("x");
  REQUIRE(rank.said.size() == 1);
  CHECK(std::get<message::Submitted>(rank.said.front()).name == "x");
  CHECK(rank.follower.first_tensor() == "x");
  CHECK(rank.follower.oldest_work({}, {})->what == "allreduce 'x'");
  CHECK_FALSE(rank.follower.oldest_work({}, {})->running);
  CHECK(rank.follow(run_of("x")).failure.ok());
  CHECK_FALSE(handle->done());
  rank.finish();
  CHECK(handle->done());
  CHECK(handle->status().ok());
  CHECK(rank.follower.nothing_in_flight());
  CHECK_FALSE(rank.follower.complete());
}

TEST_CASE("a log that names what is not there is broken") {
  Alone rank;
  CHECK(rank.follow(run_of("never")).failure.code() == Errc::kProtocol);
  CHECK(rank.follow(entry::EndCall{}).failure.code() == Errc::kProtocol);
  CHECK(rank.follow(entry::EndCall{.ranks = {1}}).failure.ok());  // for other ranks
}

TEST_CASE("a tensor that fails completes with the error, on the ranks that are meant") {
  Alone rank;
  const HandlePtr handle = rank.submit("x");
  const Status why(Errc::kMismatch, "shapes differ");
  rank.follow(entry::Fail{.set = 0, .name = "x", .error = why, .ranks = {1}});
  CHECK_FALSE(rank.follower.complete());
  rank.follow(entry::Fail{.set = 0, .name = "x", .error = why, .ranks = {}});
  CHECK(rank.follower.complete());
  CHECK(handle->status().code() == Errc::kMismatch);
}

TEST_CASE("a set is made, used, removed, and its backends go when nothing of it is in flight") {
  Alone rank;
  const auto add = rank.call({.kind = Call::Kind::kAddSet, .ranks = {0}});
  CHECK(rank.follower.oldest_call() == "adding a process set of ranks 0");
  const auto followed = rank.follow(entry::MakeSet{.set = 5, .ranks = {0}});
  REQUIRE(followed.made);
  CHECK(followed.made->set == 5);
  CHECK(followed.made->result.ok());
  rank.follow(entry::EndCall{.set = 5});
  CHECK(add->done());
  CHECK(add->set() == 5);
  CHECK(rank.provider.sets_settled == std::vector{5});
  rank.submit("x", 5);
  rank.follow(run_of("x", 5));
  rank.follow(entry::RemoveSet{.set = 5});
  rank.follower.retire_sets();
  CHECK(rank.provider.sets_gone.empty());
  rank.finish();
  rank.follower.retire_sets();
  CHECK(rank.provider.sets_gone == std::vector{5});
}

TEST_CASE("a set whose backends cannot be made is reported and goes again") {
  Alone rank;
  rank.provider.breaks = true;
  const auto add = rank.call({.kind = Call::Kind::kAddSet, .ranks = {0}});
  const auto followed = rank.follow(entry::MakeSet{.set = 5, .ranks = {0}});
  REQUIRE(followed.made);
  CHECK(followed.made->result.code() == Errc::kSystem);
  rank.follow(entry::EndCall{.result = followed.made->result, .set = 5});
  CHECK(add->status().code() == Errc::kSystem);
  CHECK(rank.provider.sets_gone == std::vector{5});
}

TEST_CASE("a set that nobody here asked for is not made") {
  Alone rank;
  CHECK(rank.follow(entry::MakeSet{.set = 5, .ranks = {0}, .unordered = true}).failure.code() == Errc::kProtocol);
  CHECK_FALSE(rank.follow(entry::MakeSet{.set = 6, .ranks = {1}, .members_only = true}).made);
}

TEST_CASE("a failure ends calls at once and tensors once nothing touches them") {
  Alone rank;
  const HandlePtr waits = rank.submit("waits");
  const auto add = rank.call({.kind = Call::Kind::kAddSet, .ranks = {0}});
  const Status why(Errc::kRankLost, "rank 1 died");
  rank.follower.fail(why);
  CHECK(add->status().code() == Errc::kRankLost);
  CHECK_FALSE(waits->done());
  rank.follower.complete_all(why);
  CHECK(waits->status().code() == Errc::kRankLost);
}

TEST_CASE("what has lasted longest: what runs, then stopping, then what waits, then a shutdown") {
  Alone rank;
  const TimePoint then = Clock::now();
  CHECK_FALSE(rank.follower.oldest_work({}, {}));
  CHECK(rank.follower.oldest_work({}, then)->what == "shutdown");
  rank.call({.kind = Call::Kind::kRemoveSet, .set = 1, .unordered = true});  // no caller waits for it
  CHECK_FALSE(rank.follower.oldest_work({}, {}));
  rank.submit("x");
  CHECK(rank.follower.oldest_work({}, then)->what == "allreduce 'x'");
  CHECK(rank.follower.oldest_work(then, then)->what == "should_stop()");
  rank.follow(run_of("x"));
  CHECK(rank.follower.oldest_work(then, then)->running);
  CHECK(rank.follower.oldest_work(then, then)->what == "allreduce 'x'");
  rank.finish();
}

TEST_CASE("events are recorded between start and stop") {
  Alone rank;
  rank.follower.start_recording();
  rank.submit("x");
  rank.follow(run_of("x"));
  rank.finish();
  CHECK(rank.follower.events_due());
  CHECK(rank.follower.take_events().size() == 3);
  rank.submit("y");
  rank.follow(run_of("y"));
  rank.finish();
  rank.follower.stop_recording();
  CHECK(rank.follower.take_events().empty());
}

}  // namespace
}  // namespace distrun::engine
