#include "launcher/job/ranks/blame.h"

#include <algorithm>
#include <set>
#include <utility>

#include "launcher/exit_codes.h"

namespace distrun::launcher {
namespace {

struct Edge {
  int from = -1;  // ranks; -1: only the hosts are known
  int to = -1;
  int from_host = 0;
  int to_host = 0;
  LinkEnd link = LinkEnd::kUnknown;
  std::string why{};
  std::string tensor{};
};

class Judge {
 public:
  explicit Judge(const Evidence& evidence) : evidence_(evidence) {}
  [[nodiscard]] std::optional<Blame> decide() const;

 private:
  [[nodiscard]] const std::string& name(int host) const {
    return evidence_.host_names.at(static_cast<std::size_t>(host));
  }
  [[nodiscard]] int host_of(int rank) const { return evidence_.host_of.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] int first_rank_on(int host) const;
  [[nodiscard]] Edge edge_of(const MissReport& report) const;
  [[nodiscard]] std::vector<Edge> cuts() const;
  [[nodiscard]] std::vector<Edge> broken_paths() const;
  [[nodiscard]] std::vector<Edge> without_cause() const;
  [[nodiscard]] Blame network(const std::vector<Edge>& edges) const;
  [[nodiscard]] Blame holds_up(int rank, bool by_state) const;
  [[nodiscard]] Blame stalled(const MissReport& report) const;
  [[nodiscard]] Blame ended_link(const Edge& edge) const;

  const Evidence& evidence_;
};

// Broken paths that ranks have noticed themselves. The next function has those that the agents have found.
std::vector<Edge> Judge::cuts() const {
  std::vector<Edge> out;
  for (const MissReport& report : evidence_.reports) {
    if (report.missed.by_other || report.missed.ranks.empty() || !by_network(report.missed.link)) continue;
    out.push_back(edge_of(report));
  }
  return out;
}

std::vector<Edge> Judge::broken_paths() const {
  std::vector<Edge> out;
  for (const BrokenPath& path : evidence_.paths) {
    out.push_back({.from_host = path.from, .to_host = path.to, .link = path.link, .why = path.why});
  }
  return out;
}

Edge Judge::edge_of(const MissReport& report) const {
  const int to = report.missed.ranks.front();
  return {.from = report.missed.by_other ? -1 : report.rank,
          .to = to,
          .from_host = host_of(report.rank),
          .to_host = host_of(to),
          .link = report.missed.link,
          .why = report.failure.cause,
          .tensor = report.failure.tensor};
}

// A rank that ends its session closes its connections. So if a missed rank also reports that it misses another, its own
// report explains why it is missed.
std::vector<Edge> Judge::without_cause() const {
  std::set<int> reporters;
  std::vector<Edge> all, own, by_other;
  for (const MissReport& report : evidence_.reports) {
    if (report.kind == MissReport::Kind::kLoss && !report.missed.by_other) reporters.insert(report.rank);
  }
  for (const MissReport& report : evidence_.reports) {
    if (report.kind != MissReport::Kind::kLoss || report.missed.ranks.empty()) continue;
    const Edge edge = edge_of(report);
    if (report.missed.by_other) {
      by_other.push_back(edge);
    } else {
      all.push_back(edge);
      if (is_bad_record(edge.link) || !reporters.contains(edge.to)) own.push_back(edge);
    }
  }
  std::vector<Edge> out = !own.empty() ? own : all;
  out.insert(out.end(), by_other.begin(), by_other.end());
  std::stable_sort(out.begin(), out.end(),
                   [](const Edge& one, const Edge& other) { return says(one.link) > says(other.link); });
  return out;
}

std::optional<Blame> Judge::decide() const {
  std::vector<Edge> broken = broken_paths();
  if (std::vector<Edge> seen = cuts(); !seen.empty()) {
    seen.insert(seen.end(), broken.begin(), broken.end());
    return network(seen);
  }
  const std::vector<Edge> others = without_cause();
  if (!others.empty() && is_bad_message(others.front().link)) return ended_link(others.front());
  const int stopped = evidence_.ends() ? evidence_.stopped() : -1;
  if (stopped >= 0) return holds_up(stopped, true);
  const auto bad =
      std::find_if(others.begin(), others.end(), [](const Edge& edge) { return is_bad_record(edge.link); });
  if (bad != others.end()) return ended_link(*bad);
  if (!broken.empty()) return network(broken);
  if (const int blocked = evidence_.ends() ? evidence_.blocked() : -1; blocked >= 0) return holds_up(blocked, true);
  for (const MissReport& report : evidence_.reports) {
    if (report.kind == MissReport::Kind::kStall && !report.missed.ranks.empty()) return stalled(report);
  }
  return others.empty() ? std::nullopt : std::optional(ended_link(others.front()));
}

int Judge::first_rank_on(int host) const {
  const auto found = std::find(evidence_.host_of.begin(), evidence_.host_of.end(), host);
  return static_cast<int>(found - evidence_.host_of.begin());
}

Blame Judge::network(const std::vector<Edge>& edges) const {
  const Edge& first = edges.front();
  BrokenLink link{.from = {.rank = first.from, .host = name(first.from_host), .number = first.from_host},
                  .to = {.rank = first.to, .host = name(first.to_host), .number = first.to_host},
                  .end = first.link,
                  .silent = first.from >= 0 ? evidence_.host_timeout : 0,
                  .why = first.why};
  std::string tensor = first.tensor;
  if (first.from < 0) {
    const auto& [kind, rank, missed, failure] = evidence_.reports.front();
    link.noticed = "rank " + std::to_string(rank) + " (" + name(host_of(rank)) + ") " + failure.cause;
    tensor = failure.tensor;
  }
  // If every edge touches the same host, with several partners, the network of that host is broken.
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
                 .tensor = std::move(tensor),
                 .exit_code = exit_code::kHostLost};
  return out;
}

// A rank that raised an exception and then waits is the cause of a wait both ways: the others do not know that it has
// left the common path.
Blame Judge::stalled(const MissReport& report) const {
  if (evidence_.exceptions.empty()) return holds_up(report.missed.ranks.front(), false);
  const PendingException& first = evidence_.exceptions.front();
  Blame out = holds_up(first.rank, false);
  out.failure.cause.kind = CauseKind::kStalled;
  out.failure.cause.exception = exception_with_place(first.text, first.raised_at);
  out.failure.place = first.raised_at;
  return out;
}

Blame Judge::holds_up(int rank, bool by_state) const {
  const auto worst = std::find_if(evidence_.reports.begin(), evidence_.reports.end(),
                                  [](const MissReport& report) { return report.kind == MissReport::Kind::kStall; });
  const MissReport& report = worst == evidence_.reports.end() ? evidence_.reports.front() : *worst;
  std::string text = report.failure.cause;
  if (report.kind == MissReport::Kind::kLoss) text = "rank " + std::to_string(report.rank) + " has lost it: " + text;
  const bool all = !by_state && report.missed.deadlock;
  Blame out{.lost = rank};
  out.failure = {.rank = rank,
                 .cause = {.kind = all ? CauseKind::kDeadlock : CauseKind::kStalled,
                           .state = by_state ? evidence_.states.at(static_cast<std::size_t>(rank)) : '\0',
                           .text = std::move(text)},
                 .tensor = report.failure.tensor};
  return out;
}

Blame Judge::ended_link(const Edge& edge) const {
  Blame out{.lost = edge.to};
  const bool bad = is_bad_record(edge.link);
  out.failure = {
      .rank = edge.to,
      .cause = {.kind = bad ? CauseKind::kBadRecord : CauseKind::kLinkEnded,
                .link = BrokenLink{.from = {.rank = edge.from,
                                            .host = edge.from < 0 ? "" : name(edge.from_host),
                                            .number = edge.from_host},
                                   .to = {.rank = edge.to, .host = name(edge.to_host), .number = edge.to_host},
                                   .end = edge.link,
                                   .why = edge.why}},
      .tensor = edge.tensor};
  return out;
}

// The lowest of `ranks` that is in one of two states; -1: none.
int first_in(const std::vector<char>& states, std::vector<int> ranks, char one, char other) {
  std::sort(ranks.begin(), ranks.end());
  const auto found = std::find_if(ranks.begin(), ranks.end(), [&](int rank) {
    const char state = states.at(static_cast<std::size_t>(rank));
    return state == one || state == other;
  });
  return found == ranks.end() ? -1 : *found;
}

}  // namespace

bool Evidence::ends() const {
  return std::any_of(reports.begin(), reports.end(),
                     [](const MissReport& report) { return report.kind != MissReport::Kind::kWait; });
}

std::vector<int> Evidence::missed() const {
  std::vector<int> out;
  for (const MissReport& report : reports) {
    out.insert(out.end(), report.missed.ranks.begin(), report.missed.ranks.end());
  }
  return out;
}

int Evidence::stopped() const {
  if (const int rank = first_in(states, missed(), 'T', 't'); rank >= 0) return rank;
  std::vector<int> all(states.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  return first_in(states, std::move(all), 'T', 't');
}

int Evidence::blocked() const { return first_in(states, missed(), 'D', 'D'); }

std::optional<Blame> decide(const Evidence& evidence) { return Judge(evidence).decide(); }

}  // namespace distrun::launcher
