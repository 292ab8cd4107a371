#include "runtime/net/secure/probe_words.h"

#include <sodium.h>

#include <algorithm>
#include <vector>

#include "runtime/net/bytes/wire.h"
#include "runtime/net/secure/secure_socket.h"

namespace distrun::net {
namespace {

constexpr std::array kProbeMagic{std::byte{'d'}, std::byte{'r'}, std::byte{'u'}, std::byte{'p'}};
constexpr std::size_t kProved = sizeof(ProbeWords::Question) - kMacBytes;

std::string purpose(const char* of, const std::string& job_id) {
  return std::string("distrun probe") + '\0' + of + '\0' + job_id;
}

std::vector<std::byte> covered(const ProbeWords::Question& question, std::span<const std::byte> host) {
  std::vector<std::byte> bytes(question.begin(), question.end());
  bytes.insert(bytes.end(), host.begin(), host.end());
  return bytes;
}

}  // namespace

ProbeWords::ProbeWords(const JobKey& key, const std::string& job_id)
    : questions_(key, purpose("question", job_id)), answers_(key, purpose("answer", job_id)) {}

ProbeWords::Question ProbeWords::question(int from, int to) const {
  std::array<std::byte, 16> random;
  randombytes_buf(random.data(), random.size());
  WireWriter writer;
  writer.raw(kProbeMagic).u32(kProtocolVersion).i32(from).i32(to).raw(random);
  const Mac mac = questions_.mac(writer.view());
  writer.raw(mac);
  Question question;
  std::copy(writer.view().begin(), writer.view().end(), question.begin());
  return question;
}

ProbeWords::Answer ProbeWords::answer(const Question& question, int self) const {
  Answer answer{};
  const std::span words(question);
  if (!questions_.verify(words.first<kProved>(), words.last<kMacBytes>())) return answer;
  WireWriter host;
  host.i32(self);
  std::copy(host.view().begin(), host.view().end(), answer.begin());
  const Mac mac = answers_.mac(covered(question, host.view()));
  std::copy(mac.begin(), mac.end(), answer.begin() + 4);
  return answer;
}

ProbeWords::Reply ProbeWords::check(const Question& question, const Answer& answer, int& host) const {
  if (answer == Answer{}) return Reply::kRefusal;
  const std::span words(answer);
  if (!answers_.verify(covered(question, words.first<4>()), words.last<kMacBytes>())) return Reply::kForeign;
  host = WireReader(words.first<4>()).i32();
  return Reply::kAnswer;
}

}  // namespace distrun::net
