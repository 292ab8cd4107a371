// Both ends of a rank's link to the leader: the leader itself, and its representative on the other ranks.
#include "runtime/engine/leader.h"

#include <catch2/catch_test_macros.hpp>
#include <memory>

#include "test/support/fake_control_plane.h"
#include "test/support/fake_job_channel.h"

namespace distrun::engine {
namespace {

message::Submitted request(const std::string& name) { return {.name = name, .signature = {.shape = {4}}}; }

// The leader of a job with two ranks. The test plays rank 1.
struct Job {
  std::size_t at_once = 100;  // most messages that the control plane takes
  test::FakeControlGroup group{2, at_once};
  std::unique_ptr<net::ControlPlane> here = group.plane(0);
  std::unique_ptr<net::ControlPlane> there = group.plane(1);
  std::unique_ptr<net::WaitSet> wait_set = *net::WaitSet::create();
  test::FakeJobChannel channel;
  Outbox outbox{here.get()};
  LauncherLink launcher{&channel, *wait_set, nullptr};
  Leader leader{{.world_size = 2, .hosts = {"a", "b"}, .fusion_threshold = 1 << 20, .cache_capacity = 16},
                {.outbox = outbox, .launcher = launcher, .plane = here.get(), .log = nullptr}};

  LeaderLink::Effects take_message(Message message) { return leader.take_message(1, 0, message); }
  // All messages that rank 1 has received since the last call.
  std::vector<Message> at_rank_1() {
    outbox.send();
    std::vector<Message> all;
    net::Received one;
    while (there->receive(one)) {
      auto frame = decode(one.bytes);
      REQUIRE(frame.ok());
      for (Message& message : frame->messages) all.push_back(std::move(message));
    }
    return all;
  }
  std::vector<Entry> follow() {
    std::vector<Entry> entries;
    while (Entry* entry = leader.next_entry()) entries.push_back(*entry);
    return entries;
  }
};

TEST_CASE("what all have submitted runs, and the others hear of it before this rank follows it") {
  Job job;
  job.leader.submit(request("x"));
  CHECK(job.leader.decide({}).abort.ok());
  CHECK(job.leader.next_entry() == nullptr);
  job.take_message(request("x"));
  job.leader.decide({});
  Entry* entry = job.leader.next_entry();
  REQUIRE(entry != nullptr);
  CHECK(std::holds_alternative<entry::Run>(*entry));
  net::Received frame;
  CHECK(job.there->receive(frame));
  CHECK(job.leader.next_entry() == nullptr);
}

TEST_CASE("a busy set's tensors wait") {
  Job job;
  ProcessSet set{.id = 0, .in_flight = 2};
  ProcessSet* const active[] = {&set};
  job.leader.submit(request("x"));
  job.take_message(request("x"));
  job.leader.decide(active);
  CHECK(job.follow().empty());
  set.in_flight = 1;
  job.leader.decide(active);
  CHECK(job.follow().size() == 1);
}

TEST_CASE("nothing runs while a member reads nothing of the log") {
  Job job;
  job.group.report_queued({.most = std::size_t{65} << 20, .all = 0});
  job.leader.submit(request("x"));
  job.take_message(request("x"));
  job.leader.decide({});
  CHECK(job.follow().empty());
}

TEST_CASE("the leader makes a set only when all that was said before has gone out") {
  Job job{.at_once = 1};
  const Call add{.kind = Call::Kind::kAddSet, .ranks = {0, 1}};
  job.leader.submit(message::Called{.call = add});
  job.take_message(message::Called{.call = add});
  job.leader.decide({});
  job.leader.queue(1, message::Ping{});
  CHECK(job.leader.next_entry() == nullptr);
  CHECK(job.here->pending());
  job.here->progress();
  CHECK(job.leader.next_entry() != nullptr);
}

TEST_CASE("an abort is passed on to all, and a protocol error ends the job") {
  Job job;
  const auto effects = job.take_message(message::Abort{.why = {Errc::kAborted, "enough"}});
  CHECK(effects.failure.message() == "enough");
  CHECK(effects.report_to_others);
  job.take_message(message::Ready{.ids = {77}});
  CHECK(job.leader.decide({}).abort.code() == Errc::kProtocol);
}

TEST_CASE("all ranks stop behind every call that was answered") {
  Job job;
  CHECK(job.take_message(message::StopAsked{.cause = "SIGTERM"}).hold_stop);
  CHECK_FALSE(job.leader.submit(message::StopAsked{.cause = "again"}).hold_stop);
  CHECK_FALSE(job.leader.submit(message::StopCount{.calls = 4}).stop_at);
  CHECK(job.take_message(message::StopCount{.calls = 6}).stop_at == 7);
  CHECK(job.channel.stops() == std::vector<std::string>{"SIGTERM"});
  const auto messages = job.at_rank_1();
  REQUIRE(messages.size() == 2);
  CHECK(std::holds_alternative<message::StopHold>(messages[0]));
  CHECK(std::get<message::StopAt>(messages[1]).call == 7);
}

TEST_CASE("a rank that leaves without an answer holds nobody up") {
  Job job;
  job.leader.submit(message::StopAsked{.cause = "x"});
  job.leader.submit(message::StopCount{.calls = 2});
  CHECK(job.leader.left(1).stop_at == 3);
}

TEST_CASE("a drained rank is named, and the log ends with the last one") {
  Job job;
  for (const int rank : {0, 1}) {
    rank == 0 ? job.leader.submit(message::Leaving{}) : job.take_message(message::Leaving{});
    CHECK((rank == 0 ? job.leader.submit(message::Drained{}) : job.take_message(message::Drained{})).drained == rank);
  }
  job.leader.decide({});
  const auto entries = job.follow();
  REQUIRE(entries.size() == 3);
  CHECK(std::holds_alternative<entry::Shutdown>(entries.back()));
}

TEST_CASE("an answer to a question about the clock brings the next one, until enough is known") {
  Job job;
  job.leader.start_timeline(nullptr);
  int questions = 0;
  for (auto messages = job.at_rank_1(); !messages.empty(); messages = job.at_rank_1()) {
    ++questions;
    const auto& ping = std::get<message::Ping>(messages.at(0));
    job.leader.clock_answered(1, {.number = ping.number, .sent_ns = ping.sent_ns, .here_ns = ping.sent_ns});
  }
  CHECK(questions == ClockOffset::kRounds);
}

// --- on the other ranks ---

struct Remote {
  Outbox outbox{nullptr};
  RemoteLeader leader{outbox};

  LeaderLink::Effects append(std::uint64_t index, std::size_t count) {
    Message message = message::Append{.entries = std::vector<Entry>(count, Entry(entry::Left{.rank = 1}))};
    return leader.take_message(0, index, message);
  }
  int follow() {
    int entries = 0;
    while (leader.next_entry() != nullptr) ++entries;
    return entries;
  }
};

TEST_CASE("what a member says goes to the leader") {
  Remote remote;
  remote.leader.submit(message::Leaving{});
  remote.leader.queue(2, message::Ping{});
  REQUIRE(remote.outbox.to_leader().size() == 2);
  CHECK(std::holds_alternative<message::Leaving>(remote.outbox.to_leader().front()));
}

TEST_CASE("a member follows the log in one piece") {
  Remote remote;
  CHECK(remote.append(0, 2).follow);
  CHECK(remote.follow() == 2);
  CHECK(remote.append(2, 1).follow);
  CHECK(remote.follow() == 1);
  const auto effects = remote.append(4, 1);
  CHECK(effects.failure.code() == Errc::kProtocol);
  CHECK(effects.report_to_others);
  CHECK(effects.failure.message().find("at entry 4 instead of 3") != std::string::npos);
}

TEST_CASE("a member hears where to stop, and keeps an abort for itself") {
  Remote remote;
  Message hold = message::StopHold{};
  CHECK(remote.leader.take_message(0, 0, hold).hold_stop);
  Message stop = message::StopAt{.call = 9};
  CHECK(remote.leader.take_message(0, 0, stop).stop_at == 9);
  Message abort = message::Abort{.why = {Errc::kAborted, "x"}};
  const auto effects = remote.leader.take_message(0, 0, abort);
  CHECK_FALSE(effects.failure.ok());
  CHECK_FALSE(effects.report_to_others);
  CHECK(remote.leader.decide({}).abort.ok());
}

}  // namespace
}  // namespace distrun::engine
