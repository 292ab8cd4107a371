// Connections between a listener and honest peers.
#include "runtime/net/secure/secure_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/net/bytes/socket.h"
#include "runtime/net/bytes/wire.h"
#include "runtime/net/secure/secure_connector.h"

namespace distrun::net {
namespace {

using Bytes = std::vector<std::byte>;
using Socket = std::unique_ptr<SecureSocket>;

TimePoint soon() { return deadline_after(30); }

Hello listener_hello(int rank = 0) { return {.purpose = "control", .job_id = "job", .from = rank, .version = "1.2.3"}; }
Hello client_hello(int from, int to = 0) {
  return {.purpose = "control", .job_id = "job", .from = from, .to = to, .version = "1.2.3"};
}

struct Connection {
  Socket server;
  Socket client;
};

// Both ends of one authenticated connection. `address` is the argument of listen_secure.
Connection connect_pair(const std::string& address) {
  const JobKey key = JobKey::generate();
  auto listener = listen_secure(address, key, listener_hello());
  REQUIRE(listener.ok());
  auto client = std::async(std::launch::async,
                           [&] { return connect_secure((*listener)->address(), key, client_hello(3), soon()); });
  auto server = (*listener)->accept_blocking({}, soon());
  auto connected = client.get();
  REQUIRE(server.ok());
  REQUIRE(connected.ok());
  return {.server = *std::move(server), .client = *std::move(connected)};
}

Bytes pattern(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + (i >> 8));
  return bytes;
}

TEST_CASE("both ends know who the other is", "[secure_socket]") {
  for (const char* address : {"127.0.0.1:0", "unix:@"}) {
    const Connection pair = connect_pair(address);
    CHECK(pair.server->peer().from == 3);
    CHECK(pair.server->peer().purpose == "control");
    CHECK(pair.server->peer().pid == ::getpid());
    CHECK(pair.client->peer().from == 0);
    CHECK(pair.client->peer().to == 3);
    CHECK(pair.client->peer().pid == ::getpid());
  }
}

TEST_CASE("a connector and a listener get through with each other on one thread", "[secure_socket]") {
  const JobKey key = JobKey::generate();
  auto listener = listen_secure("127.0.0.1:0", key, listener_hello());
  REQUIRE(listener.ok());
  const auto connector_to = [&](const Hello& hello) {
    auto fd = begin_connect(*parse_address((*listener)->address()));
    REQUIRE(fd.ok());
    return SecureConnector(*std::move(fd), false, key, hello);
  };
  // Runs until both ends are connected, or the connector has failed.
  const auto shake_hands = [&](SecureConnector& connector, const SecureListener::AcceptFunction& accept) {
    Connection pair;
    Result<Socket> client{Socket()};
    const TimePoint deadline = soon();
    while (client.ok() && (pair.server == nullptr || pair.client == nullptr) && Clock::now() < deadline) {
      (*listener)->progress(Clock::now(), accept, [&](Socket socket) { pair.server = std::move(socket); });
      if (pair.client != nullptr) continue;
      client = connector.progress();
      if (client.ok()) pair.client = *std::move(client);
    }
    if (!client.ok()) return client.status();
    CHECK(pair.server->peer().from == 3);
    CHECK(pair.client->peer().from == 0);
    return Status();
  };
  SecureConnector welcome = connector_to(client_hello(3));
  CHECK(shake_hands(welcome, {}).ok());
  SecureConnector refused = connector_to(client_hello(3));
  const Status status = shake_hands(refused, [](const Hello&) { return std::string("not you"); });
  REQUIRE_FALSE(status.ok());
  CHECK(status.message().find("not you") != std::string::npos);
  CHECK_FALSE(refused.dropped());
  SecureConnector dropped = connector_to(client_hello(3));
  Result<Socket> end = dropped.progress();
  while (!dropped.connected()) end = dropped.progress();
  listener->reset();
  while (end.ok() && *end == nullptr) end = dropped.progress();
  CHECK_FALSE(end.ok());
  CHECK(dropped.dropped());
}

TEST_CASE("an IPv6 listener's address can be connected to", "[secure_socket]") {
  const JobKey key = JobKey::generate();
  auto listener = listen_secure("[::1]:0", key, listener_hello());
  if (!listener.ok()) SKIP("no IPv6 here: " + listener.status().message());
  CHECK((*listener)->address().starts_with("[::1]:"));
}

TEST_CASE("who connects before the listener has its key is served when it has", "[secure_socket]") {
  const JobKey key = JobKey::generate();
  Address address{.host = "*"};
  auto listening = listen_stream(address);
  REQUIRE(listening.ok());
  const std::string target = "127.0.0.1:" + std::to_string(address.port);
  auto client = std::async(std::launch::async, [&] { return connect_secure(target, key, client_hello(3), soon()); });
  REQUIRE(wait_ready(listening->get(), POLLIN, soon()).ok());
  auto listener = listen_secure_on(*std::move(listening), to_string(address), key, listener_hello());
  REQUIRE(listener.ok());
  CHECK((*listener)->address() == to_string(address));
  CHECK((*listener)->accept_blocking({}, soon()).ok());
  CHECK(client.get().ok());
}

TEST_CASE("descriptors are non-blocking and closed on exec", "[secure_socket]") {
  const Connection pair = connect_pair("127.0.0.1:0");
  for (const int fd : {pair.server->fd(), pair.client->fd()}) {
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
  }
}

TEST_CASE("frames of many sizes arrive whole and in order, both ways at once", "[secure_socket]") {
  for (const char* address : {"127.0.0.1:0", "unix:@"}) {
    Connection pair = connect_pair(address);
    const std::vector<std::size_t> sizes{0, 1, 2, 100, 4096, 65517, 65518, 65519, 131036, 300000, kMaxFrame, 7};
    const auto talk = [&sizes](SecureSocket& socket, bool first) {
      for (const std::size_t size : sizes) {
        if (first && !socket.send_frame_blocking(pattern(size), soon()).ok()) return false;
        const auto frame = socket.receive_frame_blocking(soon());
        if (!frame.ok() || *frame != pattern(size)) return false;
        if (!first && !socket.send_frame_blocking(pattern(size), soon()).ok()) return false;
      }
      return true;
    };
    auto server = std::async(std::launch::async, [&] { return talk(*pair.server, true); });
    CHECK(talk(*pair.client, false));
    CHECK(server.get());
  }
}

TEST_CASE("many small frames queued at once come out one by one", "[secure_socket]") {
  Connection pair = connect_pair("unix:@");
  for (int i = 0; i < 1000; ++i) REQUIRE(pair.client->send_frame(WireWriter().i32(i).view()).ok());
  CHECK(pair.client->wants_write());
  auto sender = std::async(std::launch::async, [&] { return pair.client->send_frame_blocking({}, soon()); });
  for (int i = 0; i < 1000; ++i) {
    const auto frame = pair.server->receive_frame_blocking(soon());
    REQUIRE(frame.ok());
    REQUIRE(*frame == Bytes(WireWriter().i32(i).take()));
  }
  CHECK(sender.get().ok());
}

TEST_CASE("a frame above the limit is refused and nothing breaks", "[secure_socket]") {
  Connection pair = connect_pair("unix:@");
  CHECK(pair.client->send_frame(Bytes(kMaxFrame + 1)).code() == Errc::kInvalidArgument);
  REQUIRE(pair.client->send_frame_blocking(pattern(5), soon()).ok());
  CHECK(*pair.server->receive_frame_blocking(soon()) == pattern(5));
}

TEST_CASE("nothing to read is no error and does not block", "[secure_socket]") {
  Connection pair = connect_pair("unix:@");
  Bytes frame;
  const auto received = pair.server->receive_frame(frame);
  REQUIRE(received.ok());
  CHECK_FALSE(*received);
}

TEST_CASE("what a peer said before it went is still read; then the error names it and stays", "[secure_socket]") {
  Connection pair = connect_pair("127.0.0.1:0");
  REQUIRE(pair.client->send_frame_blocking(pattern(9), soon()).ok());
  pair.client.reset();
  CHECK(*pair.server->receive_frame_blocking(soon()) == pattern(9));
  for (int i = 0; i < 2; ++i) {
    const Status lost = pair.server->receive_frame_blocking(soon()).status();
    CHECK(lost.code() == Errc::kRankLost);
    CHECK(lost.info().ranks == std::vector<int>{3});
    CHECK(lost.message().find("rank 3 at 127.0.0.1:") != std::string::npos);
  }
}

TEST_CASE("writing to a peer that has gone is an error, not a signal, and does not hide its last words",
          "[secure_socket]") {
  Connection pair = connect_pair("unix:@");
  REQUIRE(pair.client->send_frame_blocking(pattern(9), soon()).ok());
  pair.client.reset();
  REQUIRE(pair.server->send_frame(pattern(1)).ok());
  CHECK(pair.server->flush().code() == Errc::kRankLost);
  CHECK(pair.server->send_frame(pattern(1)).code() == Errc::kRankLost);
  CHECK_FALSE(pair.server->wants_write());
  CHECK(*pair.server->receive_frame_blocking(soon()) == pattern(9));
}

// For instance, a library that closes a descriptor twice may later write into one of distrun's sockets.
TEST_CASE("foreign bytes in a stream are found, or begin a record that is never made whole", "[secure_socket]") {
  const auto received = [](const Connection& pair) {
    REQUIRE(wait_ready(pair.server->fd(), POLLIN, soon()).ok());
    Bytes frame;
    return pair.server->receive_frame(frame);
  };
  const auto write = [](const Connection& pair, const std::string& bytes) {
    REQUIRE(::send(pair.client->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  };
  for (const char* address : {"127.0.0.1:0", "unix:@"}) {
    const Connection wrong_tag = connect_pair(address);
    write(wrong_tag, std::string{64, '\0'} + std::string(64, 'x'));
    const auto tampered = received(wrong_tag);
    REQUIRE_FALSE(tampered.ok());
    CHECK(tampered.status().info().link == LinkEnd::kTampered);
    CHECK(tampered.status().info().ranks == std::vector{3});
    CHECK_FALSE(tampered.status().info().usable);

    const Connection too_short = connect_pair(address);
    write(too_short, std::string(777, '\0'));
    CHECK(received(too_short).status().info().link == LinkEnd::kMalformed);

    const Connection long_one = connect_pair(address);
    CHECK(long_one.server->begun() == 0);
    write(long_one, std::string(777, 'x'));
    const auto unfinished = received(long_one);
    REQUIRE(unfinished.ok());
    CHECK_FALSE(*unfinished);
    CHECK(long_one.server->begun() == 1);
    const Status ended = long_one.server->give_up(LinkEnd::kUnfinished, "not whole");
    CHECK(ended.info().link == LinkEnd::kUnfinished);
    CHECK(ended.info().ranks == std::vector{3});
    Bytes frame;
    CHECK(long_one.server->receive_frame(frame).status().info().cause == "not whole");
    CHECK_FALSE(long_one.server->send_frame({}).ok());
  }
}

TEST_CASE("records are counted", "[secure_socket]") {
  const Connection pair = connect_pair("unix:@");
  REQUIRE(pair.client->send_frame_blocking(pattern(200000), soon()).ok());
  REQUIRE(pair.server->receive_frame_blocking(soon()).ok());
  CHECK(pair.server->begun() == 0);
  REQUIRE(::send(pair.client->fd(), "x", 1, MSG_NOSIGNAL) == 1);
  REQUIRE(wait_ready(pair.server->fd(), POLLIN, soon()).ok());
  Bytes frame;
  REQUIRE(pair.server->receive_frame(frame).ok());
  CHECK(pair.server->begun() == 5);  // 200,000 bytes take four records
}

TEST_CASE("every wait has a deadline", "[secure_socket]") {
  Connection pair = connect_pair("unix:@");
  const TimePoint past = Clock::now();
  CHECK(pair.server->receive_frame_blocking(past).status().code() == Errc::kTimeout);
  // This is more than the socket buffers hold, and the other end does not read.
  Status status;
  for (int i = 0; i < 16 && status.ok(); ++i) status = pair.server->send_frame_blocking(Bytes(1 << 20), past);
  CHECK(status.code() == Errc::kTimeout);
  auto listener = listen_secure("unix:@", JobKey::generate(), listener_hello());
  CHECK((*listener)->accept_blocking({}, past).status().code() == Errc::kTimeout);
}

TEST_CASE("after release_plain bulk bytes travel in the clear", "[secure_socket]") {
  Connection pair = connect_pair("127.0.0.1:0");
  auto server = pair.server->release_plain();
  auto client = pair.client->release_plain();
  REQUIRE(server.ok());
  REQUIRE(client.ok());
  REQUIRE(::send(server->get(), "bulk", 4, MSG_NOSIGNAL) == 4);
  REQUIRE(wait_ready(client->get(), POLLIN, soon()).ok());
  char text[5] = {};
  REQUIRE(::recv(client->get(), text, 4, 0) == 4);
  CHECK(std::string(text) == "bulk");
  CHECK_FALSE(pair.server->send_frame({}).ok());
  CHECK_FALSE(pair.server->release_plain().ok());
}

TEST_CASE("release_plain is refused while bytes of a frame are held", "[secure_socket]") {
  Connection pair = connect_pair("unix:@");
  REQUIRE(pair.client->send_frame(pattern(10)).ok());
  CHECK(pair.client->release_plain().status().code() == Errc::kProtocol);
  REQUIRE(pair.client->flush().ok());
  CHECK(pair.client->release_plain().ok());
}

TEST_CASE("connecting to nobody is an error that names the address", "[secure_socket]") {
  const JobKey key = JobKey::generate();
  const auto tcp = connect_secure("127.0.0.1:1", key, client_hello(1), soon());
  CHECK(tcp.status().message().starts_with("connecting to 127.0.0.1:1 (control): "));
  CHECK_FALSE(connect_secure("unix:@distrun-nobody-is-here", key, client_hello(1), soon()).ok());
  CHECK_FALSE(connect_secure("no-such-host.invalid:1", key, client_hello(1), soon()).ok());
  CHECK(connect_secure("nonsense", key, client_hello(1), soon()).status().code() == Errc::kInvalidArgument);
}

}  // namespace
}  // namespace distrun::net
