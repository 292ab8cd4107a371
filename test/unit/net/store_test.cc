// Store server and client over real sockets: semantics, duplicates, events, loss.
#include <poll.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/net/bytes/socket.h"
#include "runtime/net/secure/secure_socket.h"
#include "runtime/net/store/store_client.h"
#include "runtime/net/store/store_protocol.h"
#include "test/support/ranks.h"
#include "test/support/store_thread.h"

namespace distrun::net {
namespace {

using test::run_ranks;
using test::StoreThread;
using Kind = StoreNotice::Kind;

TimePoint soon() { return deadline_after(40); }

auto notice(Kind kind, int rank) {
  return [=](const StoreNotice& n) { return n.kind == kind && n.rank == rank; };
}

// Waits on the descriptor, as a wait set would, until an event arrives or the launcher is lost.
Result<std::vector<JobEvent>> next_events(StoreClient& client) {
  for (;;) {
    DISTRUN_RETURN_IF_ERROR(wait_ready(client.fd(), POLLIN, soon()));
    auto events = client.receive();
    if (!events.ok() || !events->empty()) return events;
  }
}

TEST_CASE("ranks exchange values and count", "[store]") {
  for (const char* address : {"unix:@", "127.0.0.1:0"}) {
    for (const int size : {1, 2, 3, 4, 5, 8}) {
      StoreThread server(size, address);
      run_ranks(size, [&](int rank) {
        const auto client = server.connect(rank);
        EXPECT_OK(client->set("rank" + std::to_string(rank), "value" + std::to_string(rank)));
        for (int other = 0; other < size; ++other) {
          const auto value = client->get("rank" + std::to_string(other), soon());
          EXPECT_OK(value);
          EXPECT_EQ(*value, "value" + std::to_string(other));
        }
        const auto sum = client->add("count", 1);
        EXPECT_OK(sum);
        EXPECT(*sum >= 1 && *sum <= size);
      });
    }
  }
}

TEST_CASE("values are bytes up to 1 MiB", "[store]") {
  StoreThread server(1);
  const auto client = server.connect(0);
  const std::string binary("\0\xff\n", 3);
  REQUIRE(client->set("binary", binary).ok());
  CHECK(*client->get("binary", soon()) == binary);
  REQUIRE(client->set("empty", "").ok());
  CHECK(client->get("empty", soon())->empty());
  REQUIRE(client->set("big", std::string(kMaxStoreValue, 'x')).ok());
  CHECK(client->get("big", soon())->size() == kMaxStoreValue);
  CHECK(client->set("bigger", std::string(kMaxStoreValue + 1, 'x')).code() == Errc::kInvalidArgument);
  CHECK(client->set(std::string(kMaxStoreKey + 1, 'k'), "").code() == Errc::kInvalidArgument);
}

TEST_CASE("a full store refuses with a reason and stays usable", "[store]") {
  StoreThread server(1, "unix:@", 10000);
  const auto client = server.connect(0);
  const Status full = client->set("big", std::string(20000, 'x'));
  CHECK(full.code() == Errc::kInvalidArgument);
  CHECK(full.message().find("the store is full") != std::string::npos);
  CHECK(client->set("small", "x").ok());
}

TEST_CASE("a get that nobody answers ends at its deadline and leaves nothing behind", "[store]") {
  StoreThread server(1);
  const auto client = server.connect(0);
  const auto value = client->get("never", deadline_after(0.05));
  CHECK(value.status().code() == Errc::kTimeout);
  CHECK(value.status().message().find("'never'") != std::string::npos);
  REQUIRE(client->set("never", "late").ok());
  CHECK(*client->get("never", soon()) == "late");
}

TEST_CASE("one client serves many threads at once", "[store]") {
  StoreThread server(1);
  const auto client = server.connect(0);
  run_ranks(8, [&](int thread) {
    for (int i = 0; i < 50; ++i) {
      // Each thread waits for a value that its neighbour sets a little later.
      const std::string mine = std::to_string(thread) + "/" + std::to_string(i);
      const std::string next = std::to_string((thread + 1) % 8) + "/" + std::to_string(i);
      EXPECT_OK(client->set(mine, mine));
      const auto value = client->get(next, soon());
      EXPECT_OK(value);
      EXPECT_EQ(*value, next);
      EXPECT_OK(client->add("sum", 1));
    }
  });
  CHECK(*client->add("sum", 0) == 400);
}

TEST_CASE("events reach every rank, also those that join later, in order", "[store]") {
  StoreThread server(3);
  const auto first = server.connect(0);
  server.publish({.kind = JobEvent::Kind::kRankFailed,
                  .rank = 2,
                  .signal = 9,
                  .exit_code = 137,
                  .host = "node7",
                  .cause = "killed by signal 9 (SIGKILL)",
                  .explained_by_output = true});
  server.publish({.kind = JobEvent::Kind::kStopAsked, .cause = "a rank failed"});
  const auto late = server.connect(1);
  for (StoreClient* client : {first.get(), late.get()}) {
    std::vector<JobEvent> events;
    while (events.size() < 2) {
      const auto more = next_events(*client);
      REQUIRE(more.ok());
      events.insert(events.end(), more->begin(), more->end());
    }
    CHECK(events[0].rank == 2);
    CHECK(events[0].signal == 9);
    CHECK(events[0].exit_code == 137);
    CHECK(events[0].host == "node7");
    CHECK(events[0].cause == "killed by signal 9 (SIGKILL)");
    CHECK(events[0].explained_by_output);
    CHECK(events[1].kind == JobEvent::Kind::kStopAsked);
    CHECK_FALSE(events[1].explained_by_output);
    CHECK(client->receive()->empty());
  }
}

TEST_CASE("events that arrive while another thread waits in get() are kept for the token holder", "[store]") {
  StoreThread server(2);
  const auto client = server.connect(0);
  const auto other = server.connect(1);
  auto waiting = std::async(std::launch::async, [&] { return client->get("later", soon()); });
  for (int i = 0; i < 20; ++i) server.publish({.kind = JobEvent::Kind::kStopAsked, .exit_code = i, .cause = "asked"});
  // When the value is there, the thread in get() has already read the earlier events from the socket.
  REQUIRE(other->set("later", "now").ok());
  CHECK(*waiting.get() == "now");
  std::vector<JobEvent> events;
  while (events.size() < 20) {
    const auto more = next_events(*client);
    REQUIRE(more.ok());
    events.insert(events.end(), more->begin(), more->end());
  }
  for (int i = 0; i < 20; ++i) CHECK(events[static_cast<std::size_t>(i)].exit_code == i);
  pollfd idle{.fd = client->fd(), .events = POLLIN, .revents = 0};
  CHECK(::poll(&idle, 1, 0) == 0);  // nothing is left that would wake an idle rank
}

TEST_CASE("who waits for a key is told that a rank has gone, and may still tell the others something", "[store]") {
  StoreThread server(3);
  const auto a = server.connect(0);
  const auto b = server.connect(1);
  std::vector<std::future<Status>> waits;
  for (StoreClient* client : {a.get(), a.get(), b.get()}) {
    waits.push_back(std::async(std::launch::async, [client] { return client->get("never", soon()).status(); }));
  }
  server.publish({.rank = 2, .signal = 9, .host = "h2", .cause = "killed by signal 9 (SIGKILL)"});
  server.publish({.kind = JobEvent::Kind::kRankLeft, .rank = 1, .host = "h1"});
  for (auto& wait : waits) {
    const Status ended = wait.get();
    CHECK(ended.code() == Errc::kRankLost);
    CHECK(ended.info().ranks == std::vector<int>{2});
    CHECK(ended.info().host == "h2");
    CHECK(ended.info().cause == "killed by signal 9 (SIGKILL)");
    CHECK_FALSE(ended.info().usable);
  }
  CHECK(a->get("later", soon()).status().code() == Errc::kRankLost);
  CHECK(a->set("k", "v").ok());
  CHECK(a->add("n", 1).ok());
  CHECK(*a->swap("k", "v", "w") == "v");
  CHECK(*a->count("") == 2);
  const auto late = server.connect(2);
  CHECK(late->get("never", soon()).status().code() == Errc::kRankLost);
  CHECK(next_events(*a)->size() == 2);
}

TEST_CASE("the launcher hears who joins, fails, leaves and goes", "[store]") {
  StoreThread server(2);
  auto client = server.connect(1);
  CHECK(server.wait_for(notice(Kind::kJoined, 1)).pid == ::getpid());
  const RankFailure bad{
      .cause = "ValueError: bad", .tensor = "grad", .place = {.file = "/home/me/train.py", .line = 88}};
  REQUIRE(client->report_failure(bad).ok());
  const RankFailure by_other = server.wait_for(notice(Kind::kFailed, 1)).failure;
  CHECK(by_other.cause == "ValueError: bad");
  CHECK(by_other.tensor == "grad");
  CHECK(by_other.place.file == "/home/me/train.py");
  CHECK(by_other.place.line == 88);
  const std::string endless(100000, 'x');
  REQUIRE(client->report_failure({.cause = endless, .tensor = endless, .place = {.file = endless, .line = -1}}).ok());
  server.wait_for([&](const StoreNotice& n) {
    const RankFailure& cut = n.failure;
    return cut.cause == endless.substr(0, kMaxCause) && cut.tensor == endless.substr(0, kMaxTensorName) &&
           cut.place.file == endless.substr(0, kMaxFileName) && cut.place.line == -1;
  });
  REQUIRE(client->leave().ok());
  server.wait_for(notice(Kind::kLeft, 1));
  client.reset();
  CHECK(server.wait_for(notice(Kind::kDisconnected, 1)).text.find("closed") != std::string::npos);
}

TEST_CASE("a rank can tell of another that left while it was needed", "[store]") {
  StoreThread server(2);
  const auto client = server.connect(0);
  REQUIRE(client->report_early_leave(1, {.cause = "rank 0 still waits for 'grad'", .tensor = "grad"}).ok());
  const RankFailure left = server.wait_for(notice(Kind::kLeftEarly, 1)).failure;
  CHECK(left.cause == "rank 0 still waits for 'grad'");
  CHECK(left.tensor == "grad");
  REQUIRE(client->report_stall({.ranks = {1, 0}, .deadlock = true}, {.cause = "slow", .tensor = "late"}).ok());
  const StoreNotice slow = server.wait_for(notice(Kind::kStalled, 0));
  CHECK(slow.missed.ranks == std::vector{1, 0});
  CHECK(slow.missed.deadlock);
  CHECK(slow.failure.cause == "slow");
  CHECK(slow.failure.tensor == "late");
  REQUIRE(client->report_loss({.ranks = {1}, .link = LinkEnd::kSilent}, {.cause = "30 s of silence"}).ok());
  const StoreNotice missed = server.wait_for(notice(Kind::kFollows, 0));
  CHECK(missed.missed.ranks == std::vector{1});
  CHECK(missed.missed.link == LinkEnd::kSilent);
  CHECK_FALSE((missed.missed.by_other || missed.missed.deadlock));
  CHECK(missed.failure.cause == "30 s of silence");
  REQUIRE(client->report_no_progress({.cause = "5 s", .tensor = "grad"}).ok());
  CHECK(server.wait_for(notice(Kind::kNoProgress, 0)).failure.tensor == "grad");
  REQUIRE(client->report_early_leave(2, {.cause = "nobody"}).ok());
  CHECK(server.wait_for(notice(Kind::kDisconnected, 0)).text.find("rank 2, which this job") != std::string::npos);
  const auto other = server.connect(1);
  REQUIRE(other->report_loss({.ranks = {0, 7}}, {}).ok());
  CHECK(server.wait_for(notice(Kind::kDisconnected, 1)).text.find("rank 7, which this job") != std::string::npos);
}

TEST_CASE("a second process that claims a rank is refused by name and the first is unharmed", "[store]") {
  for (const char* address : {"unix:@", "127.0.0.1:0"}) {
    StoreThread server(2, address);
    const auto holder = server.connect(1);
    const auto second = StoreClient::connect(server.world(1), server.key(), soon());
    REQUIRE(second.status().code() == Errc::kProtocol);
    const std::string pid = std::to_string(::getpid());
    const std::string expected = "process " + pid + " is rank 1 already, so process " + pid + " cannot be it too";
    CHECK(second.status().message().find(expected) != std::string::npos);
    CHECK(second.status().message().find("DISTRUN_*, WORLD_SIZE, TF_CONFIG and JAX") != std::string::npos);
    CHECK(server.wait_for(notice(Kind::kRefused, 1)).pid == ::getpid());
    CHECK(holder->set("still", "here").ok());
  }
}

TEST_CASE("a process may leave and come back, many times", "[store]") {
  for (const char* address : {"unix:@", "127.0.0.1:0"}) {
    StoreThread server(1, address);
    for (int i = 0; i < 100; ++i) {
      const auto client = server.connect(0);
      REQUIRE(client->add("rounds", 1).ok());
      REQUIRE(client->leave().ok());
    }
    CHECK(*server.connect(0)->add("rounds", 0) == 100);
  }
}

TEST_CASE("a process may come back before the end of its old connection has", "[store]") {
  StoreThread server(1, "127.0.0.1:0");
  for (int i = 0; i < 20; ++i) {
    const auto old = server.connect(0);
    REQUIRE(old->leave().ok());
    CHECK(server.connect(0)->add("rounds", 1).ok());  // the old connection has sent nothing more
  }
}

TEST_CASE("a rank has left when the launcher has read it", "[store]") {
  const JobKey key = JobKey::generate();
  auto server = StoreServer::create(key, {.job_id = "test-job", .size = 1});
  REQUIRE(server.ok());
  World world;
  world.job_id = "test-job";
  world.store = (*server)->address();
  auto connecting = std::async(std::launch::async, [&] { return StoreClient::connect(world, key, soon()); });
  const auto serve = [&](const auto& future) {
    while (future.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
      (*server)->progress(Clock::now());
    }
  };
  serve(connecting);
  const auto client = connecting.get();
  REQUIRE(client.ok());
  auto leaving = std::async(std::launch::async, [&] { return (*client)->leave(); });
  CHECK(leaving.wait_for(std::chrono::milliseconds(300)) == std::future_status::timeout);
  serve(leaving);
  CHECK(leaving.get().ok());
}

TEST_CASE("who does not belong to the job is refused", "[store]") {
  StoreThread server(2);
  const auto connect = [&](const World& world, const JobKey& key) {
    return StoreClient::connect(world, key, soon()).status().message();
  };
  World world = server.world(2);
  CHECK(connect(world, server.key()).find("ranks 0 to 1, and rank 2 is not one of them") != std::string::npos);
  world = server.world(0);
  CHECK(connect(world, JobKey::generate()).find("key or job id") != std::string::npos);
  world.job_id = "another";
  CHECK(connect(world, server.key()).find("key or job id") != std::string::npos);
  const auto other_version = connect_secure(
      world.store, server.key(), {.purpose = "store", .job_id = "test-job", .from = 0, .version = "9.9"}, soon());
  CHECK(other_version.status().message().find("rank 0 runs distrun 9.9 and the launcher runs distrun 0.") !=
        std::string::npos);
}

TEST_CASE("when the launcher goes, every wait ends and says so", "[store]") {
  StoreThread server(3);
  const auto a = server.connect(0);
  const auto b = server.connect(1);
  std::vector<std::future<Status>> waits;
  for (StoreClient* client : {a.get(), a.get(), b.get()}) {
    waits.push_back(std::async(std::launch::async, [client] { return client->get("never", soon()).status(); }));
  }
  server.stop();
  for (std::size_t i = 0; i < waits.size(); ++i) {
    const Status lost = waits[i].get();
    const int rank = i < 2 ? 0 : 1;
    CHECK(lost.code() == Errc::kRankLost);
    // The loss may concern only this rank.
    CHECK(lost.info().cause == "its connection to the launcher ended");
    CHECK(lost.info().ranks == std::vector<int>{rank});
    CHECK(lost.info().host == "localhost");
    CHECK(lost.message().starts_with("the launcher at unix:@"));
    CHECK(lost.message().find(" has ended, or the network to it is broken: ") != std::string::npos);
  }
  CHECK(next_events(*a).status().code() == Errc::kRankLost);
  CHECK(a->set("k", "v").code() == Errc::kRankLost);
  CHECK(a->add("k", 1).status().code() == Errc::kRankLost);
  CHECK(a->leave().code() == Errc::kRankLost);
  CHECK(a->report_failure({.cause = "x"}).code() == Errc::kRankLost);
}

TEST_CASE("the launcher's last event is read before its loss", "[store]") {
  StoreThread server(1);
  const auto client = server.connect(0);
  server.publish({.kind = JobEvent::Kind::kStopAsked, .cause = "interrupted"});
  server.stop();
  const auto events = next_events(*client);
  REQUIRE(events.ok());
  CHECK(events->at(0).cause == "interrupted");
  CHECK(next_events(*client).status().code() == Errc::kRankLost);
  pollfd quiet{.fd = client->fd(), .events = POLLIN, .revents = 0};
  CHECK(::poll(&quiet, 1, 0) == 0);  // a lost launcher does not keep waking a rank
  CHECK(client->receive().status().code() == Errc::kRankLost);
}

TEST_CASE("an authenticated rank that talks nonsense is disconnected, others are not", "[store]") {
  StoreThread server(2);
  const auto good = server.connect(0);
  auto bad = connect_secure(server.world(1).store, server.key(), {.purpose = "store", .job_id = "test-job", .from = 1},
                            soon());
  REQUIRE(bad.ok());
  REQUIRE((*bad)->send_frame_blocking(std::vector<std::byte>(3, std::byte{200}), soon()).ok());
  CHECK(server.wait_for(notice(Kind::kDisconnected, 1)).text.find("malformed") != std::string::npos);
  CHECK(good->set("still", "here").ok());
}

TEST_CASE("a rank in whose stream something begins and never ends is disconnected", "[store]") {
  const JobKey key = JobKey::generate();
  const auto server =
      StoreServer::create(key, {.bind_address = "127.0.0.1:0", .job_id = "job", .size = 2, .host_timeout = 2});
  REQUIRE(server.ok());
  auto connecting = std::async(std::launch::async, [&] {
    return connect_secure((*server)->address(), key, {.purpose = "store", .job_id = "job", .from = 1}, soon());
  });
  std::vector<StoreNotice> notices;
  const auto serve = [&](TimePoint until, std::size_t wanted) {
    while (notices.size() < wanted && Clock::now() < until) {
      if (wait_ready((*server)->fd(), POLLIN, until).ok()) (*server)->progress(Clock::now());
      for (StoreNotice& one : (*server)->take_notices()) notices.push_back(std::move(one));
    }
  };
  serve(soon(), 1);
  const auto socket = connecting.get();
  REQUIRE(socket.ok());
  const std::string foreign(777, 'x');
  REQUIRE(::write((*socket)->fd(), foreign.data(), foreign.size()) == 777);
  serve(deadline_after(1.5), 2);
  REQUIRE(notices.size() == 1);  // the rest of the record may still come
  serve(soon(), 2);
  REQUIRE(notices.size() == 2);
  CHECK(notices[1].kind == Kind::kDisconnected);
  CHECK(notices[1].rank == 1);
  CHECK(notices[1].end == LinkEnd::kUnfinished);
  CHECK(notices[1].text.find("was not complete after 2 s") != std::string::npos);
}

TEST_CASE("a rank that asks for much and reads nothing is held back, and gets it all in the end", "[store]") {
  StoreThread server(2);
  const auto good = server.connect(0);
  REQUIRE(good->set("big", std::string(kMaxStoreValue, 'x')).ok());
  auto greedy = connect_secure(server.world(1).store, server.key(),
                               {.purpose = "store", .job_id = "test-job", .from = 1}, soon());
  REQUIRE(greedy.ok());
  for (std::uint64_t i = 0; i < 50; ++i) {
    REQUIRE((*greedy)->send_frame(encode({.kind = StoreRequest::Kind::kGet, .id = i, .key = "big"})).ok());
  }
  REQUIRE((*greedy)->flush().ok());
  CHECK(good->set("still", "here").ok());
  for (std::uint64_t i = 0; i < 50; ++i) {
    const auto frame = (*greedy)->receive_frame_blocking(soon());
    REQUIRE(frame.ok());
    CHECK(decode_reply(*frame)->id == i);
  }
}

}  // namespace
}  // namespace distrun::net
