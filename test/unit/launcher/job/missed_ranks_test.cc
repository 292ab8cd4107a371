// Which rank is the cause of a loss, with reports, answers and a clock in every order that matters.
#include "launcher/job/ranks/missed_ranks.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "launcher/exit_codes.h"

namespace distrun::launcher {
namespace {

using Kind = MissReport::Kind;
using Step = MissedRanks::Step;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kBegin{};

// Ranks 0 to 5 on h1, h2 and h3, with two ranks on each.
struct Job {
  explicit Job(std::vector<std::string> names = {"h1", "h2", "h3"})
      : hosts(static_cast<int>(names.size())),
        missed({.host_of = hosts == 1 ? std::vector<int>(6) : std::vector{0, 0, 1, 1, 2, 2},
                .host_names = std::move(names),
                .host_timeout = 30}) {}

  void loss(int rank, int other, LinkEnd link, bool by_other = false) {
    missed.reported({.kind = Kind::kLoss,
                     .rank = rank,
                     .missed = {.ranks = {other}, .link = link, .by_other = by_other},
                     .failure = {.cause = "its tcp connection ended", .tensor = "grad"}},
                    now);
  }
  void operation(int rank) {
    missed.reported({.rank = rank, .failure = {.cause = "gloo: connection closed by peer"}}, now);
  }
  void stall(int rank, std::vector<int> others, bool deadlock = false) {
    missed.reported({.kind = Kind::kStall,
                     .rank = rank,
                     .missed = {.ranks = std::move(others), .deadlock = deadlock},
                     .failure = {.cause = "no answer", .tensor = "grad"}},
                    now);
  }
  void wait(int rank) {
    missed.reported({.kind = Kind::kWait,
                     .rank = rank,
                     .failure = {.cause = "has waited for 15 s in allreduce 'x'", .tensor = "x"}},
                    now);
  }
  void all_answer(const std::vector<std::pair<int, char>>& states = {}) {
    for (int host = 0; host < hosts; ++host) missed.answered(host, states);
  }
  void pass(Duration time) { now += time; }
  Step step() { return missed.step(now); }
  // The agents answer, and all paths except `broken` work. Time passes until a decision is made.
  Step outcome(const std::vector<std::pair<int, char>>& states = {}, const std::vector<BrokenPath>& broken = {}) {
    for (int i = 0; i < 100; ++i) {
      const Step found = step();
      if (found.blame || found.no_cause || !found.silent.empty()) return found;
      if (found.ask) all_answer(states);
      if (found.try_paths) missed.tried(broken);
      if (!found.ask && !found.try_paths) pass(milliseconds(100));
    }
    FAIL("nothing is decided");
    return {};
  }

  int hosts;
  TimePoint now = kBegin + seconds(100);
  MissedRanks missed;
};

const Cause& cause_of(const Step& step) {
  REQUIRE(step.blame);
  return step.blame->failure.cause;
}

TEST_CASE("where all is well nothing is due", "[missed]") {
  Job job;
  const Step step = job.step();
  CHECK_FALSE((step.ask || step.try_paths || step.no_cause || step.blame));
  CHECK_FALSE(job.missed.deadline());
  CHECK_FALSE(job.missed.pending());
}

TEST_CASE("silence between two ranks that run is the network between their hosts", "[missed]") {
  Job job;
  job.loss(2, 1, LinkEnd::kSilent);
  CHECK(job.missed.deadline() == TimePoint());
  const TimePoint reported = job.now;
  const Step found = job.outcome();
  CHECK(job.now - reported <= seconds(1));
  const Cause& cause = cause_of(found);
  CHECK(cause.kind == CauseKind::kNetworkBroken);
  CHECK(text_of(cause) ==
        "rank 2 (h2) has heard nothing from rank 1 (h1) for 30 s; both run: the network between h1 and h2 is broken");
  CHECK(found.blame->failure.rank == -1);
  CHECK(found.blame->failure.exit_code == exit_code::kHostLost);
  CHECK(found.blame->lost == 1);
  CHECK(found.blame->failure.tensor == "grad");
  CHECK(cause.link->from.rank == 2);
  CHECK(cause.link->to.host == "h1");
  CHECK(cause.link->silent == 30);
  CHECK_FALSE(job.missed.pending());
}

TEST_CASE("a path that passes small messages only has too small an MTU", "[missed]") {
  Job job;
  job.loss(2, 1, LinkEnd::kLargeSilent);
  CHECK(text_of(cause_of(job.outcome())).ends_with("small messages pass, large ones do not: check the MTU"));
}

TEST_CASE("both ends of a broken path report each other, in either order: neither is blamed", "[missed]") {
  const bool turned = GENERATE(false, true);
  Job job;
  job.loss(turned ? 2 : 0, turned ? 0 : 2, LinkEnd::kSilent);
  job.pass(milliseconds(100));
  job.loss(turned ? 0 : 2, turned ? 2 : 0, LinkEnd::kSilent);
  for (const int rank : {1, 3, 4, 5}) job.loss(rank, 0, LinkEnd::kSilent, true);
  const Step found = job.outcome();
  CHECK(cause_of(found).kind == CauseKind::kNetworkBroken);
  CHECK(found.blame->failure.rank == -1);
  CHECK(cause_of(found).link->host.empty());
  CHECK(text_of(cause_of(found)).ends_with("the network between h1 and h2 is broken"));
}

TEST_CASE("a host that several others miss is named, whoever reports first", "[missed]") {
  const bool by_paths = GENERATE(false, true);
  CAPTURE(by_paths);
  Job job;
  job.loss(0, 2, LinkEnd::kSilent);
  std::vector<BrokenPath> broken;
  if (by_paths) broken = {{.from = 0, .to = 1}, {.from = 1, .to = 2}, {.from = 2, .to = 1}};
  if (!by_paths) job.loss(4, 2, LinkEnd::kSilent);
  const Step found = job.outcome({}, broken);
  CHECK(text_of(cause_of(found)) ==
        "rank 0 (h1) has heard nothing from rank 2 (h2) for 30 s; both run: the network of h2 is broken: h1, h3 do not "
        "reach it");
  CHECK(found.blame->failure.host == "h2");
}

TEST_CASE("a rank whose session has ended closes its connections: the report that explains all counts", "[missed]") {
  // Rank 4 hears nothing from rank 0 and ends. This closes its connection to rank 2, which reports first or last.
  const int order = GENERATE(0, 1);
  Job job;
  if (order == 0) job.loss(2, 4, LinkEnd::kClosed);
  job.loss(4, 0, LinkEnd::kSilent);
  if (order == 1) job.loss(2, 4, LinkEnd::kReset);
  const Step found = job.outcome();
  CHECK(cause_of(found).kind == CauseKind::kNetworkBroken);
  CHECK(cause_of(found).link->from.rank == 4);
  CHECK(cause_of(found).link->to.rank == 0);
}

TEST_CASE("a connection that a living rank closes is told as that, after time for a better explanation", "[missed]") {
  const LinkEnd link = GENERATE(LinkEnd::kClosed, LinkEnd::kReset, LinkEnd::kUnknown);
  Job job;
  const TimePoint reported = job.now;
  job.loss(2, 1, link);
  const Step found = job.outcome();
  CHECK(job.now - reported >= MissedRanks::kExplain);
  CHECK(job.now - reported <= 2 * MissedRanks::kExplain);
  CHECK(cause_of(found).kind == CauseKind::kLinkEnded);
  CHECK(found.blame->failure.rank == 1);
  CHECK(found.blame->failure.tensor == "grad");
  CHECK(found.blame->lost == 1);
  const std::string text = text_of(cause_of(found));
  CHECK(text.find("rank 2 (h2)") != std::string::npos);
  CHECK(text.ends_with("both run"));
}

TEST_CASE("the exit of a missed rank is waited for while its connection to the launcher has ended too", "[missed]") {
  Job job;
  job.missed.awaits_exit(1, true);
  job.loss(2, 1, LinkEnd::kClosed);
  CHECK(job.step().ask);
  job.all_answer();
  CHECK(job.step().try_paths);
  job.missed.tried({});
  job.pass(seconds(4));
  CHECK_FALSE((job.step().blame || job.step().no_cause));
  CHECK_FALSE(job.missed.deadline());
  job.missed.awaits_exit(1, false);
  CHECK(job.step().blame);
}

TEST_CASE("a record that is not as it was sent names its sender", "[missed]") {
  const LinkEnd link = GENERATE(LinkEnd::kTampered, LinkEnd::kMalformed, LinkEnd::kUnfinished);
  const bool answers_in_kind = GENERATE(false, true);
  Job job;
  job.loss(2, 1, link);
  // The sender's session then ends, because rank 2 is gone.
  if (answers_in_kind) job.loss(1, 2, LinkEnd::kClosed);
  const Step found = job.outcome();
  CHECK(cause_of(found).kind == CauseKind::kBadRecord);
  CHECK(found.blame->failure.rank == 1);
  CHECK(text_of(cause_of(found)).find("rank 2 (h2)") != std::string::npos);
}

TEST_CASE("bytes that change on the way are the network's or the memory's fault, on one host a library's", "[missed]") {
  Job job;
  job.loss(2, 1, LinkEnd::kTampered);
  CHECK(text_of(cause_of(job.outcome())).find("the network between h1 and h2, or the memory") != std::string::npos);
  job.loss(0, 1, LinkEnd::kTampered);
  CHECK(text_of(cause_of(job.outcome())).find("a library may have written") != std::string::npos);
}

// The finder ends its session and closes its connections. Other ranks then miss the finder, and learn which rank it
// misses.
TEST_CASE("a bad record or a silent path is the cause in every order of what follows from it", "[missed]") {
  const LinkEnd link =
      GENERATE(LinkEnd::kTampered, LinkEnd::kMalformed, LinkEnd::kUnfinished, LinkEnd::kSilent, LinkEnd::kLargeSilent);
  const Duration between = GENERATE(milliseconds(0), milliseconds(100));
  std::vector<int> order = {0, 1, 2, 3, 4};
  do {
    Job job;
    for (const int next : order) {
      if (next == 0) job.loss(0, 2, link);                     // the finder; rank 2 sent the record
      if (next == 1) job.loss(2, 0, LinkEnd::kClosed);         // the sender of the record
      if (next == 2) job.loss(4, 0, LinkEnd::kReset);          // a neighbour
      if (next == 3) job.loss(5, 2, LinkEnd::kUnknown, true);  // knows of the first loss from others
      if (next == 4) job.loss(3, 0, LinkEnd::kUnknown, true);  // knows of a later loss from others
      job.pass(between);
    }
    const Step found = job.outcome();
    CHECK(cause_of(found).link->end == link);
    CHECK(cause_of(found).link->from.rank == 0);
    CHECK(cause_of(found).link->to.rank == 2);
    CHECK(found.blame->lost == 2);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("a bad record that others have heard of counts more than that its finder closed a connection", "[missed]") {
  const LinkEnd link = GENERATE(LinkEnd::kTampered, LinkEnd::kMalformed, LinkEnd::kUnfinished);
  const bool turned = GENERATE(false, true);
  Job job;
  if (turned) job.loss(4, 0, LinkEnd::kClosed);
  job.loss(5, 2, link, true);
  if (!turned) job.loss(4, 0, LinkEnd::kClosed);
  const Step found = job.outcome();
  CHECK(cause_of(found).kind == CauseKind::kBadRecord);
  CHECK(found.blame->failure.rank == 2);
}

TEST_CASE("no stopped rank explains bytes that are not as they were sent", "[missed]") {
  const LinkEnd link = GENERATE(LinkEnd::kTampered, LinkEnd::kMalformed);
  Job job;
  job.loss(0, 2, link);
  const Step found = job.outcome({{4, 'T'}});
  CHECK(cause_of(found).kind == CauseKind::kBadRecord);
  CHECK(found.blame->failure.rank == 2);
}

TEST_CASE("a stopped rank is blamed and never one that runs", "[missed]") {
  const char state = GENERATE('T', 't');
  const int reported = GENERATE(0, 1, 2, 3);
  CAPTURE(state, reported);
  Job job;
  if (reported == 0) job.stall(0, {2, 3, 4});
  if (reported == 1) job.loss(0, 2, LinkEnd::kUnfinished);
  if (reported == 2) job.loss(0, 2, LinkEnd::kClosed);
  if (reported == 3) job.operation(0);
  const Step found = job.outcome({{0, 'S'}, {2, 'S'}, {3, 'R'}, {4, state}});
  CHECK(found.blame->failure.rank == 4);
  CHECK(found.blame->lost == 4);
  CHECK(cause_of(found).kind == CauseKind::kStalled);
  CHECK(cause_of(found).state == state);
  CHECK(text_of(cause_of(found)).starts_with(std::string("is stopped (") + state));
}

TEST_CASE("a rank that raised an exception and then waits is the cause of a wait both ways", "[missed]") {
  const bool deadlock = GENERATE(false, true);
  Job job;
  job.missed.seen({{.rank = 4, .text = "ValueError: bad", .raised_at = {.file = "/a/train.py", .line = 3}}}, false);
  job.stall(0, {0, 1, 2, 3, 4, 5}, deadlock);
  const Step found = job.outcome();
  CHECK(found.blame->failure.rank == 4);
  CHECK(found.blame->lost == 4);
  CHECK(cause_of(found).kind == CauseKind::kStalled);
  CHECK(cause_of(found).exception == "ValueError: bad (train.py:3)");
  CHECK(found.blame->failure.place.line == 3);
  CHECK(text_of(cause_of(found)) == "raised ValueError: bad (train.py:3) and then waited for other ranks: no answer");
}

TEST_CASE("a stall is decided when the ranks have said where they are, and no other report waits for that",
          "[missed]") {
  Job job({"h1"});
  job.missed.seen({}, true);
  job.stall(0, {2, 3});
  CHECK(job.step().ask);
  job.all_answer();
  CHECK_FALSE((job.step().blame || job.step().no_cause));
  CHECK_FALSE(job.missed.deadline());
  job.missed.seen({{.rank = 3, .text = "KeyError: 'x'", .raised_at = {}}}, false);
  CHECK(job.step().blame->failure.rank == 3);
  job.missed.seen({}, true);
  job.loss(2, 1, LinkEnd::kClosed);
  CHECK(job.outcome().blame->failure.rank == 1);
}

TEST_CASE("no exception explains a stopped rank or a broken network", "[missed]") {
  const bool stopped = GENERATE(false, true);
  Job job;
  job.missed.seen({{.rank = 4, .text = "ValueError: bad", .raised_at = {}}}, false);
  job.stall(0, {4});
  const Step found = stopped ? job.outcome({{2, 'T'}}) : job.outcome({}, {{.from = 0, .to = 1}});
  CHECK(found.blame->failure.rank == (stopped ? 2 : -1));
  CHECK(cause_of(found).exception.empty());
}

TEST_CASE("a deadlock has no rank that is its cause alone, and a stall that names every rank is none", "[missed]") {
  Job job;
  job.stall(0, {0, 1, 2, 3, 4, 5});
  CHECK(cause_of(job.outcome()).kind == CauseKind::kStalled);
  job.stall(0, {0, 1}, true);
  const Step found = job.outcome();
  CHECK(cause_of(found).kind == CauseKind::kDeadlock);
  CHECK(text_of(cause_of(found)) == "no answer");
}

TEST_CASE("of two stopped ranks the one that is missed is blamed", "[missed]") {
  Job job;
  job.stall(0, {5});
  CHECK(job.outcome({{3, 'T'}, {5, 'T'}}).blame->failure.rank == 5);
}

TEST_CASE("a stall is decided as soon as all agents have answered", "[missed]") {
  Job job({"h1"});
  job.stall(0, {2, 3});
  CHECK(job.step().ask);
  CHECK_FALSE(job.step().blame);
  job.all_answer({{2, 'S'}, {3, 'S'}});
  const Step found = job.step();
  CHECK(found.blame->failure.rank == 2);
  CHECK(cause_of(found).state == '\0');
  CHECK(text_of(cause_of(found)) == "blocked the other ranks: no answer");
  CHECK(found.blame->failure.tensor == "grad");
}

TEST_CASE("a rank that is blocked in the kernel is blamed once two looks have found it so", "[missed]") {
  Job job({"h1"});
  job.stall(0, {2, 3});
  CHECK(job.step().ask);
  job.all_answer({{2, 'S'}, {3, 'D'}});
  CHECK_FALSE(job.step().ask);
  CHECK(job.missed.deadline() == job.now + MissedRanks::kAgain);
  job.pass(MissedRanks::kAgain);
  CHECK(job.step().ask);
  const bool still = GENERATE(true, false);
  job.all_answer({{2, 'S'}, {3, still ? 'D' : 'R'}});
  const Step found = job.step();
  CHECK(found.blame->failure.rank == (still ? 3 : 2));
  CHECK(cause_of(found).state == (still ? 'D' : '\0'));
}

TEST_CASE("a rank that waits for a disk and that nobody misses is not blamed", "[missed]") {
  Job job({"h1"});
  job.stall(0, {2});
  CHECK(job.outcome({{2, 'S'}, {3, 'D'}}).blame->failure.rank == 2);
}

TEST_CASE("hosts of reporters and of those that they miss are lost if their agents say nothing for 2 s", "[missed]") {
  const int host = GENERATE(0, 1);  // the host of the missed rank, and the host of the reporter
  Job job;
  job.loss(2, 1, LinkEnd::kSilent);
  CHECK(job.step().ask);
  for (const int other : {0, 1, 2}) {
    if (other != host) job.missed.answered(other, {});
  }
  CHECK(job.missed.deadline() == job.now + MissedRanks::kAnswerTime);
  job.pass(MissedRanks::kAnswerTime - milliseconds(1));
  CHECK(job.step().silent.empty());
  job.pass(milliseconds(1));
  CHECK(job.step().silent == std::set<int>{host});
  // It is reported once. If the silent host is not a separate machine, the other facts decide.
  CHECK(cause_of(job.outcome()).kind == CauseKind::kNetworkBroken);
}

TEST_CASE("the silence of a host that nobody misses delays the decision and no more", "[missed]") {
  Job job;
  job.loss(2, 1, LinkEnd::kSilent);
  CHECK(job.step().ask);
  job.missed.answered(0, {});
  job.missed.answered(1, {});
  job.pass(MissedRanks::kAnswerTime);
  const Step found = job.step();
  CHECK(found.silent.empty());
  CHECK(found.try_paths);
}

TEST_CASE("an answer that came before the report does not count", "[missed]") {
  Job job;
  job.wait(3);
  CHECK(job.step().ask);
  job.all_answer();
  CHECK(job.step().try_paths);
  job.loss(2, 1, LinkEnd::kSilent);
  CHECK(job.step().ask);
  CHECK_FALSE(job.step().blame);
  job.pass(MissedRanks::kAnswerTime);
  CHECK(job.step().silent == std::set<int>{0, 1});
}

TEST_CASE("an operation of a library that names nobody is explained by a broken path", "[missed]") {
  Job job;
  job.operation(0);
  const bool cut = GENERATE(true, false);
  std::vector<BrokenPath> broken;
  if (cut) broken.push_back({.from = 2, .to = 1, .why = "no answer within 2 s"});
  const Step found = job.outcome({}, broken);
  CHECK(found.no_cause == !cut);
  if (!cut) return;
  CHECK(text_of(cause_of(found)) ==
        "rank 0 (h1) gloo: connection closed by peer; all ranks run: the network between h2 and h3 is broken");
  CHECK(found.blame->lost == 2);
  CHECK(cause_of(found).link->why == "no answer within 2 s");
}

TEST_CASE("a wait ends a job only if a path is broken", "[missed]") {
  Job job;
  job.wait(0);
  CHECK(job.missed.path_limit() == seconds(15));
  const bool cut = GENERATE(true, false);
  std::vector<BrokenPath> broken;
  if (cut) broken.push_back({.from = 1, .to = 2});
  // A stopped rank is not a reason to end the job, because a user may continue it.
  const Step found = job.outcome({{4, 'T'}}, broken);
  CHECK(found.no_cause == !cut);
  CHECK(found.silent.empty());
  if (!cut) return;
  CHECK(text_of(cause_of(found)) ==
        "rank 0 (h1) has waited for 15 s in allreduce 'x'; all ranks run: the network between h2 and h3 is broken");
  CHECK(found.blame->failure.tensor == "x");
}

TEST_CASE("after a look at the paths that found nothing, waits are no news for as long as a look may take") {
  Job job;
  job.wait(0);
  CHECK(job.outcome().no_cause);
  job.wait(1);
  CHECK_FALSE(job.missed.pending());
  job.loss(0, 2, LinkEnd::kSilent);  // a loss is
  CHECK(job.outcome().blame);
  job.pass(job.missed.path_limit());
  job.wait(1);
  CHECK(job.missed.pending());
}

TEST_CASE("a host that is silent during a wait is the business of the signs of life", "[missed]") {
  Job job;
  job.wait(0);
  CHECK(job.step().ask);
  job.pass(MissedRanks::kAnswerTime);
  const Step found = job.step();
  CHECK(found.silent.empty());
  CHECK(found.try_paths);
  job.pass(job.missed.path_limit() + MissedRanks::kAnswerTime);
  CHECK(job.step().no_cause);
}

TEST_CASE("ranks that only heard of a loss name the lost one, if its witness says nothing", "[missed]") {
  Job job;
  for (const int rank : {3, 4}) job.loss(rank, 1, LinkEnd::kClosed, true);
  const Step found = job.outcome();
  CHECK(found.blame->failure.rank == 1);
  CHECK(text_of(cause_of(found)).find("another rank") != std::string::npos);
}

TEST_CASE("when no process is left, what was reported decides at once", "[missed]") {
  Job job;
  CHECK_FALSE((job.missed.conclude().no_cause || job.missed.conclude().blame));
  job.loss(2, 1, LinkEnd::kClosed);
  CHECK(job.step().ask);
  const Step found = job.missed.conclude();
  CHECK(found.blame->failure.rank == 1);
  CHECK_FALSE(job.missed.pending());
  job.operation(0);
  CHECK(job.missed.conclude().no_cause);
}

TEST_CASE("on one host no paths are tried, nor between agents of one host", "[missed]") {
  Job job(GENERATE(std::vector<std::string>{"h1"}, std::vector<std::string>{"h1", "h1", "h1"}));
  job.loss(2, 1, LinkEnd::kClosed);
  CHECK(job.step().ask);
  job.all_answer();
  job.pass(MissedRanks::kExplain);
  CHECK(job.step().blame);
}

// For all events in any order, a decision comes within the limits. A rank that reports is never the cause if no other
// rank accuses it.
TEST_CASE("no order of reports blames a rank that nobody misses", "[missed]") {
  std::vector<int> reporters = {2, 3, 4, 5};
  do {
    Job job;
    for (const int rank : reporters) job.loss(rank, rank % 2 == 0 ? 0 : 1, LinkEnd::kClosed, rank > 3);
    const TimePoint reported = job.now;
    const Step found = job.outcome();
    CHECK(found.blame->failure.rank <= 1);
    CHECK(job.now - reported <= seconds(3));
  } while (std::next_permutation(reporters.begin(), reporters.end()));
}

}  // namespace
}  // namespace distrun::launcher
