// What two hosts say to each other to find out whether an address leads from one to the other: one question, one
// answer, nothing afterwards. As such a connection carries nothing, it needs no session; each end proves with a MAC
// that it holds the job's key (docs/wire.md has the bytes). A question can be replayed, and earns the same answer
// again; an answer cannot, because it covers the question's 16 random bytes. 16 hosts ask 256 times when a job starts:
// a Noise handshake for each took 60 ms of two cores. Pure; no I/O.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "runtime/net/identity/mac_key.h"
#include "runtime/net/identity/world.h"

namespace distrun::net {

class ProbeWords {
 public:
  using Question = std::array<std::byte, 64>;
  using Answer = std::array<std::byte, 36>;
  enum class Heard {
    kAnswer,
    kRefusal,   // whoever listens there does not accept the question's proof
    kNonsense,  // bytes of somebody without the key
  };

  ProbeWords(const JobKey& key, const std::string& job_id);

  // Numbers of hosts.
  [[nodiscard]] Question question(int from, int to) const;
  // The answer of host `self` to a question, whomever it is meant for; or the refusal, when its proof is not right.
  [[nodiscard]] Answer answer(const Question& question, int self) const;
  // `host`, for kAnswer alone: the one that answers.
  [[nodiscard]] Heard hear(const Question& question, const Answer& answer, int& host) const;

 private:
  MacKey questions_;
  MacKey answers_;
};

}  // namespace distrun::net
