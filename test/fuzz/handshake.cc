// runtime/net/secure/handshake.h: a stranger's bytes on either side, at any point of the handshake.
#include "runtime/net/secure/handshake.h"

#include <algorithm>
#include <optional>

#include "test/fuzz/targets.h"

namespace distrun::fuzz {
namespace {

using net::Handshake;
using Role = net::NoiseHandshake::Role;

const net::JobKey& job_key() {
  static const net::JobKey key = net::JobKey::generate();
  return key;
}

net::Hello hello(Role role) {
  return role == Role::kInitiator ? net::Hello{.purpose = "p", .job_id = "j", .from = 1, .to = 0, .version = "1"}
                                  : net::Hello{.purpose = "p", .job_id = "j", .from = 0, .version = "1"};
}

// Feeds the handshake as many bytes as it asks for. Stops when the bytes run out.
void feed(Handshake& handshake, std::span<const std::byte> bytes) {
  while (handshake.state() == Handshake::State::kRunning) {
    require(handshake.wanted() > 0 && handshake.wanted() <= net::kMaxHandshakeMessage, "what is wanted is bounded");
    if (bytes.size() < handshake.wanted()) return;
    const auto part = bytes.first(handshake.wanted());
    bytes = bytes.subspan(part.size());
    if (!handshake.feed(part).ok()) {
      require(handshake.state() == Handshake::State::kFailed, "an error ends the handshake");
    }
  }
}

}  // namespace

// The first byte chooses the side that listens, and the number of honest messages before the stranger's bytes.
int handshake(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  Handshake initiator(Role::kInitiator, job_key(), hello(Role::kInitiator));
  Handshake responder(Role::kResponder, job_key(), hello(Role::kResponder));
  const int honest = data[0] % 4;
  for (int message = 0; message < honest; ++message) {
    Handshake& sender = message % 2 == 0 ? initiator : responder;
    feed(message % 2 == 0 ? responder : initiator, sender.take_output());
  }
  const int turn = honest % 2;
  Handshake& victim = turn == 0 ? responder : initiator;
  if (victim.state() != Handshake::State::kRunning) return 0;
  feed(victim, as_span(data + 1, size - 1));
  const bool fooled = victim.state() == Handshake::State::kProved || victim.state() == Handshake::State::kDone;
  require(!fooled, "nobody without the key finishes a handshake");
  require(honest > 0 || !victim.key_proved(), "nobody without the key gets to a Hello");
  return 0;
}

std::vector<Bytes> handshake_seeds() {
  // Messages of a handshake with another key: everything is right except the proof.
  const net::JobKey other = net::JobKey::generate();
  Handshake initiator(Role::kInitiator, other, hello(Role::kInitiator));
  Handshake responder(Role::kResponder, other, hello(Role::kResponder));
  std::vector<Bytes> seeds;
  for (std::uint8_t message = 0; message < 4; ++message) {
    Handshake& sender = message % 2 == 0 ? initiator : responder;
    if (responder.state() == Handshake::State::kProved) responder.decide("");
    const Bytes sent = sender.take_output();
    if (message < 3) feed(message % 2 == 0 ? responder : initiator, sent);
    Bytes seed{std::byte{message}};
    seed.insert(seed.end(), sent.begin(), sent.end());
    seeds.push_back(seed);
  }
  return seeds;
}

}  // namespace distrun::fuzz
