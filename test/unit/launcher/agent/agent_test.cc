// An agent as a process. The test plays its head.
#include "launcher/agent/agent.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <string>

#include "launcher/spawn/process.h"
#include "test/unit/launcher/sysroot.h"

namespace distrun::launcher {
namespace {

class Head {
 public:
  Head() {
    auto down = make_pipe();
    auto up = make_pipe();
    REQUIRE((down.ok() && up.ok()));
    fork_agent([&] {
      down->second.reset();
      up->first.reset();
      return FramePipe(std::move(down->first), std::move(up->second));
    });
    pipe_ = FramePipe(std::move(up->first), std::move(down->second));
  }
  // Starts an agent that dials in. This side has small buffers.
  explicit Head(const net::JobKey& key) {
    auto listener = net::listen_secure("127.0.0.1:0", key, {.purpose = "agent", .job_id = "j"});
    REQUIRE(listener.ok());
    fork_agent([&] {
      const net::Hello hello{.purpose = "agent", .job_id = "j"};
      auto socket = net::connect_secure((*listener)->address(), key, hello, deadline_after(30));
      if (!socket.ok()) ::_exit(70);
      return FramePipe(*std::move(socket));
    });
    auto socket = (*listener)->accept_blocking({}, deadline_after(30));
    REQUIRE(socket.ok());
    const int little = 32768;
    REQUIRE(::setsockopt((*socket)->fd(), SOL_SOCKET, SO_RCVBUF, &little, sizeof little) == 0);
    pipe_ = FramePipe(*std::move(socket));
  }
  Head(const Head&) = delete;
  Head& operator=(const Head&) = delete;
  ~Head() {
    if (agent_ > 0) ::kill(agent_, SIGKILL);
    if (agent_ > 0) ::waitpid(agent_, nullptr, 0);
  }

  [[nodiscard]] pid_t pid() const { return agent_; }
  [[nodiscard]] int in() const { return pipe_.in(); }

  template <class Message>
  void send(ToAgent type, const Message& message) {
    pipe_.send(static_cast<std::uint8_t>(type), encode(message));
    pipe_.flush();
  }

  // Reads nothing for half a second.
  static void be_busy() {
    const TimePoint until = deadline_after(0.5);
    while (Clock::now() < until) {
      Poller poller;
      REQUIRE(poller.wait(until).ok());
    }
  }

  [[nodiscard]] std::size_t output() const {
    std::size_t bytes = 0;
    for (const Frame& frame : frames_) {
      if (static_cast<FromAgent>(frame.type) == FromAgent::kOutput) {
        bytes += decode<StreamBytes>(frame.payload)->bytes.size();
      }
    }
    return bytes;
  }

  void close() { pipe_.close_out(); }
  void forget() { frames_.clear(); }

  // Returns the first message of this type, or nothing if the agent ends. Until then it answers signs of life if
  // `answers`.
  std::optional<Frame> await(FromAgent type, bool answers = true) {
    const TimePoint until = deadline_after(60);
    while (Clock::now() < until) {
      for (Frame& frame : pipe_.receive()) take(std::move(frame), answers);
      const auto found = std::find_if(frames_.begin(), frames_.end(), [type](const Frame& frame) {
        return static_cast<FromAgent>(frame.type) == type;
      });
      if (found != frames_.end()) return *found;
      if (pipe_.closed()) return std::nullopt;
      Poller poller;
      poller.watch(pipe_.in(), POLLIN, [](short) {});
      if (!poller.wait(deadline_after(0.1)).ok()) return std::nullopt;
    }
    return std::nullopt;
  }

  int status() {
    int out = -1;
    ::waitpid(std::exchange(agent_, -1), &out, 0);
    return out;
  }

 private:
  void take(Frame frame, bool answers) {
    if (static_cast<FromAgent>(frame.type) == FromAgent::kAlive && answers) {
      send(ToAgent::kAlive, Alive{.sent = decode<Heartbeat>(frame.payload)->sent});
    }
    frames_.push_back(std::move(frame));
  }
  void fork_agent(const std::function<FramePipe()>& connect) {
    agent_ = ::fork();
    REQUIRE(agent_ >= 0);
    if (agent_ == 0) {
      auto agent = Agent::create(connect());
      if (!agent.ok()) ::_exit(70);
      (*agent)->run();
      ::_exit((*agent)->exit_code());
    }
  }

  pid_t agent_ = -1;
  FramePipe pipe_;
  std::vector<Frame> frames_;
};

Start start_of_one() {
  return {.plan = {.host = "h", .ranks = {{.rank = 0}}},
          .key = std::vector<std::byte>(net::JobKey::kBytes, std::byte{1})};
}

Fd connect_to(std::uint16_t port) {
  Fd out(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  address.sin_port = ::htons(port);
  REQUIRE(::connect(out.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return out;
}

TEST_CASE("strangers who leave the probe port at the moment of the start do no harm") {
  Head head;
  Prepare order{.host = "h", .job_id = "j", .grace = 1, .probe = true};
  order.common = {.command = {"/bin/true"}, .cwd = "/"};
  head.send(ToAgent::kPrepare, order);
  const auto prepared = head.await(FromAgent::kPrepared);
  REQUIRE(prepared);
  const auto facts = decode<Prepared>(prepared->payload)->facts;
  head.send(ToAgent::kProbe,
            Probe{.key = std::vector<std::byte>(net::JobKey::kBytes, std::byte{1}), .host = 0, .targets = {}});
  REQUIRE(head.await(FromAgent::kProbed));
  std::vector<Fd> strangers;
  for (int i = 0; i < 3; ++i) strangers.push_back(connect_to(facts.probe_port));
  // The last stranger asks something. When it is refused, the agent has accepted the others.
  const Fd last = connect_to(facts.probe_port);
  const net::ProbeWords::Question nonsense{};
  REQUIRE(::write(last.get(), nonsense.data(), nonsense.size()) == static_cast<ssize_t>(nonsense.size()));
  char text[256];
  while (::read(last.get(), text, sizeof text) > 0) continue;
  // The agent must see both events in one round of its loop.
  ::kill(head.pid(), SIGSTOP);
  int status = 0;
  REQUIRE(::waitpid(head.pid(), &status, WUNTRACED) == head.pid());
  REQUIRE(WIFSTOPPED(status));
  strangers.clear();
  head.send(ToAgent::kStart, start_of_one());
  ::kill(head.pid(), SIGCONT);
  CHECK(head.await(FromAgent::kDone));
  CHECK(head.status() == 0);
}

TEST_CASE("what ranks said last arrives over a slow connection, whatever the head said meanwhile") {
  constexpr std::size_t kBytes = 60'000;  // of each rank: less than a stream may have under way
  constexpr int kRanks = 6;               // more than a connection takes at once at first
  Head head(net::JobKey::generate());
  Prepare order{.host = "h", .job_id = "j", .grace = 1, .lease = 30};
  order.common = {.command = {"/bin/sh", "-c", "head -c " + std::to_string(kBytes) + " /dev/zero"}, .cwd = "/"};
  head.send(ToAgent::kPrepare, order);
  REQUIRE(head.await(FromAgent::kPrepared));
  Start start = start_of_one();
  for (int rank = 1; rank < kRanks; ++rank) start.plan.ranks.push_back({.rank = rank});
  head.send(ToAgent::kStart, start);
  head.be_busy();
  CHECK(head.await(FromAgent::kDone));
  CHECK(head.output() == kRanks * kBytes);
  head.close();
  CHECK(head.status() == 0);
}

TEST_CASE("SIGQUIT at an agent asks the head where the ranks are, and ends nothing") {
  Head head;
  Prepare order{.host = "h", .job_id = "j", .grace = 1};
  order.common = {.command = {"/bin/sleep", "60"}, .cwd = "/"};
  head.send(ToAgent::kPrepare, order);
  REQUIRE(head.await(FromAgent::kPrepared));
  head.send(ToAgent::kStart, start_of_one());
  REQUIRE(head.await(FromAgent::kStarted));
  ::kill(head.pid(), SIGQUIT);
  CHECK(head.await(FromAgent::kStacksAsked));
  head.send(ToAgent::kStop, Stop{});
  const auto exited = head.await(FromAgent::kExited);
  REQUIRE(exited);
  CHECK_FALSE(decode<RankExited>(exited->payload)->wrote);
  CHECK(head.await(FromAgent::kDone));
  head.close();
  head.status();
}

TEST_CASE("a rank that writes its only line just before its end has written something") {
  Head head;
  Prepare order{.host = "h", .job_id = "j", .grace = 1};
  order.common = {.command = {"/bin/sh", "-c", "echo no data; exit 3"}, .cwd = "/"};
  head.send(ToAgent::kPrepare, order);
  REQUIRE(head.await(FromAgent::kPrepared));
  head.send(ToAgent::kStart, start_of_one());
  const auto exited = head.await(FromAgent::kExited);
  REQUIRE(exited);
  CHECK(decode<RankExited>(exited->payload)->wrote);
  CHECK(head.await(FromAgent::kDone));
  head.close();
  head.status();
}

TEST_CASE("looking for a module does not count as silence of the head") {
  const test::Sysroot tree;
  tree.write("python", "#!/bin/sh\n[ \"$1\" != -c ] || sleep 1.5\n");
  std::filesystem::permissions(tree.path() + "python", std::filesystem::perms::owner_all);
  Head head;
  Prepare order{.host = "h", .job_id = "j", .grace = 1, .lease = 1};
  order.common = {.command = {"python", "-m", "x"}, .cwd = "/"};
  order.common.environment["PATH"] = tree.path() + ":/usr/bin:/bin";
  head.send(ToAgent::kPrepare, order);
  // The head itself sends no sign of life before it has the answer.
  Poller poller;
  poller.watch(head.in(), POLLIN, [](short) {});
  REQUIRE(poller.wait(deadline_after(60)).ok());
  REQUIRE(head.await(FromAgent::kPrepared));
  head.send(ToAgent::kStart, start_of_one());
  CHECK(head.await(FromAgent::kDone));
  CHECK(head.status() == 0);
}

// A rank that would run for a long time, below an agent with a lease.
struct Leased {
  explicit Leased(double lease) {
    Prepare order{.host = "h", .job_id = "j", .grace = 60, .lease = lease};
    order.common = {.command = {"sleep", "1000"}, .cwd = "/"};
    order.common.environment["PATH"] = "/usr/bin:/bin";
    head.send(ToAgent::kPrepare, order);
    REQUIRE(head.await(FromAgent::kPrepared));
    head.send(ToAgent::kStart, start_of_one());
    REQUIRE(head.await(FromAgent::kStarted));
  }
  Head head;
};

TEST_CASE("an agent whose signs of life are not answered ends its ranks, and says why") {
  Leased job(1);
  const TimePoint before = Clock::now();
  const auto refused = job.head.await(FromAgent::kRefused, false);
  REQUIRE(refused);
  CHECK(decode<Refused>(refused->payload)->exit_code == 75);
  CHECK(decode<Refused>(refused->payload)->text.starts_with("host h has heard nothing from the launcher for 1 s"));
  REQUIRE(job.head.await(FromAgent::kExited, false));
  CHECK(job.head.await(FromAgent::kDone, false));
  CHECK(Clock::now() - before < std::chrono::seconds(30));
  CHECK(job.head.status() == 75 << 8);
}

TEST_CASE("an agent whose signs of life are answered goes on, however long that is") {
  Leased job(1.2);
  const TimePoint until = deadline_after(3);
  while (Clock::now() < until) {
    REQUIRE(job.head.await(FromAgent::kAlive));
    job.head.forget();
  }
  job.head.send(ToAgent::kStop, Stop{});
  const auto exited = job.head.await(FromAgent::kExited);
  REQUIRE(exited);
  CHECK(decode<RankExited>(exited->payload)->by_agent);
  CHECK(job.head.await(FromAgent::kDone));
  job.head.close();
  job.head.status();
}

}  // namespace
}  // namespace distrun::launcher
