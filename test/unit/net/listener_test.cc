// A listener and strangers that must not join. The listener runs on its own thread, as in its owner's loop.
#include <dirent.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/net/bytes/socket.h"
#include "runtime/net/secure/handshake.h"
#include "runtime/net/secure/secure_socket.h"

namespace distrun::net {
namespace {

using Bytes = std::vector<std::byte>;

TimePoint soon() { return deadline_after(40); }
Hello client_hello(int from) { return {.purpose = "control", .job_id = "job", .from = from, .to = 0}; }

// A log that keeps its lines.
struct Lines {
  std::mutex mutex;
  std::vector<std::string> lines;
  Log log{"warning", -1, [this](const std::string& line) {
            const std::lock_guard lock(mutex);
            lines.push_back(line);
          }};
  std::vector<std::string> all() {
    const std::lock_guard lock(mutex);
    return lines;
  }
};

// The listener's clock can be moved ahead, so that no test waits for real seconds.
class Host {
 public:
  explicit Host(const std::string& address) {
    auto made = listen_secure(address, key_, {.purpose = "control", .job_id = "job", .from = 0}, &lines_.log);
    REQUIRE(made.ok());
    listener_ = *std::move(made);
    thread_ = std::thread([this] { run(); });
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  ~Host() {
    stop_ = true;
    thread_.join();
  }

  [[nodiscard]] Fd stranger() const {
    auto address = parse_address(listener_->address());
    auto fd = connect_stream(*address, soon());
    REQUIRE(fd.ok());
    return *std::move(fd);
  }
  [[nodiscard]] Status friend_joins(int rank) const {
    return connect_secure(listener_->address(), key_, client_hello(rank), soon()).status();
  }
  // Blocks until the listener closes its side. Returns false if the listener sends anything first.
  [[nodiscard]] static bool closed_without_a_word(int fd) {
    char byte = 0;
    REQUIRE(wait_ready(fd, POLLIN, soon()).ok());
    return ::recv(fd, &byte, 1, 0) <= 0;
  }
  void skip(std::chrono::milliseconds time) { ahead_ms_ += time.count(); }
  [[nodiscard]] int joined() const { return joined_; }
  Lines& lines() { return lines_; }
  [[nodiscard]] const std::string& address() const { return listener_->address(); }
  [[nodiscard]] const JobKey& key() const { return key_; }

 private:
  void run() {
    while (!stop_) {
      // The descriptor wakes the loop. The short limit is only for stop_ and for changes of the clock.
      pollfd item{.fd = listener_->fd(), .events = POLLIN, .revents = 0};
      ::poll(&item, 1, 5);
      listener_->progress(Clock::now() + std::chrono::milliseconds(ahead_ms_), {},
                          [this](std::unique_ptr<SecureSocket> peer) {
                            peers_.push_back(std::move(peer));
                            ++joined_;
                          });
    }
  }

  const JobKey key_ = JobKey::generate();
  Lines lines_;
  std::unique_ptr<SecureListener> listener_;
  std::vector<std::unique_ptr<SecureSocket>> peers_;  // used by the thread
  std::atomic<int> joined_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<long long> ahead_ms_ = 0;
  std::thread thread_;
};

int open_descriptors() {
  int count = 0;
  DIR* directory = ::opendir("/proc/self/fd");
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

TEST_CASE("200 silent strangers do not keep a peer out", "[listener]") {
  for (const char* address : {"127.0.0.1:0", "unix:@"}) {
    Host host(address);
    std::vector<Fd> strangers;
    for (int i = 0; i < 200; ++i) strangers.push_back(host.stranger());
    for (int rank = 1; rank < 4; ++rank) {
      const Status joined = host.friend_joins(rank);
      INFO((joined.ok() ? "" : joined.message()));
      CHECK(joined.ok());
    }
    // At most 128 of the strangers are still connected; the listener closed the first ones.
    CHECK(Host::closed_without_a_word(strangers.front().get()));
  }
}

// The initiator's side without blocking. It is over when it was welcomed or refused.
class Newcomer {
 public:
  Newcomer(Fd fd, const JobKey& key, int rank)
      : fd_(std::move(fd)), handshake_(NoiseHandshake::Role::kInitiator, key, client_hello(rank)) {
    say();
  }
  [[nodiscard]] bool welcome() const { return handshake_.state() == Handshake::State::kDone; }
  [[nodiscard]] bool closed() const { return closed_; }
  void progress() {
    while (!closed_ && handshake_.state() == Handshake::State::kRunning) {
      Bytes bytes(handshake_.wanted());
      const ssize_t n = ::recv(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) return;
      closed_ = n != static_cast<ssize_t>(bytes.size()) || !handshake_.feed(bytes).ok();
      say();
    }
  }

 private:
  void say() {
    const Bytes bytes = handshake_.take_output();
    if (!bytes.empty()) (void)::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  Fd fd_;
  Handshake handshake_;
  bool closed_ = false;
};

TEST_CASE("400 peers that come all at once are all welcomed, and none is turned away", "[listener]") {
  const JobKey key = JobKey::generate();
  auto listener = listen_secure("unix:@", key, {.purpose = "control", .job_id = "job", .from = 0});
  REQUIRE(listener.ok());
  std::vector<std::unique_ptr<Newcomer>> newcomers;
  for (int rank = 1; rank <= 400; ++rank) {
    auto fd = connect_stream(*parse_address((*listener)->address()), soon());
    REQUIRE(fd.ok());
    newcomers.push_back(std::make_unique<Newcomer>(*std::move(fd), key, rank));
  }
  const TimePoint now = Clock::now();  // this time is fixed, so no newcomer is silent for too long
  std::size_t welcome = 0;
  for (int turn = 0; turn < 100 && welcome < newcomers.size(); ++turn) {
    (*listener)->progress(now, {}, [&](const std::unique_ptr<SecureSocket>&) { ++welcome; });
    for (const auto& newcomer : newcomers) newcomer->progress();
  }
  CHECK(welcome == newcomers.size());
  for (const auto& newcomer : newcomers) {
    CHECK(newcomer->welcome());
    CHECK_FALSE(newcomer->closed());
  }
}

TEST_CASE("the owner of a full listener sleeps until somebody has been silent for too long", "[listener]") {
  const JobKey key = JobKey::generate();
  auto listener = listen_secure("unix:@", key, {.purpose = "control", .job_id = "job", .from = 0});
  REQUIRE(listener.ok());
  std::vector<Fd> strangers;
  for (int i = 0; i < 129; ++i) {
    auto fd = connect_stream(*parse_address((*listener)->address()), soon());
    REQUIRE(fd.ok());
    strangers.push_back(*std::move(fd));
  }
  const auto no_peer = [](const std::unique_ptr<SecureSocket>&) { FAIL("a stranger became a peer"); };
  pollfd item{.fd = (*listener)->fd(), .events = POLLIN, .revents = 0};
  // The listener's clock is a minute ahead, so its timer does not expire here.
  const TimePoint now = Clock::now() + std::chrono::minutes(1);
  for (int turn = 0; turn < 3; ++turn) (*listener)->progress(now, {}, no_peer);
  CHECK(::poll(&item, 1, 0) == 0);
  char byte = 0;
  CHECK(::recv(strangers.front().get(), &byte, 1, MSG_DONTWAIT) < 0);
  for (int turn = 0; turn < 2; ++turn) (*listener)->progress(now + std::chrono::milliseconds(100), {}, no_peer);
  CHECK(Host::closed_without_a_word(strangers.front().get()));
}

TEST_CASE("a silent stranger is closed when its 5 s are over, a peer is not", "[listener]") {
  Host host("127.0.0.1:0");
  const Fd stranger = host.stranger();
  auto peer = connect_secure(host.address(), host.key(), client_hello(1), soon());
  REQUIRE(peer.ok());
  host.skip(std::chrono::milliseconds(5100));
  CHECK(Host::closed_without_a_word(stranger.get()));
  Bytes frame;
  CHECK_FALSE(*(*peer)->receive_frame(frame));
}

TEST_CASE("the descriptor wakes its owner when a stranger's time is up", "[listener]") {
  const JobKey key = JobKey::generate();
  auto listener = listen_secure("unix:@", key, {.purpose = "control", .job_id = "job", .from = 0});
  REQUIRE(listener.ok());
  auto stranger = connect_stream(*parse_address((*listener)->address()), soon());
  REQUIRE(stranger.ok());
  const auto no_peer = [](const std::unique_ptr<SecureSocket>&) { FAIL("a stranger became a peer"); };
  // Acts as if the stranger had connected 4.9 s ago: 0.1 s is left.
  (*listener)->progress(Clock::now() - std::chrono::milliseconds(4900), {}, no_peer);
  REQUIRE(wait_ready((*listener)->fd(), POLLIN, soon()).ok());
  (*listener)->progress(Clock::now() + std::chrono::milliseconds(200), {}, no_peer);
  CHECK(Host::closed_without_a_word(stranger->get()));
  pollfd idle{.fd = (*listener)->fd(), .events = POLLIN, .revents = 0};
  CHECK(::poll(&idle, 1, 50) == 0);
}

TEST_CASE("random bytes, a huge length and half a handshake are closed without a word", "[listener]") {
  Host host("127.0.0.1:0");
  std::mt19937 random(3);
  std::vector<Bytes> attacks;
  for (int i = 0; i < 20; ++i) {
    Bytes bytes(10 + random() % 3000);
    for (auto& b : bytes) b = static_cast<std::byte>(random());
    attacks.push_back(bytes);
  }
  attacks.push_back(WireWriter().raw(as_bytes("drun")).u32(kProtocolVersion).u16(65535).take());
  attacks.push_back(WireWriter().raw(as_bytes("GET / HTTP/1.1\r\nHost: x\r\n\r\n")).take());
  attacks.push_back(Bytes(100000, std::byte{0}));
  for (const Bytes& bytes : attacks) {
    const Fd fd = host.stranger();
    (void)::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    CHECK(Host::closed_without_a_word(fd.get()));
  }
  CHECK(host.friend_joins(1).ok());
}

TEST_CASE("a recorded handshake does not make a peer", "[listener]") {
  Host host("127.0.0.1:0");
  // The two messages of an honest initiator that an eavesdropper has recorded.
  Handshake initiator(NoiseHandshake::Role::kInitiator, host.key(), client_hello(1));
  Handshake responder(NoiseHandshake::Role::kResponder, host.key(), {.purpose = "control", .job_id = "job", .from = 0});
  const Bytes first = initiator.take_output();
  REQUIRE(responder.feed(std::span(first).first(10)).ok());
  REQUIRE(responder.feed(std::span(first).subspan(10)).ok());
  const Bytes answer = responder.take_output();
  REQUIRE(initiator.feed(std::span(answer).first(10)).ok());
  REQUIRE(initiator.feed(std::span(answer).subspan(10)).ok());
  const Bytes confirmation = initiator.take_output();

  const Fd replayer = host.stranger();
  REQUIRE(::send(replayer.get(), first.data(), first.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(first.size()));
  REQUIRE(::send(replayer.get(), confirmation.data(), confirmation.size(), MSG_NOSIGNAL) > 0);
  // The replayer gets the listener's fresh answer, which it cannot read, and then the connection ends.
  Bytes rest(4096);
  ssize_t n = 1;
  while (n > 0) {
    REQUIRE(wait_ready(replayer.get(), POLLIN, soon()).ok());
    n = ::recv(replayer.get(), rest.data(), rest.size(), 0);
  }
  CHECK(host.joined() == 0);
  CHECK(host.friend_joins(1).ok());
  const TimePoint deadline = soon();
  while (host.joined() == 0 && Clock::now() < deadline) std::this_thread::yield();  // the host's thread counts
  CHECK(host.joined() == 1);
}

TEST_CASE("one's own bytes thrown back are not taken for a listener's", "[listener]") {
  // A port that echoes. A connecting side must notice that it is talking to itself.
  Address address{.host = "127.0.0.1"};
  auto echo = listen_stream(address);
  REQUIRE(echo.ok());
  std::jthread mirror([&] {
    if (!wait_ready(echo->get(), POLLIN, soon()).ok()) return;
    auto fd = accept_stream(echo->get());
    char buffer[1024];
    while (fd.ok() && fd->valid() && wait_ready(fd->get(), POLLIN, soon()).ok()) {
      const ssize_t n = ::recv(fd->get(), buffer, sizeof(buffer), 0);
      if (n <= 0) return;
      (void)::send(fd->get(), buffer, static_cast<std::size_t>(n), MSG_NOSIGNAL);
    }
  });
  const Status status = connect_secure(to_string(address), JobKey::generate(), client_hello(1), soon()).status();
  CHECK(status.code() == Errc::kProtocol);
}

TEST_CASE("a wrong key is refused with a text that says what it may be, at the first attempt", "[listener]") {
  Host host("127.0.0.1:0");
  const Status status = connect_secure(host.address(), JobKey::generate(), client_hello(1), soon()).status();
  CHECK(status.code() == Errc::kProtocol);
  CHECK(status.message().find("key or job id") != std::string::npos);
}

TEST_CASE("a peer with another version is named in the log, although it leaves by itself", "[listener]") {
  Host host("127.0.0.1:0");
  Hello hello = client_hello(1);
  hello.version = "9.9";
  const Status status = connect_secure(host.address(), host.key(), hello, soon()).status();
  CHECK(status.message().find("rank 1 runs distrun 9.9 and rank 0 runs distrun ") != std::string::npos);
  const TimePoint deadline = soon();
  while (host.lines().all().empty() && Clock::now() < deadline) std::this_thread::yield();
  REQUIRE_FALSE(host.lines().all().empty());
  CHECK(host.lines().all()[0].find("rank 1 runs distrun 9.9") != std::string::npos);
}

TEST_CASE("a listener that never answers is a timeout", "[listener]") {
  Address address{.host = "127.0.0.1"};
  auto silent = listen_stream(address);
  REQUIRE(silent.ok());
  const auto result = connect_secure(to_string(address), JobKey::generate(), client_hello(1), deadline_after(0.1));
  CHECK(result.status().code() == Errc::kTimeout);
}

TEST_CASE("strangers cost one log line per second", "[listener]") {
  Host host("127.0.0.1:0");
  for (int i = 0; i < 50; ++i) {
    const Fd fd = host.stranger();
    REQUIRE(::send(fd.get(), "nonsense nonsense", 17, MSG_NOSIGNAL) == 17);
    CHECK(Host::closed_without_a_word(fd.get()));
  }
  const auto real_seconds_lines = host.lines().all();
  REQUIRE_FALSE(real_seconds_lines.empty());
  CHECK(real_seconds_lines.size() < 45);  // 50 strangers; even a slow machine needs less than a second for each
  CHECK(real_seconds_lines[0].find("refused a connection of 127.0.0.1:") != std::string::npos);
  CHECK(real_seconds_lines[0].find("is not a process of distrun") != std::string::npos);
  host.skip(std::chrono::milliseconds(1100));
  const Fd last = host.stranger();
  REQUIRE(::send(last.get(), "nonsense nonsense", 17, MSG_NOSIGNAL) == 17);
  CHECK(Host::closed_without_a_word(last.get()));
  CHECK(host.lines().all().back().find("more since the last such line") != std::string::npos);
}

TEST_CASE("strangers leave no descriptors behind", "[listener]") {
  Host host("127.0.0.1:0");
  REQUIRE(host.friend_joins(1).ok());
  const int before = open_descriptors();
  for (int i = 0; i < 300; ++i) {
    const Fd fd = host.stranger();
    if (i % 2 == 0) (void)::send(fd.get(), "x", 1, MSG_NOSIGNAL);
  }
  const TimePoint deadline = soon();
  // The listener's thread may not have handled all of them, so the test counts descriptors at one moment.
  int open = open_descriptors();
  for (; open > before && Clock::now() < deadline; open = open_descriptors()) {
    host.skip(std::chrono::milliseconds(6000));
    std::this_thread::yield();
  }
  CHECK(open <= before);
}

TEST_CASE("out of descriptors, the owner is not kept busy, and peers come in when there are some again", "[listener]") {
  const JobKey key = JobKey::generate();
  Lines lines;
  auto listener = listen_secure("127.0.0.1:0", key, {.purpose = "control", .job_id = "job", .from = 0}, &lines.log);
  REQUIRE(listener.ok());
  auto stranger = connect_stream(*parse_address((*listener)->address()), soon());
  REQUIRE(stranger.ok());
  REQUIRE(wait_ready((*listener)->fd(), POLLIN, soon()).ok());
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &old) == 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = old.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const TimePoint start = Clock::now();
  (*listener)->progress(start, {}, [](const std::unique_ptr<SecureSocket>&) {});
  (*listener)->progress(start + std::chrono::seconds(2), {}, [](const std::unique_ptr<SecureSocket>&) {});
  (*listener)->progress(start + std::chrono::seconds(2), {}, [](const std::unique_ptr<SecureSocket>&) {});
  pollfd item{.fd = (*listener)->fd(), .events = POLLIN, .revents = 0};
  const int ready = ::poll(&item, 1, 0);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &old) == 0);
  // The listener pauses for a second. On a machine that stood still, this second may be over.
  CHECK((ready == 0 || Clock::now() - start > std::chrono::milliseconds(900)));
  int peers = 0;
  std::jthread client([&] { (void)connect_secure((*listener)->address(), key, client_hello(1), soon()); });
  while (peers == 0) {
    REQUIRE(wait_ready((*listener)->fd(), POLLIN, soon()).ok());
    (*listener)->progress(Clock::now(), {}, [&](const std::unique_ptr<SecureSocket>&) { ++peers; });
  }
  CHECK(peers == 1);
  REQUIRE(lines.all().size() == 1);
  CHECK(lines.all()[0].find("Too many open files") != std::string::npos);
  CHECK(lines.all()[0].find("this process may have 3: raise `ulimit -n`") != std::string::npos);
}

// Lowers the limit so that `more` descriptors can be opened, until it is destroyed.
class FewFiles {
 public:
  explicit FewFiles(int more) {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &old_) == 0);
    std::vector<Fd> next;  // the lowest free numbers
    for (int i = 0; i <= more; ++i) next.emplace_back(::dup(0));
    const rlimit few{.rlim_cur = static_cast<rlim_t>(next.back().get()), .rlim_max = old_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  FewFiles(const FewFiles&) = delete;
  FewFiles& operator=(const FewFiles&) = delete;
  ~FewFiles() { ::setrlimit(RLIMIT_NOFILE, &old_); }

 private:
  rlimit old_{};
};

TEST_CASE("out of descriptors, a wait for a peer soon ends with the limit and the cure", "[listener]") {
  const JobKey key = JobKey::generate();
  auto listener = listen_secure("127.0.0.1:0", key, {.purpose = "control", .job_id = "job", .from = 0});
  REQUIRE(listener.ok());
  auto waiting = connect_stream(*parse_address((*listener)->address()), soon());
  REQUIRE(waiting.ok());
  const TimePoint begun = Clock::now();
  Status status;
  {
    const FewFiles none(0);
    status = (*listener)->accept_blocking({}, soon()).status();
  }
  CHECK(Clock::now() - begun >= std::chrono::seconds(2));
  CHECK(Clock::now() - begun < std::chrono::seconds(15));
  REQUIRE(status.code() == Errc::kSystem);
  INFO(status.message());
  CHECK(status.message().find("accepting a connection failed: Too many open files") != std::string::npos);
  CHECK(status.message().find(": raise `ulimit -n`") != std::string::npos);
}

// Two peers come at once. Returns how many are welcome after some turns in which no time passes.
std::size_t welcomed(int more, std::size_t reserved) {
  const JobKey key = JobKey::generate();
  Lines lines;
  auto listener = listen_secure("unix:@", key, {.purpose = "control", .job_id = "job", .from = 0}, &lines.log);
  REQUIRE(listener.ok());
  std::vector<std::unique_ptr<Newcomer>> newcomers;
  for (const int rank : {1, 2}) {
    auto fd = connect_stream(*parse_address((*listener)->address()), soon());
    REQUIRE(fd.ok());
    newcomers.push_back(std::make_unique<Newcomer>(*std::move(fd), key, rank));
  }
  std::vector<Fd> places;
  for (std::size_t i = 0; i < reserved; ++i) places.emplace_back(::dup(0));
  const FewFiles few(more);
  (*listener)->reserve(std::move(places));
  std::vector<std::unique_ptr<SecureSocket>> peers;
  const TimePoint now = Clock::now();
  for (int turn = 0; turn < 20; ++turn) {
    (*listener)->progress(now, {}, [&](std::unique_ptr<SecureSocket> peer) { peers.push_back(std::move(peer)); });
    for (const auto& newcomer : newcomers) newcomer->progress();
  }
  for (const auto& newcomer : newcomers) CHECK_FALSE(newcomer->closed());
  return peers.size();
}

TEST_CASE("out of descriptors, no peer is turned away that is not silent", "[listener]") { CHECK(welcomed(1, 0) == 1); }

TEST_CASE("each reserved place lets a peer in", "[listener]") {
  CHECK(welcomed(0, 2) == 2);
  CHECK(welcomed(0, 1) == 1);
  CHECK(welcomed(2, 2) == 2);
}

}  // namespace
}  // namespace distrun::net
