#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "launcher/protocol/messages.h"
#include "launcher/spawn/process.h"
#include "test/support/digest.h"

namespace distrun::launcher {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto view = net::as_bytes(text);
  return {view.begin(), view.end()};
}

// The decoder must refuse every prefix of a message, and must read nothing after its end.
template <class Decode>
void refuses_prefixes(const std::vector<std::byte>& bytes, Decode decode) {
  for (std::size_t size = 0; size < bytes.size(); ++size) CHECK_FALSE(decode(std::span(bytes).first(size)).ok());
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  CHECK_FALSE(decode(longer).ok());
}

TEST_CASE("questions about ranks and paths survive encoding, cut ones are refused") {
  const AskStates question{.round = 3, .listen = true, .sessions = {{.rank = 1, .pid = 42}}};
  REQUIRE(decode<AskStates>(encode(question)).ok());
  CHECK(decode<AskStates>(encode(question))->listen);
  CHECK(decode<AskStates>(encode(question))->sessions.at(0).pid == 42);
  refuses_prefixes(encode(question), [](auto bytes) { return decode<AskStates>(bytes); });

  const RankStates states{.round = 3, .probe_port = 7, .ranks = {{.rank = 1, .pid = 42, .state = 'T'}}};
  REQUIRE(decode<RankStates>(encode(states)).ok());
  CHECK(decode<RankStates>(encode(states))->round == 3);
  CHECK(decode<RankStates>(encode(states))->probe_port == 7);
  CHECK(decode<RankStates>(encode(states))->ranks.at(0).state == 'T');
  refuses_prefixes(encode(states), [](auto bytes) { return decode<RankStates>(bytes); });

  const Probed probed{.results = {{.host = 2, .failure = "no answer", .link = LinkEnd::kSilent}}};
  REQUIRE(decode<Probed>(encode(probed)).ok());
  CHECK(decode<Probed>(encode(probed))->results == probed.results);
  refuses_prefixes(encode(probed), [](auto bytes) { return decode<Probed>(bytes); });
}

TEST_CASE("messages survive encoding, cut ones are refused") {
  Prepare prepare{.version = "1", .host = "h", .job_id = "j", .ports = 3, .grace = 1.5};
  prepare.common = {.command = {"true"}, .cwd = "/"};
  const auto prepared = decode<Prepare>(encode(prepare));
  REQUIRE(prepared.ok());
  CHECK(prepared->common == prepare.common);
  CHECK(prepared->grace == 1.5);
  refuses_prefixes(encode(prepare), [](auto bytes) { return decode<Prepare>(bytes); });

  const Start start{.plan = {.host = "h", .ranks = {{.rank = 1}}}, .no_grpc_proxy = "h", .key = bytes_of("0123")};
  REQUIRE(decode<Start>(encode(start)).ok());
  CHECK(decode<Start>(encode(start))->plan == start.plan);
  CHECK(decode<Start>(encode(start))->no_grpc_proxy == "h");
  CHECK(decode<Start>(encode(start))->key == start.key);
  refuses_prefixes(encode(start), [](auto bytes) { return decode<Start>(bytes); });

  const RankExited exited{.rank = 1, .pid = 2, .exit_code = 3, .signal = 4, .out_of_memory = true, .wrote = true};
  REQUIRE(decode<RankExited>(encode(exited)).ok());
  CHECK(decode<RankExited>(encode(exited))->out_of_memory);
  CHECK_FALSE(decode<RankExited>(encode(exited))->by_agent);
  CHECK(decode<RankExited>(encode(exited))->wrote);
  refuses_prefixes(encode(exited), [](auto bytes) { return decode<RankExited>(bytes); });

  const StartHosts order{.binary = "/bin/distrun",
                         .ssh = {.port = 2222, .identity = "k", .options = {"A=b", "C=d"}},
                         .job_id = "j",
                         .key = bytes_of("0123"),
                         .addresses = {"10.0.0.1:5"},
                         .hosts = {{.index = 3, .name = "h3", .user = "me"}}};
  const auto ordered = decode<StartHosts>(encode(order));
  REQUIRE(ordered.ok());
  CHECK(encode(*ordered) == encode(order));
  CHECK(ordered->ssh.options == order.ssh.options);
  CHECK(ordered->hosts.at(0).user == "me");
  refuses_prefixes(encode(order), [](auto bytes) { return decode<StartHosts>(bytes); });

  const Join join{.index = 3, .job_id = "j", .key = bytes_of("0123"), .addresses = {"10.0.0.1:5", "[fd00::1]:5"}};
  REQUIRE(decode<Join>(encode(join)).ok());
  CHECK(decode<Join>(encode(join))->addresses == join.addresses);
  refuses_prefixes(encode(join), [](auto bytes) { return decode<Join>(bytes); });

  const HostFailed failed{.index = 3, .text = "no route"};
  REQUIRE(decode<HostFailed>(encode(failed)).ok());
  CHECK(decode<HostFailed>(encode(failed))->text == "no route");
  refuses_prefixes(encode(failed), [](auto bytes) { return decode<HostFailed>(bytes); });

  const Stop stop{.term_now = {1, 2}, .term_after = 3, .kill_after = 4};
  REQUIRE(decode<Stop>(encode(stop)).ok());
  CHECK(decode<Stop>(encode(stop))->term_now == stop.term_now);
  refuses_prefixes(encode(stop), [](auto bytes) { return decode<Stop>(bytes); });

  const StreamBytes output{.rank = 1, .stream = 1, .when = 1ULL << 40U, .bytes = bytes_of("x")};
  REQUIRE(decode<StreamBytes>(encode(output)).ok());
  CHECK(decode<StreamBytes>(encode(output))->bytes == output.bytes);
  CHECK(decode<StreamBytes>(encode(output))->when == output.when);
  auto bad = encode(output);
  bad[4] = std::byte{2};  // there is no third stream
  CHECK_FALSE(decode<StreamBytes>(bad).ok());
}

TEST_CASE("messages about addresses survive encoding, cut ones are refused") {
  Prepared prepared;
  prepared.facts.candidates = {{"eth0", "10.0.0.7"}, {"ib0", "fd00::7", 200000}};
  prepared.facts.probe_port = 4711;
  prepared.facts.machine = "boot net pid name";
  prepared.facts.reasons = {"TMPDIR is not set"};
  const auto facts = decode<Prepared>(encode(prepared));
  REQUIRE(facts.ok());
  CHECK(facts->facts.candidates == prepared.facts.candidates);
  CHECK(facts->facts.probe_port == 4711);
  CHECK(facts->facts.machine == prepared.facts.machine);
  CHECK(facts->facts.reasons == prepared.facts.reasons);
  refuses_prefixes(encode(prepared), [](auto bytes) { return decode<Prepared>(bytes); });
  prepared.facts.candidates.assign(kMaxCandidates + 1, {"eth0", "10.0.0.7"});
  CHECK_FALSE(decode<Prepared>(encode(prepared)).ok());

  Prepare prepare{.probe = true};
  prepare.common.command = {"true"};
  CHECK(decode<Prepare>(encode(prepare))->probe);

  const Probe probe{.key = bytes_of("0123"), .host = 2, .targets = {{kHeadHost, 0, "10.0.0.9:1"}, {3, 1, "[::1]:2"}}};
  REQUIRE(decode<Probe>(encode(probe)).ok());
  CHECK(decode<Probe>(encode(probe))->key == probe.key);
  CHECK(decode<Probe>(encode(probe))->host == 2);
  CHECK(decode<Probe>(encode(probe))->targets == probe.targets);
  refuses_prefixes(encode(probe), [](auto bytes) { return decode<Probe>(bytes); });

  const Probed probed{.results = {{kHeadHost, 0, ""}, {3, 1, "no answer within 3 s"}}};
  REQUIRE(decode<Probed>(encode(probed)).ok());
  CHECK(decode<Probed>(encode(probed))->results == probed.results);
  refuses_prefixes(encode(probed), [](auto bytes) { return decode<Probed>(bytes); });
}

TEST_CASE("signs of life, their answers, and the loss of a host survive encoding, cut ones are refused") {
  const Heartbeat heartbeat{.sent = 1LL << 50, .ready = true};
  REQUIRE(decode<Heartbeat>(encode(heartbeat)).ok());
  CHECK(decode<Heartbeat>(encode(heartbeat))->sent == heartbeat.sent);
  CHECK(decode<Heartbeat>(encode(heartbeat))->ready);
  refuses_prefixes(encode(heartbeat), [](auto bytes) { return decode<Heartbeat>(bytes); });
  const Alive answer{.what = Alive::What::kResume, .sent = 7};
  REQUIRE(decode<Alive>(encode(answer)).ok());
  CHECK(decode<Alive>(encode(answer))->what == Alive::What::kResume);
  CHECK(decode<Alive>(encode(answer))->sent == 7);
  refuses_prefixes(encode(answer), [](auto bytes) { return decode<Alive>(bytes); });
  auto bad = encode(answer);
  bad[0] = std::byte{3};
  CHECK_FALSE(decode<Alive>(bad).ok());
  CHECK(decode<HostGone>(encode(HostGone{.index = 4}))->index == 4);
}

// The digests are of bytes that were laid out by hand.
TEST_CASE("the bytes of every message of head and agent stay as they are") {
  const std::vector<std::byte> key(4, std::byte{7});
  Prepare prepare{.version = "1", .host = "h", .job_id = "j", .ports = 3, .grace = 1.5, .lease = 2.5};
  prepare.preempt_signal = 15;
  prepare.probe = true;
  prepare.common = {.command = {"python", "train.py"},
                    .script = "train.py",
                    .server = {"srv"},
                    .cwd = "/w",
                    .open_files = 1024,
                    .environment = {{"PATH", "/bin"}, {"A", ""}},
                    .host_own = {"HOME"}};
  CHECK(digest(encode(prepare)) == 0x113d17a1d1b1b36d);
  Prepared prepared;
  prepared.facts.topology = {
      .cpus = {{.id = 1, .core = 1}},
      .quota = 2,
      .gpus = {{0, "0000:3b:00.0", "GPU-1", "H", 1, {1, 2}, {{.gpu_instance = 7, .compute_instance = 0}}}},
      .visible_devices = "0"};
  prepared.facts.machine = "m";
  prepared.facts.name = "n";
  prepared.facts.ports = {4242};
  prepared.facts.address = "10.0.0.7";
  prepared.facts.candidates = {{"eth0", "10.0.0.7", 1000}};
  prepared.facts.probe_port = 4711;
  prepared.facts.reasons = {"why"};
  CHECK(digest(encode(prepared)) == 0xb8730beedbb51a36);
  Start start{.plan = {.host = "h", .key_fd = 4}, .tf_cluster = "cl", .no_grpc_proxy = "np", .key = key};
  start.plan.ranks = {{.rank = 1,
                       .local_rank = 1,
                       .serves = true,
                       .input = RankInput::kPipe,
                       .cpus = {0, 1},
                       .environment = {{"R", "1"}},
                       .tf_task = "task"}};
  CHECK(digest(encode(start)) == 0xa613c55f76bbecf5);
  CHECK(digest(encode(Probe{.key = key, .host = 1, .targets = {{0, 1, "a:1"}}})) == 0xdb6efa1df1a8ed03);
  CHECK(digest(encode(Probed{.results = {{0, 1, "no"}}})) == 0x3086f823beba5dc4);
  CHECK(digest(encode(Resolve{.names = {"h1"}})) == 0xa09102e7944f461);
  CHECK(digest(encode(Resolved{.addresses = {{"fd99::1"}, {}}})) == 0x38a1339c72b088c);
  CHECK(digest(encode(StreamBytes{.rank = 1, .stream = 1, .when = 99, .bytes = key})) == 0xda3df6b4b4b4f554);
  CHECK(digest(encode(Credit{.rank = 1, .stream = 1, .bytes = 2})) == 0x1f53b7f660d924ed);
  CHECK(digest(encode(SignalRanks{.signal = 15, .whole_group = true, .ranks = {1}})) == 0x60b7165fc0cff981);
  CHECK(digest(encode(Stop{.term_now = {1, 2}, .term_after = 5, .kill_after = 9})) == 0x7c44b4d7f7b2bac8);
  CHECK(digest(encode(Window{.rows = 24, .columns = 80})) == 0x4c027747b24d29dd);
  const StartHosts hosts{.binary = "/d",
                         .ssh = {.port = 22, .identity = "/k", .options = {"C=y"}},
                         .job_id = "j",
                         .key = key,
                         .addresses = {"a:1"},
                         .hosts = {{2, "h2", "u"}}};
  CHECK(digest(encode(hosts)) == 0x86630cd76eac4981);
  CHECK(digest(encode(Join{.index = 1, .job_id = "j", .key = key, .addresses = {"a:1"}})) == 0x2d564d1224426e3b);
  CHECK(digest(encode(HostFailed{.index = 1, .text = "no route"})) == 0x13af0e90ee13b902);
  CHECK(digest(encode(Refused{.exit_code = 64, .text = "no"})) == 0xa9340df999a20104);
  const RankExited exited{.rank = 1, .pid = 2, .exit_code = 3, .signal = 9, .out_of_memory = true};
  CHECK(digest(encode(exited)) == 0x24e44143477e0d1f);
}

TEST_CASE("a fault in the job is told under its own name, not the message's") {
  Prepare prepare{.version = "1", .host = "h", .job_id = "j"};  // it has no command
  const auto decoded = decode<Prepare>(encode(prepare));
  REQUIRE_FALSE(decoded.ok());
  CHECK(decoded.status().message().starts_with("the job is malformed"));
  CHECK(decoded.status().message().ends_with("no command"));
}

TEST_CASE("a head of another version is told by its number, whatever else it sends") {
  net::WireWriter writer;
  writer.u32(kAgentProtocol + 1).string("9.9").string("unknown things");
  const auto decoded = decode<Prepare>(writer.view());
  REQUIRE(decoded.ok());
  CHECK(decoded->protocol == kAgentProtocol + 1);
  CHECK(decoded->version == "9.9");
}

struct Pipes {
  FramePipe left;
  FramePipe right;
};

Pipes connected() {
  auto a = make_pipe();
  auto b = make_pipe();
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  return {FramePipe(std::move(a->first), std::move(b->second)), FramePipe(std::move(b->first), std::move(a->second))};
}

TEST_CASE("frames arrive whole and in order, larger than a pipe too") {
  Pipes pipes = connected();
  const std::vector<std::byte> large(1 << 20, std::byte{7});
  pipes.left.send(1, bytes_of("a"));
  pipes.left.send(2, large);
  pipes.left.send(3, {});
  std::vector<Frame> got;
  while (got.size() < 3) {
    pipes.left.flush();
    for (Frame& frame : pipes.right.receive()) got.push_back(std::move(frame));
    REQUIRE_FALSE(pipes.right.closed());
  }
  CHECK(got[0].payload == bytes_of("a"));
  CHECK(got[1].payload == large);
  CHECK(got[2].type == 3);
  CHECK_FALSE(pipes.left.wants_write());
}

void print(Pipes& pipes, std::string_view text) {
  REQUIRE(::write(pipes.left.out(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

TEST_CASE("what a login shell prints before the greeting is no frame") {
  Pipes pipes = connected();
  pipes.right.await(kAgentGreeting);
  print(pipes, "Welcome!\n distrun agent\n");
  CHECK(pipes.right.receive().empty());
  CHECK(pipes.right.noise() == "Welcome!\n distrun agent\n");
  print(pipes, kAgentGreeting.substr(0, 5));
  CHECK(pipes.right.receive().empty());
  print(pipes, kAgentGreeting.substr(5));
  pipes.left.send(4, bytes_of("a"));
  const auto frames = pipes.right.receive();
  REQUIRE(frames.size() == 1);
  CHECK(frames[0].payload == bytes_of("a"));
  CHECK(pipes.right.noise() == "Welcome!\n distrun agent\n");
}

TEST_CASE("nothing is written before the greeting, which a login shell could read") {
  Pipes pipes = connected();
  pipes.right.await(kAgentGreeting);
  pipes.right.send(1, bytes_of("SECRET=1"));
  pipes.right.flush();
  CHECK(pipes.right.awaits_greeting());
  CHECK_FALSE(pipes.right.wants_write());
  print(pipes, "Password:");
  CHECK(pipes.right.receive().empty());
  CHECK(pipes.left.receive().empty());
  print(pipes, kAgentGreeting);
  CHECK(pipes.right.receive().empty());
  CHECK_FALSE(pipes.right.awaits_greeting());
  const auto frames = pipes.left.receive();
  REQUIRE(frames.size() == 1);
  CHECK(frames[0].payload == bytes_of("SECRET=1"));
}

TEST_CASE("the end of this side takes what waits for the greeting with it") {
  Pipes pipes = connected();
  pipes.right.await(kAgentGreeting);
  pipes.right.send(1, bytes_of("SECRET=1"));
  pipes.right.close_out();
  CHECK(pipes.left.receive().empty());
  CHECK(pipes.left.closed());
  print(pipes, kAgentGreeting);
  CHECK(pipes.right.receive().empty());
  CHECK_FALSE(pipes.right.wants_write());
}

TEST_CASE("noise without end is a fault, and an end without greeting keeps the noise") {
  {
    Pipes pipes = connected();
    pipes.right.await(kAgentGreeting);
    const std::string much(40 * 1024, 'x');
    print(pipes, much);
    CHECK(pipes.right.receive().empty());
    CHECK_FALSE(pipes.right.closed());
    print(pipes, much);
    CHECK(pipes.right.receive().empty());
    CHECK(pipes.right.closed());
    CHECK_FALSE(pipes.right.fault().ok());
  }
  Pipes pipes = connected();
  pipes.right.await(kAgentGreeting);
  print(pipes, "This account is not available.\n");
  pipes.left.close_out();
  CHECK(pipes.right.receive().empty());
  CHECK(pipes.right.receive().empty());
  CHECK(pipes.right.closed());
  CHECK(pipes.right.noise() == "This account is not available.\n");
}

TEST_CASE("the end of the other side and nonsense from it are seen") {
  {
    Pipes pipes = connected();
    pipes.left.close_out();
    CHECK(pipes.right.receive().empty());
    CHECK(pipes.right.closed());
    CHECK(pipes.right.fault().ok());
  }
  auto pipe = make_pipe();
  auto other = make_pipe();
  FramePipe reader(std::move(pipe->first), std::move(other->second));
  const std::vector<std::byte> huge(5, std::byte{0xff});
  REQUIRE(::write(pipe->second.get(), huge.data(), huge.size()) == 5);
  CHECK(reader.receive().empty());
  CHECK(reader.closed());
  CHECK_FALSE(reader.fault().ok());
}

}  // namespace
}  // namespace distrun::launcher
