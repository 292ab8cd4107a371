// The handshake as a state machine: honest sides, and all ways to break it.
#include "runtime/net/secure/handshake.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <random>
#include <string>
#include <vector>

namespace distrun::net {
namespace {

using Bytes = std::vector<std::byte>;
using Role = NoiseHandshake::Role;
using State = Handshake::State;

const JobKey& job_key() {
  static const JobKey key = JobKey::generate();
  return key;
}

Hello initiator_hello() { return {.purpose = "control", .job_id = "job", .from = 3, .to = 0, .version = "1.0"}; }
Hello responder_hello() { return {.purpose = "control", .job_id = "job", .from = 0, .version = "1.0"}; }

// Feeds `bytes` in the sizes that the handshake asks for. Bytes that it does not take stay in `bytes`.
Status feed(Handshake& handshake, Bytes& bytes) {
  while (handshake.state() == State::kRunning && bytes.size() >= handshake.wanted()) {
    const auto size = static_cast<std::ptrdiff_t>(handshake.wanted());
    const Bytes part(bytes.begin(), bytes.begin() + size);
    bytes.erase(bytes.begin(), bytes.begin() + size);
    DISTRUN_RETURN_IF_ERROR(handshake.feed(part));
  }
  return {};
}

struct Pair {
  explicit Pair(const Hello& a = initiator_hello(), const Hello& b = responder_hello(),
                const JobKey& other_key = job_key())
      : initiator(Role::kInitiator, job_key(), a), responder(Role::kResponder, other_key, b) {}

  // Carries all messages until none is left. `message` counts pieces of output, and `spoil` may change one.
  template <class Spoil>
  void run(Spoil spoil, const std::string& refusal = {}) {
    for (int message = 0; message < 4; ++message) {
      const bool from_initiator = message % 2 == 0;
      Handshake& sender = from_initiator ? initiator : responder;
      Handshake& receiver = from_initiator ? responder : initiator;
      Status& status = from_initiator ? responder_status : initiator_status;
      Bytes bytes = sender.take_output();
      sent[message] = bytes;
      spoil(message, bytes);
      if (receiver.state() == State::kRunning) status = feed(receiver, bytes);
      if (responder.state() == State::kProved) responder.decide(refusal);
    }
  }
  void run() {
    run([](int, Bytes&) {});
  }

  Handshake initiator;
  Handshake responder;
  Status initiator_status;
  Status responder_status;
  Bytes sent[4];
};

TEST_CASE("two sides of one job find each other", "[handshake]") {
  Pair pair;
  pair.run();
  REQUIRE(pair.initiator.state() == State::kDone);
  REQUIRE(pair.responder.state() == State::kDone);
  CHECK(pair.responder.peer().from == 3);
  CHECK(pair.responder.peer().pid == ::getpid());
  CHECK(pair.initiator.peer().from == 0);
  NoiseSession a = pair.initiator.take_session();
  NoiseSession b = pair.responder.take_session();
  Bytes sealed;
  Bytes plain;
  a.send.encrypt({}, as_bytes("hello"), sealed);
  CHECK(b.receive.decrypt({}, sealed, plain));
  CHECK(plain == Bytes(as_bytes("hello").begin(), as_bytes("hello").end()));
}

TEST_CASE("a listener without a purpose lets its owner choose", "[handshake]") {
  Hello any = responder_hello();
  any.purpose.clear();
  Pair pair(initiator_hello(), any);
  pair.run();
  CHECK(pair.initiator.state() == State::kDone);
  CHECK(pair.responder.peer().purpose == "control");
}

TEST_CASE("a refusal's text reaches the initiator", "[handshake]") {
  Pair pair;
  pair.run([](int, Bytes&) {}, "rank 3 is held by process 12");
  CHECK(pair.responder.state() == State::kFailed);
  CHECK(pair.initiator_status.message() == "rank 3 is held by process 12");
  Pair longest;
  longest.run([](int, Bytes&) {}, std::string(100000, 'x'));
  CHECK(longest.initiator_status.message() == std::string(1024, 'x'));
}

TEST_CASE("another key or another job never get to a Hello", "[handshake]") {
  const JobKey other_key = JobKey::generate();
  Hello other_job = responder_hello();
  other_job.job_id = "another";
  Pair keys(initiator_hello(), responder_hello(), other_key);
  Pair jobs(initiator_hello(), other_job);
  for (Pair* pair : {&keys, &jobs}) {
    pair->run();
    CHECK(pair->responder_status.code() == Errc::kProtocol);
    CHECK(pair->responder_status.message().find("does not have the key of this job") != std::string::npos);
    CHECK(pair->initiator_status.message().find("key or job id") != std::string::npos);
    CHECK_FALSE(pair->responder.key_proved());
    CHECK(pair->responder.peer().purpose.empty());
  }
}

TEST_CASE("different versions of distrun are an error on both sides that names both", "[handshake]") {
  Hello old = responder_hello();
  old.version = "0.9";
  Pair pair(initiator_hello(), old);
  pair.run();
  CHECK(pair.initiator_status.code() == Errc::kProtocol);
  CHECK(pair.initiator_status.message() ==
        "rank 3 runs distrun 1.0 and rank 0 runs distrun 0.9. "
        "Install the same version on all hosts");
  // The initiator hangs up instead of confirming, so the responder must not have accepted it as a peer.
  CHECK(pair.responder.state() == State::kRunning);
  CHECK(pair.responder.difference() ==
        "rank 0 runs distrun 0.9 and rank 3 runs distrun 1.0. "
        "Install the same version on all hosts");
}

TEST_CASE("two sides without ranks are told apart in the text about their versions", "[handshake]") {
  Hello agent{.purpose = "agent:n1", .job_id = "dial-in", .version = "1.0"};
  Hello head{.purpose = "", .job_id = "dial-in", .version = "0.9"};
  Pair pair(agent, head);
  pair.run();
  CHECK(pair.initiator_status.message().starts_with("this side runs distrun 1.0 and the other side runs distrun 0.9"));
  CHECK(pair.responder.difference().starts_with("this side runs distrun 0.9 and the other side runs distrun 1.0"));
}

TEST_CASE("a different protocol version is an error on both sides that names both", "[handshake]") {
  Pair pair;
  pair.run([](int message, Bytes& bytes) {
    if (message == 0) bytes[4] = std::byte{99};  // the initiator has a newer version
  });
  CHECK(pair.responder_status.message().find("version 99") != std::string::npos);
  CHECK(pair.responder_status.message().find("version 1") != std::string::npos);
  // The initiator's error. Its message was changed to version 99 and the answer says 1. The initiator itself has
  // version 1, so it sees a plain refusal. The next case has a responder with a newer version.
  CHECK_FALSE(pair.initiator_status.ok());
  Pair reverse;
  reverse.run([](int message, Bytes& bytes) {
    if (message == 1) bytes[4] = std::byte{99};
  });
  CHECK(reverse.initiator_status.message().find("version 99") != std::string::npos);
  CHECK(reverse.initiator_status.message().ends_with("this process version 1"));
}

TEST_CASE("ranks and purposes that do not match are named", "[handshake]") {
  Hello responder = responder_hello();
  Hello initiator = initiator_hello();
  std::string text;
  SECTION("the initiator wants another rank") {
    initiator.to = 5;
    text = "the other side is rank 0, not rank 5";
  }
  SECTION("a rank where the launcher was wanted") {
    initiator.to = -1;
    text = "the other side is rank 0, not the launcher";
  }
  SECTION("another purpose") {
    initiator.purpose = "host";
    text = "the connection is for 'control', and 'host' was expected";
  }
  Pair pair(initiator, responder);
  pair.run();
  CHECK(pair.initiator_status.message() == text);
  CHECK(pair.responder.state() != State::kDone);
}

TEST_CASE("a responder checks by itself what an initiator lets pass", "[handshake]") {
  // An initiator that has the key and lies: the real state machine, aimed at rank 5. It gets the answer of a responder
  // that claims to be rank 5.
  Hello lie = responder_hello();
  lie.from = 5;
  Handshake liar(Role::kResponder, job_key(), lie);
  Hello aim = initiator_hello();
  aim.to = 5;
  Handshake initiator(Role::kInitiator, job_key(), aim);
  Handshake honest(Role::kResponder, job_key(), responder_hello());
  Bytes first = initiator.take_output();
  Bytes copy = first;
  REQUIRE(feed(honest, first).ok());
  REQUIRE(feed(liar, copy).ok());
  Bytes answer = liar.take_output();
  REQUIRE(feed(initiator, answer).ok());
  Bytes confirmation = initiator.take_output();
  CHECK_FALSE(feed(honest, confirmation).ok());
  CHECK(honest.state() == State::kFailed);
}

TEST_CASE("every changed bit in any message is noticed by the one who reads it", "[handshake]") {
  Pair sample;
  sample.run();
  for (int message = 0; message < 4; ++message) {
    const std::size_t bits = 8 * sample.sent[message].size();
    for (std::size_t bit = 0; bit < bits; ++bit) {
      Pair pair;
      pair.run([&](int m, Bytes& bytes) {
        if (m == message) bytes.at(bit / 8) ^= static_cast<std::byte>(1U << (bit % 8));
      });
      const Handshake& reader = message % 2 == 0 ? pair.responder : pair.initiator;
      REQUIRE(reader.state() != State::kDone);
    }
  }
}

TEST_CASE("a handshake cut at any byte waits for the rest and never finishes", "[handshake]") {
  Pair sample;
  sample.run();
  for (int message = 0; message < 4; ++message) {
    for (std::size_t size = 0; size < sample.sent[message].size(); ++size) {
      Pair pair;
      pair.run([&](int m, Bytes& bytes) {
        if (m == message) bytes.resize(std::min(size, bytes.size()));
      });
      const Handshake& reader = message % 2 == 0 ? pair.responder : pair.initiator;
      REQUIRE(reader.state() == State::kRunning);
      REQUIRE(reader.wanted() <= kMaxHandshakeMessage);
    }
  }
}

TEST_CASE("recorded bytes do not work a second time", "[handshake]") {
  Pair recorded;
  recorded.run();
  Pair fresh;
  fresh.run([&](int message, Bytes& bytes) {
    if (message % 2 == 0) bytes = recorded.sent[message];
  });
  CHECK(fresh.responder.state() == State::kFailed);
  CHECK(fresh.responder_status.message().find("repeated") != std::string::npos);
  Pair other;
  other.run([&](int message, Bytes& bytes) {
    if (message % 2 == 1) bytes = recorded.sent[message];
  });
  CHECK(other.initiator.state() == State::kFailed);
}

TEST_CASE("one's own messages, reflected, are refused", "[handshake]") {
  Handshake initiator(Role::kInitiator, job_key(), initiator_hello());
  Bytes own = initiator.take_output();
  CHECK(feed(initiator, own).code() == Errc::kProtocol);
  Hello both_ways = initiator_hello();
  both_ways.to = both_ways.from;  // even if the ranks matched
  Handshake narcissus(Role::kInitiator, job_key(), both_ways);
  own = narcissus.take_output();
  CHECK(feed(narcissus, own).code() == Errc::kProtocol);
}

TEST_CASE("lengths are bounded before anything is awaited", "[handshake]") {
  for (const int length : {0, 1, 47, 513, 65535}) {
    Handshake responder(Role::kResponder, job_key(), responder_hello());
    CHECK(responder.wanted() == 10);
    const Bytes bytes =
        WireWriter().raw(as_bytes("drun")).u32(kProtocolVersion).u16(static_cast<std::uint16_t>(length)).take();
    CHECK(responder.feed(bytes).code() == Errc::kProtocol);
    CHECK(responder.wanted() == 0);
  }
}

TEST_CASE("random bytes are refused at the preamble without an answer", "[handshake]") {
  std::mt19937 random(11);
  for (int round = 0; round < 1000; ++round) {
    Handshake responder(Role::kResponder, job_key(), responder_hello());
    Bytes bytes(400);
    for (auto& b : bytes) b = static_cast<std::byte>(random());
    REQUIRE_FALSE(feed(responder, bytes).ok());
    REQUIRE(responder.take_output().empty());
  }
}

TEST_CASE("a good preamble and then random bytes are refused", "[handshake]") {
  std::mt19937 random(12);
  for (int round = 0; round < 300; ++round) {
    Handshake responder(Role::kResponder, job_key(), responder_hello());
    Bytes bytes = WireWriter().raw(as_bytes("drun")).u32(kProtocolVersion).u16(100).take();
    while (bytes.size() < 400) bytes.push_back(static_cast<std::byte>(random()));
    REQUIRE(feed(responder, bytes).code() == Errc::kProtocol);
    REQUIRE_FALSE(responder.key_proved());
  }
}

}  // namespace
}  // namespace distrun::net
