// Probes between hosts that are objects of this process. Each host has a listener; the addresses are 127.0.0.1,
// 127.0.0.2, and so on.
#include "launcher/agent/preflight/probe.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/net/bytes/socket.h"
#include "runtime/net/secure/secure_socket.h"
#include "test/support/text.h"
#include "test/unit/launcher/sysroot.h"

namespace distrun::launcher {
namespace {

using net::JobKey;

constexpr ProbeLimits kQuick{.each = std::chrono::milliseconds(200)};

using distrun::test::has;

ProbeListener listener() {
  auto made = ProbeListener::open();
  REQUIRE(made.ok());
  return *std::move(made);
}

ProbeListener listener(const JobKey& key, const ProbeSelf& self) {
  ProbeListener made = listener();
  made.answer(key, self);
  return made;
}

std::string at(const std::string& host, const ProbeListener& listener) {
  return host + ":" + std::to_string(listener.port());
}

// The loop of one agent that contains all of them.
void run(std::vector<Prober*> probers, const std::vector<ProbeListener*>& listeners) {
  Poller poller;
  const TimePoint too_late = deadline_after(60);
  const auto all_done = [&] {
    return std::all_of(probers.begin(), probers.end(), [](const Prober* prober) { return prober->done(); });
  };
  while (!all_done() && Clock::now() < too_late) {
    poller.clear();
    std::optional<TimePoint> deadline = too_late;
    for (ProbeListener* it : listeners) it->watch(poller);
    for (Prober* it : probers) {
      it->watch(poller);
      deadline = earlier(deadline, it->deadline());
    }
    REQUIRE(poller.wait(deadline).ok());
    for (Prober* it : probers) it->progress(Clock::now());
  }
  REQUIRE(all_done());
}

// Runs a prober beside a descriptor that is not a ProbeListener's.
void run_beside(Prober& prober, int fd, const std::function<void()>& on_readable) {
  Poller poller;
  while (!prober.done()) {
    poller.clear();
    poller.watch(fd, POLLIN, [&](short) { on_readable(); });
    prober.watch(poller);
    REQUIRE(poller.wait(prober.deadline()).ok());
    prober.progress(Clock::now());
  }
}

// The result of one probe by host 1.
std::string probe(const JobKey& key, const ProbeTarget& target, const std::vector<ProbeListener*>& listeners,
                  const ProbeLimits& limits = {}) {
  Prober prober(key, {.host = 1, .job_id = "job"}, {target}, limits);
  run({&prober}, listeners);
  const auto results = prober.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].host == target.host);
  CHECK(results[0].candidate == target.candidate);
  return results[0].failure;
}

// It listens but never accepts, because its queue is full.
struct DeadEnd {
  DeadEnd() {
    fd = *net::listen_stream(address);
    ::listen(fd.get(), 0);
    for (int i = 0; i < 4; ++i) fillers.push_back(*net::begin_connect(address));
  }
  net::Address address{.host = "127.0.0.1"};
  Fd fd;
  std::vector<Fd> fillers;
};

TEST_CASE("hosts and the head reach each other") {
  const JobKey key = JobKey::generate();
  std::vector<ProbedHost> hosts;
  std::vector<ProbeListener> ends;
  const NetworkFilter loopback = *parse_network("lo");
  for (int i = 0; i < 4; ++i) {
    ends.push_back(listener(key, {.host = i, .job_id = "job"}));
    const std::string name = "127.0.0." + std::to_string(i + 1);
    hosts.push_back({.name = name, .addresses = eligible({{"lo", name}}, loopback), .port = ends.back().port()});
  }
  ends.push_back(listener(key, {.host = kHeadHost, .job_id = "job"}));
  const ProbedHost head{
      .name = "head", .addresses = eligible({{"lo", "127.0.0.9"}}, loopback), .port = ends.back().port()};
  std::vector<std::unique_ptr<Prober>> owners;
  std::vector<Prober*> probers;
  std::vector<ProbeListener*> listeners;
  for (ProbeListener& end : ends) listeners.push_back(&end);
  for (int i = 0; i < 4; ++i) {
    owners.push_back(
        std::make_unique<Prober>(key, ProbeSelf{.host = i, .job_id = "job"}, probe_targets(i, hosts, head)));
    probers.push_back(owners.back().get());
  }
  run(probers, listeners);
  std::vector<std::vector<ProbeResult>> reports;
  for (Prober* prober : probers) reports.push_back(prober->take_results());
  const auto choice = choose_addresses(hosts, head, reports);
  INFO((choice.ok() ? "" : choice.status().message()));
  REQUIRE(choice.ok());
  CHECK(choice->hosts[2].candidate.address == "127.0.0.3");
  CHECK(choice->head->candidate.address == "127.0.0.9");
  // The head may probe the hosts, too.
  Prober from_head(key, {.job_id = "job"}, {{.host = 3, .address = at("127.0.0.4", ends[3])}});
  run({&from_head}, listeners);
  CHECK(from_head.take_results()[0].failure.empty());
}

TEST_CASE("an address at which somebody else answers is not reached") {
  const JobKey key = JobKey::generate();
  ProbeListener own = listener(key, {.host = 1, .job_id = "job"});
  ProbeListener other = listener(key, {.host = 2, .job_id = "job"});
  CHECK(has(probe(key, {.host = 0, .address = at("127.0.0.1", own)}, {&own}), "this host itself answers"));
  CHECK(has(probe(key, {.host = 0, .address = at("127.0.0.1", other)}, {&other}), "another host of the job answers"));
  CHECK(probe(key, {.host = 2, .candidate = 5, .address = at("127.0.0.1", other)}, {&other}).empty());
}

TEST_CASE("another job's host is not reached") {
  const JobKey key = JobKey::generate();
  ProbeListener other_key = listener(JobKey::generate(), {.host = 0, .job_id = "job"});
  ProbeListener other_job = listener(key, {.host = 0, .job_id = "yesterday"});
  CHECK(
      has(probe(key, {.address = at("127.0.0.1", other_key)}, {&other_key}), "the other side belongs to another job"));
  CHECK(
      has(probe(key, {.address = at("127.0.0.1", other_job)}, {&other_job}), "the other side belongs to another job"));
}

TEST_CASE("a listener for something else is not reached") {
  const JobKey key = JobKey::generate();
  auto store = net::listen_secure("127.0.0.1:0", key, {.purpose = "store", .job_id = "job", .from = 0});
  REQUIRE(store.ok());
  Prober prober(key, {.host = 1, .job_id = "job"}, {{.host = 0, .address = (*store)->address()}});
  run_beside(prober, (*store)->fd(), [&] {
    (*store)->progress(Clock::now(), {}, [](const std::unique_ptr<net::SecureSocket>&) { FAIL("taken"); });
  });
  CHECK(has(prober.take_results()[0].failure, "closed before any message"));
}

TEST_CASE("a closed port, a dead end, silence and nonsense are told apart") {
  const JobKey key = JobKey::generate();
  net::Address closed{.host = "127.0.0.1"};
  net::listen_stream(closed)->reset();
  CHECK(has(probe(key, {.address = net::to_string(closed)}, {}), "Connection refused"));
  const DeadEnd dead_end;
  CHECK(has(probe(key, {.address = net::to_string(dead_end.address)}, {}, kQuick), "no answer within 0.2 s"));
  net::Address mute{.host = "127.0.0.1"};
  const auto listening = net::listen_stream(mute);
  REQUIRE(listening.ok());
  CHECK(has(probe(key, {.address = net::to_string(mute)}, {}, kQuick), "accepts connections but has sent nothing"));
  CHECK(has(probe(key, {.address = "nonsense"}, {}), "'nonsense' is not an address"));
  CHECK_FALSE(probe(key, {.address = "no-such-host.invalid:1"}, {}).empty());
}

TEST_CASE("probes that come before the listener knows whose it is wait for it") {
  const JobKey key = JobKey::generate();
  ProbeListener early = listener();
  Prober prober(key, {.host = 1, .job_id = "job"}, {{.host = 0, .address = at("127.0.0.1", early)}});
  Poller poller;
  for (int i = 0; i < 3; ++i) {  // as far as it can get: connect begun, connected, greeting sent
    poller.clear();
    early.watch(poller);
    prober.watch(poller);
    REQUIRE(poller.wait(earlier(prober.deadline(), deadline_after(0.05))).ok());
    prober.progress(Clock::now());
  }
  CHECK_FALSE(prober.done());
  early.answer(key, {.host = 0, .job_id = "job"});
  run({&prober}, {&early});
  CHECK(prober.take_results()[0].failure.empty());
}

TEST_CASE("a connection that is dropped without a word is tried again, but not for ever") {
  const JobKey key = JobKey::generate();
  net::Address address{.host = "127.0.0.1"};
  auto listening = net::listen_stream(address);
  REQUIRE(listening.ok());
  Prober prober(key, {.host = 1, .job_id = "job"}, {{.host = 0, .address = net::to_string(address)}});
  int slammed = 0;
  run_beside(prober, listening->get(), [&] { slammed += net::accept_stream(listening->get())->valid() ? 1 : 0; });
  CHECK(slammed == 8);
  CHECK(has(prober.take_results()[0].failure, "closed before any message"));
}

TEST_CASE("dead ends cost a bounded time, the best addresses first") {
  const JobKey key = JobKey::generate();
  const DeadEnd dead_end;
  const std::string address = net::to_string(dead_end.address);
  std::vector<ProbeTarget> targets;
  // As many hosts as the prober tries at once. It tries their first addresses at the very start, and their last ones
  // never.
  for (int host = 2; host < 22; ++host) {
    for (int candidate = 0; candidate < 4; ++candidate) targets.push_back({host, candidate, address});
  }
  const auto begun = Clock::now();
  Prober prober(key, {.host = 1, .job_id = "job"}, targets,
                {.each = std::chrono::milliseconds(100), .all = std::chrono::milliseconds(200), .at_once = 20});
  run({&prober}, {});
  CHECK(Clock::now() - begun < std::chrono::seconds(20));
  const auto results = prober.take_results();
  REQUIRE(results.size() == targets.size());
  std::map<int, int> tried;
  for (const ProbeResult& result : results) tried[result.candidate] += has(result.failure, "not tried") ? 0 : 1;
  CHECK(tried[0] == 20);
  CHECK(tried[3] == 0);
  CHECK(has(results.back().failure, "not tried: the time for all probes (0.2 s) was over"));
}

TEST_CASE("many hosts at once come through the few places of a listener") {
  const JobKey key = JobKey::generate();
  ProbeListener busy = listener(key, {.host = 0, .job_id = "job"});
  std::vector<std::unique_ptr<Prober>> owners;
  std::vector<Prober*> probers;
  for (int host = 1; host <= 300; ++host) {
    owners.push_back(std::make_unique<Prober>(key, ProbeSelf{.host = host, .job_id = "job"},
                                              std::vector<ProbeTarget>{{0, 0, at("127.0.0.1", busy)}}));
    probers.push_back(owners.back().get());
  }
  run(probers, {&busy});
  for (Prober* prober : probers) CHECK(prober->take_results().at(0).failure.empty());
}

TEST_CASE("strangers on a listener keep nobody out") {
  const JobKey key = JobKey::generate();
  ProbeListener busy = listener(key, {.host = 0, .job_id = "job"});
  const auto address = net::parse_address(at("127.0.0.1", busy));
  REQUIRE(address.ok());
  std::vector<Fd> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(*net::begin_connect(*address));
  const std::string nonsense(4096, 'x');
  for (std::size_t i = 0; i < 50; ++i) ::send(silent[i].get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
  CHECK(probe(key, {.host = 0, .address = at("127.0.0.1", busy)}, {&busy}).empty());
}

TEST_CASE("what answers without the key is told apart") {
  const JobKey key = JobKey::generate();
  net::Address address{.host = "127.0.0.1"};
  auto listening = net::listen_stream(address);
  REQUIRE(listening.ok());
  Prober prober(key, {.host = 1, .job_id = "job"}, {{.host = 0, .address = net::to_string(address)}});
  std::vector<Fd> accepted;
  run_beside(prober, listening->get(), [&] {
    accepted.push_back(*net::accept_stream(listening->get()));
    const std::string banner = "SSH-2.0-OpenSSH_9.2 and more, as much as an answer has";
    ::send(accepted.back().get(), banner.data(), banner.size(), MSG_NOSIGNAL);
  });
  CHECK(has(prober.take_results()[0].failure, "does not belong to the job"));
}

// Answers like a host of the job, and then passes its end of the connection to `then`.
struct Answerer {
  Answerer(const JobKey& key, std::function<void(int)> and_then) : words(key, "job"), then(std::move(and_then)) {
    listener = *net::listen_stream(address);
  }
  void watch(Poller& poller) {
    poller.watch(listener.get(), POLLIN, [this](short) { asking.push_back(*net::accept_stream(listener.get())); });
    for (std::size_t i = 0; i < asking.size(); ++i) {
      if (asking[i].valid()) poller.watch(asking[i].get(), POLLIN, [this, i](short) { answer(asking[i]); });
    }
  }
  void answer(Fd& fd) {
    if (answered.size() >= silent_after) return ignored.push_back(std::move(fd));
    net::ProbeWords::Question question{};
    REQUIRE(::recv(fd.get(), question.data(), question.size(), 0) == 64);
    const auto bytes = words.answer(question, 0);
    REQUIRE(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == 36);
    then(fd.get());
    answered.push_back(std::move(fd));
  }
  // Runs until the prober is done, and calls `each` from time to time.
  void run(
      Prober& prober, ProbeListener* other, const std::function<void()>& each = [] {}) {
    Poller poller;
    while (!prober.done()) {
      poller.clear();
      watch(poller);
      if (other != nullptr) other->watch(poller);
      prober.watch(poller);
      REQUIRE(poller.wait(earlier(prober.deadline(), deadline_after(0.02))).ok());
      prober.progress(Clock::now());
      each();
    }
  }
  net::ProbeWords words;
  std::function<void(int)> then;
  net::Address address{.host = "127.0.0.1"};
  Fd listener;
  std::vector<Fd> asking, answered, ignored;
  std::size_t silent_after = 1000;  // answers no more connections than that
};

TEST_CASE("a path on which small messages pass and large ones do not is told with its cure") {
  const JobKey key = JobKey::generate();
  // Acts as if large messages were dropped in one of the two directions.
  Answerer host(key, [](int) {});
  Prober prober(key, {.host = 1, .job_id = "job"}, {{.host = 0, .address = net::to_string(host.address)}},
                {.each = std::chrono::seconds(2)});
  host.run(prober, nullptr);
  const auto results = prober.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].failure == "small messages pass, large ones do not: check the MTU");
  CHECK(results[0].link == LinkEnd::kLargeSilent);
  CHECK(host.answered.size() == 17);  // 16 more small messages after the large one
}

TEST_CASE("a path on which small messages are lost too is no matter of the MTU") {
  const JobKey key = JobKey::generate();
  // Answers the first small message, and no other one.
  int answers = 0;
  Answerer host(key, [&answers](int) { ++answers; });
  Prober prober(key, {.host = 1, .job_id = "job"}, {{.host = 0, .address = net::to_string(host.address)}},
                {.each = std::chrono::milliseconds(300),
                 .all = std::chrono::milliseconds(600),
                 .large = std::chrono::milliseconds(1500)});
  const TimePoint begun = Clock::now();
  host.silent_after = 1;
  host.run(prober, nullptr);
  const auto results = prober.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].failure == "a large message does not arrive; small messages are lost too");
  CHECK(results[0].link == LinkEnd::kSilent);
  CHECK(answers == 1);
  // Lost packets are sent again, so the large message gets all the time that there is.
  CHECK(Clock::now() - begun >= std::chrono::milliseconds(1500));
}

TEST_CASE("what is large is more than one packet, each way") {
  const JobKey key = JobKey::generate();
  ProbeListener end = listener(key, {.host = 0, .job_id = "job"});
  net::Address address = *net::parse_address(at("127.0.0.1", end));
  const Fd fd = *net::connect_stream(address, deadline_after(30));
  const net::ProbeWords words(key, "job");
  const auto question = words.question(1, 0);
  REQUIRE(::send(fd.get(), question.data(), question.size(), MSG_NOSIGNAL) == 64);
  std::size_t sent = 0;
  std::size_t received = 0;
  const std::vector<char> bytes(kLargeProbe);
  std::vector<char> scratch(2 * kLargeProbe);
  Poller poller;
  bool ended = false;
  while (!ended) {
    poller.clear();
    end.watch(poller);
    poller.watch(fd.get(), POLLIN, [](short) {});
    REQUIRE(poller.wait(deadline_after(1)).ok());
    for (;;) {
      const ssize_t n = ::recv(fd.get(), scratch.data(), scratch.size(), MSG_DONTWAIT);
      if (n == 0) ended = true;
      if (n <= 0) break;
      received += static_cast<std::size_t>(n);
    }
    if (sent == 0 && received >= 36) CHECK(received == 36);  // the listener waits for the bytes of this side
    const ssize_t n =
        received < 36 ? 0 : ::send(fd.get(), bytes.data(), kLargeProbe - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) sent += static_cast<std::size_t>(n);
  }
  CHECK(received == 36 + kLargeProbe);
  CHECK(kLargeProbe > 65536);
}

TEST_CASE("a slow network that moves what is large is reached, in more time than a small answer has") {
  const JobKey key = JobKey::generate();
  int peer = -1;
  Answerer host(key, [&](int fd) { peer = fd; });
  Prober prober(key, {.host = 1, .job_id = "job"}, {{.host = 0, .address = net::to_string(host.address)}},
                {.each = std::chrono::milliseconds(300)});
  const TimePoint begun = Clock::now();
  TimePoint next = begun;
  std::vector<char> bytes(1 << 20);
  std::size_t sent = 0;
  host.run(prober, nullptr, [&] {
    if (peer < 0 || Clock::now() < next) return;
    next = Clock::now() + std::chrono::milliseconds(50);
    while (::recv(peer, bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) continue;
    const std::size_t part = std::min<std::size_t>(4096, kLargeProbe - sent);
    const ssize_t n = part == 0 ? 0 : ::send(peer, bytes.data(), part, MSG_NOSIGNAL);
    sent += static_cast<std::size_t>(std::max<ssize_t>(0, n));
  });
  CHECK(prober.take_results()[0].failure.empty());
  CHECK(Clock::now() - begun > std::chrono::milliseconds(600));
}

TEST_CASE("of a host's addresses the best one that answers gets what is large") {
  const JobKey key = JobKey::generate();
  ProbeListener end = listener(key, {.host = 0, .job_id = "job"});
  Answerer small(key, [](int) {});
  // The second address is not tried with large messages. It would not accept them.
  Prober prober(key, {.host = 1, .job_id = "job"},
                {{.host = 0, .candidate = 0, .address = at("127.0.0.1", end)},
                 {.host = 0, .candidate = 1, .address = net::to_string(small.address)}},
                {.each = std::chrono::seconds(20)});
  const TimePoint begun = Clock::now();
  small.run(prober, &end);
  CHECK(Clock::now() - begun < std::chrono::seconds(15));
  for (const ProbeResult& result : prober.take_results()) CHECK(result.failure.empty());
}

TEST_CASE("a caller that has proved itself is kept, however many strangers come") {
  const JobKey key = JobKey::generate();
  ProbeListener busy = listener(key, {.host = 0, .job_id = "job"});
  const net::Address address = *net::parse_address(at("127.0.0.1", busy));
  const Fd known = *net::connect_stream(address, deadline_after(30));
  const net::ProbeWords words(key, "job");
  const auto question = words.question(1, 0);
  REQUIRE(::send(known.get(), question.data(), question.size(), MSG_NOSIGNAL) == 64);
  const auto turn = [&] {
    Poller poller;
    busy.watch(poller);
    REQUIRE(poller.wait(deadline_after(0.05)).ok());
  };
  turn();
  turn();
  std::vector<Fd> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(*net::begin_connect(address));
    if (i % 50 == 0) turn();
  }
  turn();
  turn();
  net::ProbeWords::Answer answer{};
  REQUIRE(::recv(known.get(), answer.data(), answer.size(), MSG_WAITALL | MSG_DONTWAIT) == 36);
  char more = 0;
  CHECK(::recv(known.get(), &more, 1, MSG_DONTWAIT) == -1);  // no end of file
}

TEST_CASE("nothing to probe is done at once") {
  Prober prober(JobKey::generate(), {.host = 0, .job_id = "job"}, {});
  CHECK(prober.done());
  CHECK_FALSE(prober.deadline());
  CHECK(prober.take_results().empty());
}

TEST_CASE("the kernel lists loopback, and each address once") {
  const std::vector<Candidate> found = net::scan_addresses();
  const Candidate loopback{"lo", "127.0.0.1"};
  CHECK(std::count(found.begin(), found.end(), loopback) == 1);
  CHECK(found.size() <= kMaxCandidates);
  CHECK(eligible(found, {}).rejected.size() >= 1);
}

TEST_CASE("the kernel tells the speed of an interface, or that it has none") {
  const test::Sysroot sysfs;
  const auto loopback = [&sysfs] {
    for (const Candidate& one : net::scan_addresses(sysfs.path())) {
      if (one.interface == "lo") return one.speed;
    }
    return -2;
  };
  CHECK(loopback() == 0);
  sysfs.write("lo/speed", "25000\n");
  CHECK(loopback() == 25000);
  for (const char* unknown : {"-1\n", "4294967295\n", ""}) {
    sysfs.write("lo/speed", unknown);
    CHECK(loopback() == 0);
  }
}

}  // namespace
}  // namespace distrun::launcher
