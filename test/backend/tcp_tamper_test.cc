// A protected ring whose bytes an attacker changes on the way. The job ends, and the error names the rank that sent
// them.
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/tcp/tcp_backend.h"
#include "test/backend/group_fixtures.h"

namespace distrun::test {
namespace {

using backend::Completed;
using Bytes = std::vector<std::byte>;

#if defined(TEST_ENCRYPT)
constexpr bool kEncrypts = true;
#else
constexpr bool kEncrypts = false;
#endif

net::ExportedKeys keys_of(unsigned char send, unsigned char receive) {
  net::ExportedKeys keys;
  keys.send.fill(send);
  keys.receive.fill(receive);
  return keys;
}

// Two members of a ring. The test forwards the bytes that member 0 sends to its right, and `meddle` changes the first
// few kilobytes.
class Meddled {
 public:
  explicit Meddled(net::RecordSuite suite) {
    auto [out, from_sender] = pair();
    auto [to_receiver, in] = pair();
    auto [back_out, back_in] = pair();
    from_sender_ = std::move(from_sender);
    to_receiver_ = std::move(to_receiver);
    auto records = [&](unsigned char send, unsigned char receive) {
      return std::make_unique<net::RecordLayer>(suite, keys_of(send, receive));
    };
    make(0, {.size = 2,
             .index = 0,
             .left_rank = 11,
             .right_rank = 11,
             .left = GuardedFd(std::move(back_in)),
             .right = GuardedFd(std::move(out)),
             .left_records = records(3, 4),
             .right_records = records(1, 2)});
    make(1, {.size = 2,
             .index = 1,
             .left_rank = 10,
             .right_rank = 10,
             .left = GuardedFd(std::move(in)),
             .right = GuardedFd(std::move(back_out)),
             .left_records = records(2, 1),
             .right_records = records(4, 3)});
    for (Member& one : members_) {
      one.data.assign(20000, 1.0F);
      auto* bytes = reinterpret_cast<std::byte*>(one.data.data());
      one.segment = {.in = bytes, .out = bytes, .count = one.data.size()};
      REQUIRE(one.backend->start({.segments = {&one.segment, 1}}, 1).ok());
    }
  }

  // Runs until both members have completed, or one has an error. It forwards the first bytes as `meddle` changed them,
  // and all later bytes unchanged.
  void run(const std::function<void(Bytes&)>& meddle) {
    Bytes first;
    bool meddled = false;
    for (int idle = 0; idle < 1000;) {
      bool moved = false;
      for (Member& one : members_) {
        moved = *one.wait_set->poll(Clock::now()) > 0 || moved;
        moved = one.backend->progress() || moved;
        one.backend->completed(one.completed);
      }
      Bytes some(65536);
      const ssize_t got = ::recv(from_sender_.get(), some.data(), some.size(), MSG_DONTWAIT);
      some.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
      if (!meddled) {
        first.insert(first.end(), some.begin(), some.end());
        some.clear();
        if (first.size() >= 20000) {
          meddle(first);
          some = first;
          meddled = true;
        }
      }
      if (!some.empty()) {
        REQUIRE(::send(to_receiver_.get(), some.data(), some.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(some.size()));
      }
      idle = moved || got > 0 ? 0 : idle + 1;
      if (!members_[1].completed.empty() && !members_[1].completed.front().status.ok()) return;
    }
  }

  [[nodiscard]] const std::vector<Completed>& completed(std::size_t member) const { return members_[member].completed; }
  [[nodiscard]] bool right() const {
    return std::ranges::all_of(members_[1].data, [](float value) { return value == 2.0F; });
  }

 private:
  struct Member {
    std::unique_ptr<net::WaitSet> wait_set = *net::WaitSet::create();
    std::unique_ptr<backend::Backend> backend;
    std::vector<float> data;
    backend::Segment segment;
    std::vector<Completed> completed;
  };

  static std::array<Fd, 2> pair() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    const int bytes = 4 << 20;
    for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    return {Fd(ends[0]), Fd(ends[1])};
  }

  void make(std::size_t number, backend::tcp::Ring ring) {
    Member& member = members_[number];
    auto made = backend::tcp::TcpBackend::create({.ring = std::move(ring),
                                                  .group = {.members = {10, 11}, .index = static_cast<int>(number)},
                                                  .services = {.wait_set = member.wait_set.get()},
                                                  .tuning = {.chunk_bytes = 4096, .window = 3}});
    REQUIRE(made.ok());
    member.backend = *std::move(made);
  }

  Fd from_sender_, to_receiver_;
  std::array<Member, 2> members_;
};

constexpr std::size_t kMessage = 32 + 16 + 4096 + 16;  // bytes: head and tag, chunk and tag

void check_named(net::RecordSuite suite, const char* what, const std::function<void(Bytes&)>& meddle) {
  CAPTURE(to_string(suite), what);
  Meddled ring(suite);
  ring.run(meddle);
  REQUIRE(ring.completed(1).size() == 1);
  const Status& status = ring.completed(1).front().status;
  REQUIRE_FALSE(status.ok());
  CHECK(status.info().link == LinkEnd::kTampered);
  CHECK(status.info().ranks == std::vector<int>{10});
  CHECK_FALSE(status.info().usable);
}

}  // namespace

TEST_CASE("tcp tamper: whatever is done to records on the way names the rank that sent them") {
  std::vector<net::RecordSuite> suites = {{.encrypts = kEncrypts, .aes = false}};
  if (net::aes_available()) suites.push_back({.encrypts = kEncrypts, .aes = true});
  for (const net::RecordSuite& suite : suites) {
    {
      Meddled ring(suite);
      ring.run([](Bytes&) {});
      REQUIRE(ring.completed(1).size() == 1);
      CHECK(ring.completed(1).front().status.ok());
      CHECK(ring.right());
    }
    for (const std::size_t at : {std::size_t{0}, std::size_t{20}, std::size_t{40}, std::size_t{100}, kMessage - 1,
                                 kMessage + 5, 2 * kMessage + 1000}) {
      check_named(suite, "one bit", [at](Bytes& bytes) { bytes[at] ^= std::byte{1}; });
      check_named(suite, "one byte less",
                  [at](Bytes& bytes) { bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at)); });
    }
    const auto message = [](Bytes& bytes, std::size_t i) {
      return bytes.begin() + static_cast<std::ptrdiff_t>(i * kMessage);
    };
    check_named(suite, "a message twice", [&](Bytes& bytes) {
      const Bytes first(message(bytes, 0), message(bytes, 1));
      bytes.insert(message(bytes, 1), first.begin(), first.end());
    });
    check_named(suite, "a message left out", [&](Bytes& bytes) { bytes.erase(message(bytes, 1), message(bytes, 2)); });
    check_named(suite, "two messages exchanged",
                [&](Bytes& bytes) { std::swap_ranges(message(bytes, 1), message(bytes, 2), message(bytes, 2)); });
  }
}

}  // namespace distrun::test
