// Two hosts exchange one question and one answer to find out whether an address leads from one to the other. The
// connection carries nothing else, so it needs no session. Each end proves with a MAC that it holds the job's key
// (docs/internals/wire.md has the bytes). A replayed question gets the same answer again. An answer cannot be replayed,
// because it covers the 16 random bytes of the question. At the start of a job, 16 hosts ask 256 times; a Noise
// handshake for each took 60 ms of two cores. Pure; no I/O.
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
  enum class Reply {
    kAnswer,
    kRefusal,  // the listener there does not accept the proof in the question
    kForeign,  // bytes of a process without the key
  };

  ProbeWords(const JobKey& key, const std::string& job_id);

  // `from` and `to` are host numbers.
  [[nodiscard]] Question question(int from, int to) const;
  // The answer of host `self` to a question, for whichever host it is meant. The refusal if the proof is wrong.
  [[nodiscard]] Answer answer(const Question& question, int self) const;
  // `host`: the host that answers; set for kAnswer only.
  [[nodiscard]] Reply check(const Question& question, const Answer& answer, int& host) const;

 private:
  MacKey questions_;
  MacKey answers_;
};

}  // namespace distrun::net
