#include "launcher/job/ranks/missed_ranks.h"

#include <algorithm>
#include <utility>

#include "launcher/exit_codes.h"

namespace distrun::launcher {
namespace {

// The bytes of a record or a message were not what its sender meant.
bool is_bad_record(LinkEnd link) {
  return link == LinkEnd::kTampered || link == LinkEnd::kMalformed || link == LinkEnd::kUnfinished;
}

}  // namespace

void MissedRanks::reported(MissReport report, TimePoint now) {
  const bool ends_session = report.kind != MissReport::Kind::kWait;
  reports_.push_back(std::move(report));
  if (!ends_session || ends()) return;
  // What was asked before is no answer to this.
  ended_at_ = now;
  asked_at_.reset();
  trying_since_.reset();
  paths_.reset();
  rounds_ = 0;
}

void MissedRanks::answered(int host, const std::vector<std::pair<int, char>>& states) {
  answered_.insert(host);
  for (const auto& [rank, state] : states) states_.at(static_cast<std::size_t>(rank)) = state;
}

void MissedRanks::tried(std::vector<BrokenPath> broken) {
  if (trying_since_) paths_ = std::move(broken);
}

void MissedRanks::awaits_exit(int rank, bool awaited) {
  if (awaited) {
    awaited_.insert(rank);
  } else {
    awaited_.erase(rank);
  }
}

bool MissedRanks::several_hosts() const {
  const auto& names = config_.host_names;
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return name != names.front(); });
}

bool MissedRanks::all_answered() const { return answers_over_ || answered_.size() == config_.host_names.size(); }

std::vector<int> MissedRanks::accused() const {
  std::vector<int> out;
  for (const MissReport& report : reports_) out.insert(out.end(), report.missed.ranks.begin(), report.missed.ranks.end());
  return out;
}

std::set<int> MissedRanks::concerned() const {
  std::set<int> hosts;
  for (const MissReport& report : reports_) {
    if (report.kind == MissReport::Kind::kWait) continue;
    hosts.insert(host_of(report.rank));
    for (const int rank : report.missed.ranks) hosts.insert(host_of(rank));
  }
  return hosts;
}

bool MissedRanks::waits_for_exit() const {
  const std::vector<int> ranks = accused();
  return std::any_of(ranks.begin(), ranks.end(), [this](int rank) { return awaited_.contains(rank); });
}

TimePoint MissedRanks::settled_at() const {
  Duration time{};
  for (const MissReport& report : reports_) {
    if (report.kind != MissReport::Kind::kLoss) continue;
    const bool certain = by_network(report.missed.link) || is_bad_record(report.missed.link);
    time = std::max(time, certain ? kGather : kExplain);
  }
  return *ended_at_ + time;
}

// The lowest in one of these states; those that somebody misses come first. -1: none.
int MissedRanks::in_state(char state, char other, bool accused_only) const {
  const auto is = [&](int rank) {
    const char now = states_.at(static_cast<std::size_t>(rank));
    return now == state || now == other;
  };
  std::vector<int> ranks = accused();
  std::sort(ranks.begin(), ranks.end());
  for (int rank = 0; !accused_only && rank < static_cast<int>(states_.size()); ++rank) ranks.push_back(rank);
  const auto found = std::find_if(ranks.begin(), ranks.end(), is);
  return found == ranks.end() ? -1 : *found;
}

// A process may wait for a disk for a moment at any time.
bool MissedRanks::needs_second_look() const {
  return ends() && rounds_ == 1 && in_state('T', 't', false) < 0 && in_state('D', 'D', true) >= 0;
}

void MissedRanks::ask_again(TimePoint now) {
  asked_at_ = now;
  ++rounds_;
  answered_.clear();
  answers_over_ = false;
}

void MissedRanks::reset() {
  reports_.clear();
  ended_at_.reset();
  asked_at_.reset();
  rounds_ = 0;
  silence_told_ = false;
  trying_since_.reset();
  paths_.reset();
}

Duration MissedRanks::path_limit() const { return ends() ? kAnswerTime : duration_of(config_.host_timeout / 2); }

MissedRanks::Step MissedRanks::step(TimePoint now) {
  Step out;
  if (reports_.empty()) return out;
  if (!asked_at_) {
    ask_again(now);
    out.ask = true;
    return out;
  }
  if (!all_answered() && now < *asked_at_ + kAnswerTime) return out;
  answers_over_ = true;
  if (ends() && !std::exchange(silence_told_, true)) {
    out.silent = concerned();
    for (const int host : answered_) out.silent.erase(host);
    if (!out.silent.empty()) return out;
  }
  if (needs_second_look()) {
    out.ask = now >= *asked_at_ + kAgain;
    if (out.ask) ask_again(now);
    return out;
  }
  if (several_hosts() && !trying_since_) {
    trying_since_ = now;
    out.try_paths = true;
    return out;
  }
  if (trying_since_ && !paths_ && now < *trying_since_ + path_limit() + kAnswerTime) return out;
  if (ends() && (now < settled_at() || waits_for_exit())) return out;
  out.blame = decide();
  out.nobody = !out.blame;
  reset();
  return out;
}

MissedRanks::Step MissedRanks::conclude() {
  Step out;
  if (!ends()) return out;
  out.blame = decide();
  out.nobody = !out.blame;
  reset();
  return out;
}

std::optional<TimePoint> MissedRanks::deadline() const {
  if (reports_.empty()) return std::nullopt;
  if (!asked_at_) return TimePoint::min();
  if (!all_answered()) return *asked_at_ + kAnswerTime;
  if (!answers_over_) return TimePoint::min();
  if (needs_second_look()) return *asked_at_ + kAgain;
  if (several_hosts() && !trying_since_) return TimePoint::min();
  if (trying_since_ && !paths_) return *trying_since_ + path_limit() + kAnswerTime;
  if (!ends()) return TimePoint::min();
  return waits_for_exit() ? std::nullopt : std::optional(settled_at());
}

// What ranks have seen themselves, and what the agents have found.
std::vector<MissedRanks::Edge> MissedRanks::cuts() const {
  std::vector<Edge> out;
  for (const MissReport& report : reports_) {
    if (report.missed.heard || report.missed.ranks.empty() || !by_network(report.missed.link)) continue;
    out.push_back(edge_of(report));
  }
  return out;
}

std::vector<MissedRanks::Edge> MissedRanks::broken_paths() const {
  std::vector<Edge> out;
  for (const BrokenPath& path : paths_.value_or(std::vector<BrokenPath>{})) {
    out.push_back({.from_host = path.from, .to_host = path.to, .link = path.link, .why = path.why});
  }
  return out;
}

MissedRanks::Edge MissedRanks::edge_of(const MissReport& report) const {
  const int to = report.missed.ranks.front();
  return {.from = report.missed.heard ? -1 : report.rank,
          .to = to,
          .from_host = host_of(report.rank),
          .to_host = host_of(to),
          .link = report.missed.link,
          .why = report.failure.cause};
}

// A rank that ends its session closes its connections: who misses another one itself explains that others miss it.
std::vector<MissedRanks::Edge> MissedRanks::unexplained() const {
  std::set<int> reporters;
  std::vector<Edge> all, own, heard;
  for (const MissReport& report : reports_) {
    if (report.kind == MissReport::Kind::kLoss && !report.missed.heard) reporters.insert(report.rank);
  }
  for (const MissReport& report : reports_) {
    if (report.kind != MissReport::Kind::kLoss || report.missed.ranks.empty()) continue;
    const Edge edge = edge_of(report);
    if (report.missed.heard) {
      heard.push_back(edge);
    } else {
      all.push_back(edge);
      if (is_bad_record(edge.link) || !reporters.contains(edge.to)) own.push_back(edge);
    }
  }
  return !own.empty() ? own : !all.empty() ? all : heard;
}

std::optional<Blame> MissedRanks::decide() const {
  std::vector<Edge> broken = broken_paths();
  if (std::vector<Edge> seen = cuts(); !seen.empty()) {
    seen.insert(seen.end(), broken.begin(), broken.end());
    return network(seen);
  }
  const int stopped = ends() ? in_state('T', 't', false) : -1;
  if (stopped >= 0) return holds_up(stopped, true);
  const std::vector<Edge> others = unexplained();
  const auto bad = std::find_if(others.begin(), others.end(), [](const Edge& edge) { return is_bad_record(edge.link); });
  if (bad != others.end()) return ended_link(*bad);
  if (!broken.empty()) return network(broken);
  if (const int blocked = ends() ? in_state('D', 'D', true) : -1; blocked >= 0) return holds_up(blocked, true);
  for (const MissReport& report : reports_) {
    if (report.kind != MissReport::Kind::kStall || report.missed.ranks.empty()) continue;
    return holds_up(report.missed.ranks.front(), false);
  }
  return others.empty() ? std::nullopt : std::optional(ended_link(others.front()));
}

int MissedRanks::first_rank_on(int host) const {
  const auto found = std::find(config_.host_of.begin(), config_.host_of.end(), host);
  return static_cast<int>(found - config_.host_of.begin());
}

Blame MissedRanks::network(const std::vector<Edge>& edges) const {
  const Edge& first = edges.front();
  BrokenLink link{.from = {.rank = first.from, .host = name(first.from_host), .number = first.from_host},
                  .to = {.rank = first.to, .host = name(first.to_host), .number = first.to_host},
                  .end = first.link,
                  .silent = first.from >= 0 ? config_.host_timeout : 0,
                  .why = first.why};
  if (first.from < 0) {
    const auto& [kind, rank, missed, failure] = reports_.front();
    link.noticed = "rank " + std::to_string(rank) + " (" + name(host_of(rank)) + ") " + failure.cause;
  }
  // A host that every edge has, with several others, is the one whose network is broken.
  for (const int host : {first.from_host, first.to_host}) {
    std::set<std::string> partners;
    const bool all = std::all_of(edges.begin(), edges.end(), [&](const Edge& edge) {
      const bool from = name(edge.from_host) == name(host);
      if (from || name(edge.to_host) == name(host)) partners.insert(name(from ? edge.to_host : edge.from_host));
      return from || name(edge.to_host) == name(host);
    });
    if (all && partners.size() > 1) {
      link.host = name(host);
      link.others.assign(partners.begin(), partners.end());
    }
  }
  Blame out{.lost = first.to >= 0 ? first.to : first_rank_on(first.to_host)};
  out.failure = {.host = link.host,
                 .cause = {.kind = CauseKind::kNetworkBroken, .link = std::move(link)},
                 .exit_code = exit_code::kHostLost};
  return out;
}

Blame MissedRanks::holds_up(int rank, bool by_state) const {
  const auto worst = std::find_if(reports_.begin(), reports_.end(),
                                  [](const MissReport& report) { return report.kind == MissReport::Kind::kStall; });
  const MissReport& report = worst == reports_.end() ? reports_.front() : *worst;
  std::string text = report.failure.cause;
  if (report.kind == MissReport::Kind::kLoss) text = "rank " + std::to_string(report.rank) + " has lost it: " + text;
  Blame out{.lost = rank};
  out.failure = {.rank = rank,
                 .cause = {.kind = CauseKind::kStalled,
                           .state = by_state ? states_.at(static_cast<std::size_t>(rank)) : '\0',
                           .text = std::move(text)},
                 .tensor = report.failure.tensor};
  return out;
}

Blame MissedRanks::ended_link(const Edge& edge) const {
  Blame out{.lost = edge.to};
  const bool bad = is_bad_record(edge.link);
  out.failure = {.rank = edge.to,
                 .cause = {.kind = bad ? CauseKind::kBadRecord : CauseKind::kLinkEnded,
                           .link = BrokenLink{.from = {.rank = edge.from,
                                                       .host = edge.from < 0 ? "" : name(edge.from_host),
                                                       .number = edge.from_host},
                                              .to = {.rank = edge.to, .host = name(edge.to_host), .number = edge.to_host},
                                              .end = edge.link,
                                              .why = edge.why}}};
  return out;
}

}  // namespace distrun::launcher
