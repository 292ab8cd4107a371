#include "runtime/engine/leaving.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::engine {
namespace {

const std::vector<std::string> kHosts = {"node0", "node1"};

struct Rank {
  explicit Rank(int rank) : leaving(rank, kHosts) {}
  Leaving leaving;
  std::shared_ptr<CallTicket> ticket = std::make_shared<CallTicket>();

  Leaving::Answer try_to_go(const Leaving::Unfinished& unfinished) {
    leaving.ask_to_go(ticket);
    return leaving.try_to_go(unfinished, Clock::now());
  }
  void leave_and_drain() {
    leaving.leave(Clock::now() - std::chrono::seconds(2));
    leaving.drained();
  }
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("the first failure ends the job, and the outcome is known when all is over") {
  Leaving leaving(1, kHosts);
  CHECK_FALSE(leaving.ended());
  CHECK(leaving.fail({Errc::kRankLost, "rank 0 died"}));
  CHECK_FALSE(leaving.fail({Errc::kAborted, "later"}));
  CHECK(leaving.ended());
  CHECK_FALSE(leaving.failure().info().usable);
  CHECK_FALSE(leaving.over());
  leaving.finish();
  CHECK(leaving.over());
  CHECK(leaving.outcome().message() == "rank 0 died");
  CHECK_FALSE(leaving.fail({Errc::kAborted, "too late"}));
}

TEST_CASE("a rank that has left drains once, unless the job fails") {
  Leaving leaving(1, kHosts);
  CHECK_FALSE(leaving.draining());
  leaving.leave(Clock::now());
  CHECK(leaving.draining());
  leaving.drained();
  CHECK_FALSE(leaving.draining());
  Leaving failed(1, kHosts);
  failed.leave(Clock::now());
  failed.fail({Errc::kAborted, "x"});
  CHECK_FALSE(failed.draining());
}

TEST_CASE("nobody goes before the log has confirmed that the rank left") {
  Rank rank(1);
  rank.leave_and_drain();
  CHECK_FALSE(rank.try_to_go({.confirmed = false, .working = {0}}).given);
  CHECK_FALSE(rank.ticket->done());
  CHECK(rank.leaving.wants_to_go());
}

TEST_CASE("who has something in flight is told what, and stays") {
  Rank tensor(1);
  CHECK(tensor.try_to_go({.confirmed = true, .tensor = "grad"}).given);
  CHECK(tensor.ticket->status().code() == Errc::kTimeout);
  CHECK(has(tensor.ticket->status().message(), "'grad' did not complete within"));
  CHECK_FALSE(tensor.leaving.ended());
  Rank call(1);
  CHECK(call.try_to_go({.confirmed = true, .call = "removing process set 3"}).given);
  CHECK(has(call.ticket->status().message(), "removing process set 3 did not end within"));
  Rank stands_in(1);
  CHECK_FALSE(stands_in.try_to_go({.confirmed = true}).given);
}

TEST_CASE("a member goes alone with a warning") {
  Rank rank(1);
  rank.leave_and_drain();
  const Leaving::Answer answer = rank.try_to_go({.confirmed = true, .working = {0}});
  CHECK(answer.given);
  CHECK(has(answer.warning, "rank 0 (node0) did not leave within 2.0 s"));
  CHECK(has(answer.warning, "without waiting any longer"));
  CHECK(rank.ticket->status().ok());
  CHECK(rank.leaving.ended());
}

TEST_CASE("the leader stays for the others and warns once") {
  Rank rank(0);
  rank.leave_and_drain();
  CHECK(has(rank.try_to_go({.confirmed = true, .working = {1}}).warning, "so it waits for them"));
  CHECK_FALSE(rank.leaving.ended());
  CHECK(rank.try_to_go({.confirmed = true, .working = {1}}).warning.empty());
}

TEST_CASE("an own failure names this rank and what to do") {
  const OwnFailure memory = own_failure({.code = Errc::kOutOfMemory, .message = "no room"}, 1, kHosts);
  CHECK(memory.cause == "out of memory: no room. Run fewer ranks on its host, or give them more memory");
  CHECK(has(memory.why.message(), "rank 1 (node1): no room"));
  CHECK(memory.why.info().ranks == std::vector{1});
  CHECK(own_failure({.code = Errc::kInternal, .message = "bug"}, 0, kHosts).cause == "internal error: bug");
}

}  // namespace
}  // namespace distrun::engine
