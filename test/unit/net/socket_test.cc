#include "runtime/net/bytes/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "runtime/net/secure/secure_stream.h"

namespace distrun::net {
namespace {

TEST_CASE("addresses are read and written back", "[socket]") {
  for (const std::string text : {"127.0.0.1:80", "node-7.example:65535", "[::1]:0", "unix:@name", "unix:@", "h:1"}) {
    const auto address = parse_address(text);
    REQUIRE(address.ok());
    CHECK(to_string(*address) == text);
  }
}

TEST_CASE("what is no address is refused by name", "[socket]") {
  for (const std::string text :
       {"",        ":",         "host",     "host:",     ":80",       "host:65536", "host:-1",
        "host:+1", "host:1x",   "host: 1",  "::1:80",    "[::1]",     "[::1:80",    "::1]:80",
        "[]:80",   "[host]:80", "ho st:80", "host\n:80", "unix:name", "unix:",      "unix:@a b"}) {
    const auto address = parse_address(text);
    INFO(text);
    CHECK(address.status().code() == Errc::kInvalidArgument);
    CHECK(address.status().message().find("'" + text + "'") != std::string::npos);
  }
  CHECK_FALSE(parse_address("unix:@" + std::string(101, 'x')).ok());
  CHECK_FALSE(parse_address(std::string(256, 'h') + ":1").ok());
  CHECK(parse_address(std::string(100000, 'h')).status().message().size() < 400);
}

TEST_CASE("a random unix name is new each time", "[socket]") {
  Address a{.kind = Address::Kind::kUnix};
  Address b = a;
  const auto first = listen_stream(a);
  const auto second = listen_stream(b);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(a.host != b.host);
  CHECK_FALSE(listen_stream(a).ok());  // already in use
}

TEST_CASE("TCP notices a silent peer in about 5 s, and bulk data may wait for a slow reader", "[socket]") {
  Address address{.host = "127.0.0.1"};
  const auto listener = listen_stream(address);
  REQUIRE(listener.ok());
  const auto fd = connect_stream(address, deadline_after(30));
  REQUIRE(fd.ok());
  const auto option = [&](int level, int name) {
    int value = 0;
    socklen_t size = sizeof(value);
    ::getsockopt(fd->get(), level, name, &value, &size);
    return value;
  };
  CHECK(option(IPPROTO_TCP, TCP_NODELAY) == 1);
  CHECK(option(SOL_SOCKET, SO_KEEPALIVE) == 1);
  // The time from the last answer to the end of an idle connection.
  const auto ends_after = [&] {
    return option(IPPROTO_TCP, TCP_KEEPIDLE) + option(IPPROTO_TCP, TCP_KEEPINTVL) * option(IPPROTO_TCP, TCP_KEEPCNT);
  };
  CHECK(ends_after() == 5);
  CHECK(option(IPPROTO_TCP, TCP_USER_TIMEOUT) == 5000);
  for (int limit = 5; limit <= 3600; ++limit) {
    set_host_timeout(fd->get(), limit);
    REQUIRE(ends_after() == limit);
    REQUIRE(option(IPPROTO_TCP, TCP_KEEPCNT) >= (limit < 30 ? 4 : 14));  // so that a few lost probes do not end it
    REQUIRE(option(IPPROTO_TCP, TCP_KEEPIDLE) < 2 * option(IPPROTO_TCP, TCP_KEEPINTVL) + 1);
    REQUIRE(option(IPPROTO_TCP, TCP_USER_TIMEOUT) == limit * 1000);
  }
  set_host_timeout(fd->get(), 5.5);
  CHECK(ends_after() == 6);
  allow_slow_reader(fd->get());
  CHECK(option(IPPROTO_TCP, TCP_USER_TIMEOUT) == 0);
  set_host_timeout(fd->get(), 8);
  CHECK(ends_after() == 8);
  CHECK(option(IPPROTO_TCP, TCP_USER_TIMEOUT) == 0);
  CHECK(option(SOL_SOCKET, SO_KEEPALIVE) == 1);
}

TEST_CASE("a forked child does not keep a connection alive", "[socket]") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  const Fd far(ends[1]);
  auto stream = std::make_unique<SecureStream>(
      Fd(ends[0]), NoiseSession{.send = NoiseCipher(NoiseKey{}), .receive = NoiseCipher(NoiseKey{})}, Hello{},
      std::vector<std::byte>{});
  int hold[2];
  REQUIRE(::pipe(hold) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    ::close(hold[1]);
    [[maybe_unused]] const ssize_t n = ::read(hold[0], &byte, 1);  // lives until the parent closes its end
    ::_exit(0);
  }
  REQUIRE(child > 0);
  stream.reset();  // the parent closes its end; the child is alive and must not keep the connection open
  char byte = 0;
  CHECK(wait_ready(far.get(), POLLIN, deadline_after(30)).ok());
  CHECK(::recv(far.get(), &byte, 1, MSG_DONTWAIT) == 0);
  ::close(hold[1]);
  ::close(hold[0]);
  CHECK(::waitpid(child, nullptr, 0) == child);
}

TEST_CASE("the interface towards a host is found without sending anything", "[socket]") {
  CHECK(*local_host_towards({.host = "127.0.0.1", .port = 9}) == "127.0.0.1");
  CHECK_FALSE(local_host_towards({.host = "no-such-host.invalid", .port = 9}).ok());
}

TEST_CASE("a listener on all addresses takes both families and tells its port", "[socket]") {
  Address everywhere{.host = "*"};
  const auto listener = listen_stream(everywhere);
  REQUIRE(listener.ok());
  REQUIRE(everywhere.port != 0);
  CHECK(to_string(everywhere) == "*:" + std::to_string(everywhere.port));
  CHECK(connect_stream({.host = "127.0.0.1", .port = everywhere.port}, deadline_after(30)).ok());
  CHECK(connect_stream({.host = "127.0.0.2", .port = everywhere.port}, deadline_after(30)).ok());
  Address v6{.host = "::1"};
  if (listen_stream(v6).ok()) CHECK(connect_stream({.host = "::1", .port = everywhere.port}, deadline_after(30)).ok());
  CHECK_FALSE(listen_stream(everywhere).ok());  // already in use
}

TEST_CASE("a connection to an address of this machine has it at both ends", "[socket]") {
  Address everywhere{.host = "*"};
  const auto listener = listen_stream(everywhere);
  REQUIRE(listener.ok());
  const auto shared = [&](const char* host) {
    const auto near = connect_stream({.host = host, .port = everywhere.port}, deadline_after(30));
    REQUIRE(near.ok());
    REQUIRE(wait_ready(listener->get(), POLLIN, deadline_after(30)).ok());
    const auto far = accept_stream(listener->get());
    REQUIRE(far.ok());
    CHECK(ends_share_address(near->get()) == ends_share_address(far->get()));
    return ends_share_address(far->get());
  };
  CHECK(shared("127.0.0.1"));
  CHECK_FALSE(shared("127.0.0.2"));  // lo has it only through its network, and appears as 127.0.0.1 at the other end
  Address v6{.host = "::1"};
  if (listen_stream(v6).ok()) CHECK(shared("::1"));
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  CHECK_FALSE(ends_share_address(ends[0]));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("connecting in two steps does not wait", "[socket]") {
  Address address{.host = "127.0.0.1"};
  auto listener = listen_stream(address);
  REQUIRE(listener.ok());
  const auto good = begin_connect(address);
  REQUIRE(good.ok());
  int retries = 0;
  socklen_t size = sizeof(retries);
  REQUIRE(::getsockopt(good->get(), IPPROTO_TCP, TCP_SYNCNT, &retries, &size) == 0);
  CHECK(retries == 4);  // about half a minute
  REQUIRE(wait_ready(good->get(), POLLOUT, deadline_after(30)).ok());
  CHECK(finish_connect(good->get()).ok());
  listener->reset();
  const auto refused = begin_connect(address);
  REQUIRE(refused.ok());
  REQUIRE(wait_ready(refused->get(), POLLOUT, deadline_after(30)).ok());
  CHECK(finish_connect(refused->get()).message().find("refused") != std::string::npos);
  CHECK_FALSE(begin_connect({.host = "localhost", .port = 9}).ok());  // a host name would need a look-up
}

TEST_CASE("a wait ends at its deadline, also at one that has passed", "[socket]") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const Fd reader(ends[0]);
  const Fd writer(ends[1]);
  CHECK(wait_ready(reader.get(), POLLIN, Clock::now()).code() == Errc::kTimeout);
  CHECK(wait_ready(reader.get(), POLLIN, deadline_after(0.02)).code() == Errc::kTimeout);
  CHECK(wait_ready(writer.get(), POLLOUT, Clock::now()).ok());
  CHECK(poll_timeout_ms(Clock::now() - std::chrono::hours(1)) == 0);
  CHECK(poll_timeout_ms(TimePoint::max()) > 1000000);
}

}  // namespace
TEST_CASE("a chosen port can be listened on again while its old connections are not forgotten", "[socket]") {
  for (const char* text : {"127.0.0.1:0", "*:0"}) {
    Address address = *parse_address(text);
    {
      const auto probe = listen_stream(address);  // finds a free port
      REQUIRE(probe.ok());
    }
    for (int round = 0; round < 2; ++round) {
      const auto listener = listen_stream(address);
      REQUIRE(listener.ok());
      const auto client = connect_stream({.host = "127.0.0.1", .port = address.port}, deadline_after(5));
      REQUIRE(client.ok());
      REQUIRE(wait_ready(listener->get(), POLLIN, deadline_after(5)).ok());
      const auto accepted = accept_stream(listener->get());
      REQUIRE(accepted.ok());
      // The port of the side that ends first stays in use for a minute.
      ::shutdown(accepted->get(), SHUT_RDWR);
    }
    const auto taken = listen_stream(address);
    REQUIRE(taken.ok());
    const auto twice = listen_stream(address);
    CHECK(twice.status().message().find(std::to_string(address.port)) != std::string::npos);
  }
}

}  // namespace distrun::net
