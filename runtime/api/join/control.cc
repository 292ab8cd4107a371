#include "runtime/api/join/control.h"

#include <numeric>
#include <span>

#include "runtime/api/join/exchange.h"
#include "runtime/api/join/membership.h"
#include "runtime/net/bytes/wire.h"
#include "runtime/net/control/shm_control.h"
#include "runtime/net/control/tcp_control.h"

namespace distrun::api {
namespace {
constexpr int kNumAnswers = 4;
constexpr std::size_t kMaxReason = 1 << 15;
}  // namespace

template <class V>
void fields(V& v, net::Ref<V, SharedControl> one) {
  v.one_of(one.answer, kNumAnswers).cut_text(one.reason, kMaxReason);
}

namespace {

using Answer = SharedControl::Answer;

Result<std::vector<SharedControl>> answers_of_all(const ControlOptions& options, const std::string& topic,
                                                  const SharedControl& mine, TimePoint deadline) {
  Members all_ranks{.ranks = std::vector<int>(static_cast<std::size_t>(options.world.size)),
                    .index = options.world.rank,
                    .met = true};
  std::iota(all_ranks.ranks.begin(), all_ranks.ranks.end(), 0);
  const auto blobs = exchange(options.store, all_ranks, topic, encode(mine), deadline);
  if (!blobs.ok()) return blobs.status();
  std::vector<SharedControl> answers;
  for (const std::string& blob : *blobs) {
    auto answer = decode_shared_control(blob);
    if (!answer.ok()) return answer.status();
    answers.push_back(*std::move(answer));
  }
  return answers;
}

SharedControl own_answer(const ControlOptions& options) {
  if (options.setting == "tcp") return {.answer = Answer::kTcpWasSet, .reason = "control=tcp was set"};
  if (options.host_link == nullptr) return {.answer = Answer::kNoSharedMemory, .reason = options.host_link_error};
  if (options.host_link->ranks().size() != static_cast<std::size_t>(options.world.size)) {
    return {.answer = Answer::kSeveralHosts, .reason = "not all ranks are on one host"};
  }
  return {};
}

}  // namespace

std::string encode(const SharedControl& one) { return net::as_string(net::encoded(one)); }

Result<SharedControl> decode_shared_control(const std::string& bytes) {
  return net::decoded<SharedControl>(net::as_bytes(bytes), "a rank's answer on the control plane");
}

std::string refusal_of_any(const std::vector<SharedControl>& answers) {
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    if (answers[rank].answer != Answer::kYes) return "rank " + std::to_string(rank) + ": " + answers[rank].reason;
  }
  return {};
}

std::vector<std::string> faults_of(const std::vector<SharedControl>& answers) {
  std::vector<std::string> faults;
  for (const SharedControl& one : answers) {
    faults.push_back(one.answer == Answer::kNoSharedMemory ? one.reason : std::string());
  }
  return faults;
}

Result<Control> choose_control(const ControlOptions& options, TimePoint deadline) {
  auto answers = answers_of_all(options, "control", own_answer(options), deadline);
  if (!answers.ok()) return answers.status();
  if (options.world.rank == 0) {
    const std::string warning = unshared_hosts(options.hosts, faults_of(*answers));
    if (!warning.empty()) options.log.warning(warning);
  }
  std::string refusal = refusal_of_any(*answers);
  if (refusal.empty()) {
    auto plane = net::connect_shm_control(*options.host_link, options.world, deadline);
    SharedControl made;
    if (!plane.ok()) made = {.answer = Answer::kNoSharedMemory, .reason = plane.status().message()};
    answers = answers_of_all(options, "control made", made, deadline);
    if (!answers.ok()) return answers.status();
    refusal = refusal_of_any(*answers);
    if (refusal.empty()) return Control{*std::move(plane), "shm: all ranks share the memory of one host"};
  }
  if (options.setting == "shm") {
    return Status(Errc::kUnsupported, "control=shm is not possible here: " + refusal);
  }
  auto plane = net::connect_tcp_control({.world = &options.world,
                                         .key = options.key,
                                         .store = &options.store,
                                         .wait_set = &options.wait_set,
                                         .deadline = deadline,
                                         .members = {},
                                         .log = &options.log});
  if (!plane.ok()) return plane.status();
  return Control{*std::move(plane), "tcp: " + refusal};
}

}  // namespace distrun::api
