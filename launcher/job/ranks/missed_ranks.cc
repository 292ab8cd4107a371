#include "launcher/job/ranks/missed_ranks.h"

#include <algorithm>
#include <utility>

namespace distrun::launcher {
void MissedRanks::reported(MissReport report, TimePoint now) {
  const bool ends_session = report.kind != MissReport::Kind::kWait;
  // One check answers all waiting ranks, so further reports of waits are ignored for some time.
  if (!ends_session && ignored_until_ && now < *ignored_until_) return;
  evidence_.reports.push_back(std::move(report));
  if (!ends_session || ends()) return;
  // Answers to earlier questions do not explain this report.
  ended_at_ = now;
  asked_at_.reset();
  trying_since_.reset();
  evidence_.paths.clear();
  tried_ = false;
  rounds_ = 0;
}

void MissedRanks::answered(int host, const std::vector<std::pair<int, char>>& states) {
  answered_.insert(host);
  for (const auto& [rank, state] : states) evidence_.states.at(static_cast<std::size_t>(rank)) = state;
}

void MissedRanks::tried(std::vector<BrokenPath> broken) {
  if (!trying_since_) return;
  evidence_.paths = std::move(broken);
  tried_ = true;
}

void MissedRanks::awaits_exit(int rank, bool awaited) {
  if (awaited) {
    awaited_.insert(rank);
  } else {
    awaited_.erase(rank);
  }
}

void MissedRanks::seen(std::vector<PendingException> exceptions, bool more) {
  evidence_.exceptions = std::move(exceptions);
  views_come_ = more;
}

bool MissedRanks::several_hosts() const {
  const auto& names = evidence_.host_names;
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return name != names.front(); });
}

bool MissedRanks::all_answered() const { return answers_over_ || answered_.size() == evidence_.host_names.size(); }

std::set<int> MissedRanks::concerned() const {
  std::set<int> hosts;
  for (const MissReport& report : evidence_.reports) {
    if (report.kind == MissReport::Kind::kWait) continue;
    hosts.insert(evidence_.host_of.at(static_cast<std::size_t>(report.rank)));
    for (const int rank : report.missed.ranks) hosts.insert(evidence_.host_of.at(static_cast<std::size_t>(rank)));
  }
  return hosts;
}

bool MissedRanks::waits_for_exit() const {
  const std::vector<int> ranks = evidence_.missed();
  return std::any_of(ranks.begin(), ranks.end(), [this](int rank) { return awaited_.contains(rank); });
}

// A rank's exception may explain a stall.
bool MissedRanks::waits_for_views() const {
  return views_come_ && std::any_of(evidence_.reports.begin(), evidence_.reports.end(),
                                    [](const MissReport& report) { return report.kind == MissReport::Kind::kStall; });
}

TimePoint MissedRanks::decided_at() const {
  Duration time{};
  for (const MissReport& report : evidence_.reports) {
    if (report.kind != MissReport::Kind::kLoss) continue;
    const bool certain = by_network(report.missed.link) || is_bad_record(report.missed.link);
    time = std::max(time, certain ? kGather : kExplain);
  }
  return *ended_at_ + time;
}

// Any process may wait for a disk for a moment.
bool MissedRanks::needs_second_check() const {
  return ends() && rounds_ == 1 && evidence_.stopped() < 0 && evidence_.blocked() >= 0;
}

void MissedRanks::ask_again(TimePoint now) {
  asked_at_ = now;
  ++rounds_;
  answered_.clear();
  answers_over_ = false;
}

void MissedRanks::reset() {
  evidence_.reports.clear();
  ended_at_.reset();
  asked_at_.reset();
  rounds_ = 0;
  silence_reported_ = false;
  trying_since_.reset();
  evidence_.paths.clear();
  tried_ = false;
}

Duration MissedRanks::path_limit() const { return ends() ? kAnswerTime : duration_of(evidence_.host_timeout / 2); }

MissedRanks::Step MissedRanks::step(TimePoint now) {
  Step out;
  if (evidence_.reports.empty()) return out;
  if (!asked_at_) {
    ask_again(now);
    out.ask = true;
    return out;
  }
  if (!all_answered() && now < *asked_at_ + kAnswerTime) return out;
  answers_over_ = true;
  if (ends() && !std::exchange(silence_reported_, true)) {
    out.silent = concerned();
    for (const int host : answered_) out.silent.erase(host);
    if (!out.silent.empty()) return out;
  }
  if (needs_second_check()) {
    out.ask = now >= *asked_at_ + kAgain;
    if (out.ask) ask_again(now);
    return out;
  }
  if (several_hosts() && !trying_since_) {
    trying_since_ = now;
    out.try_paths = true;
    return out;
  }
  if (trying_since_ && !tried_ && now < *trying_since_ + path_limit() + kAnswerTime) return out;
  if (ends() && (now < decided_at() || waits_for_exit() || waits_for_views())) return out;
  out.blame = decide(evidence_);
  out.no_cause = !out.blame;
  if (!ends()) ignored_until_ = now + path_limit();
  reset();
  return out;
}

MissedRanks::Step MissedRanks::conclude() {
  Step out;
  if (!ends()) return out;
  out.blame = decide(evidence_);
  out.no_cause = !out.blame;
  reset();
  return out;
}

std::optional<TimePoint> MissedRanks::deadline() const {
  if (evidence_.reports.empty()) return std::nullopt;
  if (!asked_at_) return TimePoint();
  if (!all_answered()) return *asked_at_ + kAnswerTime;
  if (!answers_over_) return TimePoint();
  if (needs_second_check()) return *asked_at_ + kAgain;
  if (several_hosts() && !trying_since_) return TimePoint();
  if (trying_since_ && !tried_) return *trying_since_ + path_limit() + kAnswerTime;
  if (!ends()) return TimePoint();
  return waits_for_exit() || waits_for_views() ? std::nullopt : std::optional(decided_at());
}

}  // namespace distrun::launcher
