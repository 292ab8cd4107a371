#include "runtime/engine/monitoring/deadlock.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "runtime/engine/readiness/mismatch.h"
#include "runtime/engine/readiness/stall.h"

namespace distrun::engine {
namespace {

constexpr Duration kMinute = std::chrono::minutes(1);
// Number of questions within the limit, and the shortest time between two questions.
constexpr int kQuestions = 20;
constexpr Duration kShortestPause = std::chrono::milliseconds(500);
// Threads of libraries may use this much even within a short limit, so it says nothing about the program.
constexpr Duration kLeastCpu = std::chrono::milliseconds(100);
constexpr std::size_t kWaitsShown = 8;

}  // namespace

DeadlockWatch::DeadlockWatch(int ranks, Duration limit)
    : limit_(limit),
      pause_(std::clamp(limit / kQuestions, kShortestPause, kMinute)),
      window_(std::min(limit, kMinute)),
      answered_(static_cast<std::size_t>(ranks)),
      before_(static_cast<std::size_t>(ranks)) {}

std::optional<TimePoint> DeadlockWatch::next(const std::optional<TimePoint>& since) const {
  if (limit_ == Duration::zero() || !since) return std::nullopt;
  if (!asked_at_) return *since + pause_;
  // The last question is asked when the limit has passed.
  const TimePoint end = since_ ? *since_ + limit_ : TimePoint::max();
  return end > *asked_at_ ? std::min(*asked_at_ + pause_, end) : *asked_at_ + pause_;
}

std::optional<std::uint64_t> DeadlockWatch::ask(const std::optional<TimePoint>& since, TimePoint now) {
  if (!since) forget();
  const auto due = next(since);
  if (!due || now < *due) return std::nullopt;
  if (asked_at_ && answers_ < answered_.size()) forget();  // a rank has not answered
  asked_at_ = now;
  answers_ = 0;
  for (std::size_t rank = 0; rank < answered_.size(); ++rank) before_[rank] = answered_[rank].changes;
  return ++round_;
}

void DeadlockWatch::forget() {
  asked_at_.reset();
  since_.reset();
  rounds_.clear();
}

bool DeadlockWatch::take_answer(int rank, const message::WaitAnswer& answer) {
  auto& last = answered_.at(static_cast<std::size_t>(rank));
  if (!asked_at_ || answer.round != round_ || last.round == round_) return false;
  last = answer;
  return ++answers_ == answered_.size() && judge();
}

// Called when all ranks have answered.
bool DeadlockWatch::judge() {
  Round round{.at = *asked_at_, .cpu_ns = {}};
  bool waits = true;
  bool same = since_.has_value();
  for (std::size_t rank = 0; rank < answered_.size(); ++rank) {
    const message::WaitAnswer& answer = answered_[rank];
    waits = waits && answer.wait == net::MainWait::kForever && !answer.moves;
    same = same && answer.changes == before_[rank];
    round.cpu_ns.push_back(answer.cpu_ns);
  }
  rounds_.push_back(std::move(round));
  // Keeps one round that is at least as old as the window.
  while (rounds_.size() > 2 && rounds_[1].at + window_ <= *asked_at_) rounds_.pop_front();
  if (!waits || !same || !idle()) {
    rounds_.erase(rounds_.begin(), std::prev(rounds_.end()));
    since_ = waits ? asked_at_ : std::nullopt;
    return false;
  }
  return *asked_at_ - *since_ >= limit_;
}

// True if no process has used more CPU time than allowed since the oldest round.
bool DeadlockWatch::idle() const {
  const Round& first = rounds_.front();
  const Round& last = rounds_.back();
  const double share = std::chrono::duration<double>(last.at - first.at) / std::chrono::duration<double>(kMinute);
  const auto allowed = std::max(std::chrono::duration_cast<Duration>(kIdleCpu * share), kLeastCpu);
  const auto limit = std::chrono::duration_cast<std::chrono::nanoseconds>(allowed).count();
  for (std::size_t rank = 0; rank < last.cpu_ns.size(); ++rank) {
    if (last.cpu_ns[rank] - first.cpu_ns[rank] >= limit) return false;
  }
  return true;
}

std::vector<std::string> DeadlockWatch::operations() const {
  std::vector<std::string> all;
  for (const message::WaitAnswer& answer : answered_) all.push_back(answer.operation);
  return all;
}

ErrorInfo deadlock_error(const std::vector<net::RankWait>& waits, const std::vector<std::string>& operations,
                         const std::vector<std::string>& hosts, Duration limit) {
  ErrorInfo error{.code = Errc::kTimeout, .usable = false};
  error.cause = "stalled";
  error.message = "deadlock: every rank has waited for others for " + seconds_text(limit) + ", and no wait can end: ";
  std::set<int> named;
  std::size_t shown = 0;
  const auto add = [&](const std::string& text) {
    if (++shown <= kWaitsShown) error.message += (shown > 1 ? "; " : "") + text;
  };
  for (const net::RankWait& wait : waits) {
    named.insert(wait.waiting.begin(), wait.waiting.end());
    add(describe_ranks(wait.waiting, hosts) + (wait.waiting.size() == 1 ? " waits in " : " wait in ") + wait.what +
        " for " + describe_ranks(wait.missing, hosts));
  }
  std::map<std::string, std::vector<int>> others;
  for (std::size_t rank = 0; rank < operations.size(); ++rank) {
    if (!named.contains(static_cast<int>(rank))) others[operations[rank]].push_back(static_cast<int>(rank));
  }
  for (const auto& [operation, ranks] : others) {
    add(describe_ranks(ranks, hosts) + (ranks.size() == 1 ? " waits" : " wait") +
        (operation.empty() ? "" : " in " + operation));
  }
  if (shown > kWaitsShown) error.message += "; and " + std::to_string(shown - kWaitsShown) + " more waits";
  error.message += ". Make the same calls in the same order on every rank (--deadlock-time 0 lets them wait)";
  // Begins with ranks that others miss: the launcher tells the others that the first one is lost.
  if (!waits.empty()) error.ranks = waits.front().missing;
  for (int rank = 0; rank < static_cast<int>(operations.size()); ++rank) {
    if (std::find(error.ranks.begin(), error.ranks.end(), rank) == error.ranks.end()) error.ranks.push_back(rank);
  }
  return error;
}

}  // namespace distrun::engine
