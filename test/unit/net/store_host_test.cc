#include "runtime/net/store/store_host.h"

#include <poll.h>

#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "runtime/net/store/store_client.h"

namespace distrun::net {
namespace {

using Kind = StoreNotice::Kind;

TEST_CASE("a rank that goes without a word has failed, and only the first failure is told", "[net]") {
  StoreJudge judge;
  for (const int rank : {0, 1, 2}) CHECK_FALSE(judge.decide({.kind = Kind::kJoined, .rank = rank, .pid = 100 + rank}));
  CHECK_FALSE(judge.decide({.kind = Kind::kLeft, .rank = 1}));
  CHECK_FALSE(judge.decide({.kind = Kind::kDisconnected, .rank = 1}));
  CHECK(judge.in_session() == 2);
  const auto event = judge.decide({.kind = Kind::kDisconnected, .rank = 2, .pid = 102});
  REQUIRE(event);
  CHECK(event->kind == JobEvent::Kind::kRankFailed);
  CHECK(event->rank == 2);
  CHECK(event->cause.find("pid 102") != std::string::npos);
  CHECK_FALSE(judge.decide({.kind = Kind::kDisconnected, .rank = 0}));
  CHECK(judge.in_session() == 0);
}

TEST_CASE("what ranks say of themselves and of others is passed on", "[net]") {
  const auto event_for = [](Kind kind) {
    StoreJudge judge;
    return judge.decide({.kind = kind, .rank = 3, .failure = {.cause = "why"}, .missed = {.ranks = {3}}});
  };
  CHECK(event_for(Kind::kFailed)->cause == "why");
  CHECK(event_for(Kind::kFailed)->kind == JobEvent::Kind::kRankRaised);
  CHECK(event_for(Kind::kLeftEarly)->kind == JobEvent::Kind::kRankLeft);
  CHECK(event_for(Kind::kStalled)->cause == "blocked the other ranks: why");
  CHECK_FALSE(event_for(Kind::kRefused));
  CHECK_FALSE(event_for(Kind::kNoProgress));
  StoreJudge judge;
  for (const int rank : {0, 1}) CHECK_FALSE(judge.decide({.kind = Kind::kJoined, .rank = rank}));
  CHECK_FALSE(judge.decide({.kind = Kind::kFollows, .rank = 0}));  // it names no rank
  CHECK(judge.decide({.kind = Kind::kFollows, .rank = 0, .missed = {.ranks = {1}}})->rank == 1);
  CHECK_FALSE(judge.decide({.kind = Kind::kDisconnected, .rank = 0}));
}

class Keeper {
 public:
  explicit Keeper(int size) : size_(size) {
    auto host = StoreHost::start(key_, "job", size, 5);
    REQUIRE(host.ok());
    host_ = *std::move(host);
  }
  std::unique_ptr<StoreClient> connect(int rank) {
    World world{.rank = rank, .size = size_, .job_id = "job"};
    world.store = "127.0.0.1:" + std::to_string(host_->port());
    auto client = StoreClient::connect(world, key_, deadline_after(20), 0);
    REQUIRE(client.ok());
    return *std::move(client);
  }
  StoreHost& operator*() { return *host_; }
  void stop() { host_.reset(); }

 private:
  const int size_;
  const JobKey key_ = JobKey::generate();
  std::unique_ptr<StoreHost> host_;
};

std::vector<JobEvent> next_events(StoreClient& client) {
  pollfd item{.fd = client.fd(), .events = POLLIN, .revents = 0};
  REQUIRE(::poll(&item, 1, 20000) == 1);
  auto events = client.receive();
  REQUIRE(events.ok());
  return *std::move(events);
}

TEST_CASE("rank 0 keeps the store and tells of deaths", "[net]") {
  Keeper keeper(2);
  const auto first = keeper.connect(0);
  auto second = keeper.connect(1);
  REQUIRE(second->set("a", "b").ok());
  CHECK(*first->get("a", deadline_after(20)) == "b");
  second.reset();
  const auto events = next_events(*first);
  REQUIRE(events.size() == 1);
  CHECK(events[0].rank == 1);
  (*keeper).wait_until_published(deadline_after(20));
}

TEST_CASE("the keeper waits until the last one has left", "[net]") {
  Keeper keeper(2);
  const auto first = keeper.connect(0);
  const auto second = keeper.connect(1);
  REQUIRE(first->leave().ok());
  const TimePoint begin = Clock::now();
  (*keeper).wait_until_empty(deadline_after(0.05));
  CHECK(Clock::now() - begin >= std::chrono::milliseconds(50));
  Status left(Errc::kInternal, "not yet");
  std::thread later([&] { left = second->leave(); });
  (*keeper).wait_until_empty(deadline_after(20));
  CHECK(Clock::now() - begin < std::chrono::seconds(15));
  later.join();
  CHECK(left.ok());
}

TEST_CASE("the end of the keeper is the loss of rank 0", "[net]") {
  Keeper keeper(2);
  const auto second = keeper.connect(1);
  keeper.stop();
  const auto got = second->get("nothing", deadline_after(20));
  REQUIRE_FALSE(got.ok());
  CHECK(got.status().code() == Errc::kRankLost);
  CHECK(got.status().info().ranks == std::vector<int>{0});
  CHECK(got.status().message().find("rank 0, which keeps the store") != std::string::npos);
}

}  // namespace
}  // namespace distrun::net
