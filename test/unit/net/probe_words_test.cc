#include "runtime/net/secure/probe_words.h"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>

namespace distrun::net {
namespace {

using Reply = ProbeWords::Reply;

TEST_CASE("a question is answered by whoever holds the key of the job, with its own number") {
  const JobKey key = JobKey::generate();
  const ProbeWords asker(key, "job");
  const ProbeWords other(key, "job");
  const auto question = asker.question(3, 7);
  int host = 0;
  CHECK(asker.check(question, other.answer(question, 7), host) == Reply::kAnswer);
  CHECK(host == 7);
  CHECK(asker.check(question, other.answer(question, -1), host) == Reply::kAnswer);
  CHECK(host == -1);
}

TEST_CASE("another key and another job are refused") {
  const JobKey key = JobKey::generate();
  const ProbeWords asker(key, "job");
  const auto question = asker.question(0, 1);
  int host = 0;
  CHECK(asker.check(question, ProbeWords(JobKey::generate(), "job").answer(question, 1), host) == Reply::kRefusal);
  CHECK(asker.check(question, ProbeWords(key, "yesterday").answer(question, 1), host) == Reply::kRefusal);
}

TEST_CASE("no bit of a question or an answer can be changed") {
  const JobKey key = JobKey::generate();
  const ProbeWords words(key, "job");
  const auto question = words.question(0, 1);
  const auto answer = words.answer(question, 1);
  int host = 0;
  for (std::size_t bit = 0; bit < question.size() * 8; ++bit) {
    auto changed = question;
    changed[bit / 8] ^= std::byte{1} << (bit % 8);
    CHECK(words.check(changed, words.answer(changed, 1), host) == Reply::kRefusal);
  }
  for (std::size_t bit = 0; bit < answer.size() * 8; ++bit) {
    auto changed = answer;
    changed[bit / 8] ^= std::byte{1} << (bit % 8);
    CHECK(words.check(question, changed, host) == Reply::kForeign);
  }
}

TEST_CASE("an answer is to one question alone, and a question is no answer") {
  const ProbeWords words(JobKey::generate(), "job");
  const auto first = words.question(0, 1);
  const auto second = words.question(0, 1);
  CHECK(first != second);
  int host = 0;
  CHECK(words.check(second, words.answer(first, 1), host) == Reply::kForeign);
  ProbeWords::Answer reflected{};
  std::copy(first.begin(), first.begin() + reflected.size(), reflected.begin());
  CHECK(words.check(first, reflected, host) == Reply::kForeign);
}

}  // namespace
}  // namespace distrun::net
