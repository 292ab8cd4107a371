// runtime/net/secure/probe_words.h: a stranger's bytes as a question and as an answer.
#include <algorithm>

#include "runtime/net/secure/probe_words.h"
#include "test/fuzz/targets.h"

namespace distrun::fuzz {
namespace {

using net::ProbeWords;

}  // namespace

int probe(const std::uint8_t* data, std::size_t size) {
  static const ProbeWords words(net::JobKey::generate(), "job");
  const auto bytes = as_span(data, size);
  ProbeWords::Question question{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), question.size()), question.begin());
  require(words.answer(question, 1) == ProbeWords::Answer{}, "nobody without the key is answered");
  ProbeWords::Answer answer{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), answer.size()), answer.begin());
  int host = 0;
  const auto heard = words.check(words.question(0, 1), answer, host);
  require(heard != ProbeWords::Reply::kAnswer, "nobody without the key gives an answer");
  return 0;
}

// Everything is right except the proof.
std::vector<Bytes> probe_seeds() {
  const ProbeWords other(net::JobKey::generate(), "job");
  const auto question = other.question(0, 1);
  const auto answer = other.answer(question, 1);
  return {Bytes(question.begin(), question.end()), Bytes(answer.begin(), answer.end())};
}

}  // namespace distrun::fuzz
