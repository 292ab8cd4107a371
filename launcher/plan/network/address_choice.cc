// choose_addresses() of network.h: combines the probes of all hosts.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "launcher/plan/hosts/hostlist.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/plan/network/network.h"
#include "runtime/base/ended_link.h"

namespace distrun::launcher {
namespace {

constexpr int kAllPairs = 32;
constexpr int kNextInRing = 4;
constexpr std::size_t kMostLines = 40;  // lines of an error

// Results of the probes between hosts. The head has the number after the last host.
class ProbedWays {
 public:
  ProbedWays(const std::vector<ProbedHost>& hosts, const std::optional<ProbedHost>& head,
             const std::vector<std::vector<ProbeResult>>& reports);

  [[nodiscard]] int count() const { return static_cast<int>(all_.size()); }
  [[nodiscard]] const ProbedHost& at(int host) const { return *all_[static_cast<std::size_t>(host)]; }
  [[nodiscard]] const std::vector<Candidate>& addresses(int host) const { return at(host).addresses.candidates; }
  // The hosts that tried to reach it.
  [[nodiscard]] const std::vector<int>& triers(int host) const { return sources_[static_cast<std::size_t>(host)]; }
  // Why `from` did not reach that address. Null if it did.
  [[nodiscard]] const ProbeResult* failed(int from, int to, std::size_t candidate) const;
  [[nodiscard]] bool cut(int from, int to) const;

 private:
  std::vector<const ProbedHost*> all_;
  std::vector<std::vector<int>> sources_;
  std::map<std::tuple<int, int, std::size_t>, ProbeResult> results_;
  const ProbeResult silent_{.failure = "that host did not report a result"};
};

ProbedWays::ProbedWays(const std::vector<ProbedHost>& hosts, const std::optional<ProbedHost>& head,
                       const std::vector<std::vector<ProbeResult>>& reports) {
  const int count = static_cast<int>(hosts.size());
  for (const ProbedHost& host : hosts) all_.push_back(&host);
  sources_.resize(hosts.size());
  for (const auto& [from, to] : pairs_to_probe(count)) sources_[static_cast<std::size_t>(to)].push_back(from);
  if (head) {
    all_.push_back(&*head);
    sources_.emplace_back();
    for (int host = 0; host < count; ++host) sources_.back().push_back(host);
  }
  for (std::size_t from = 0; from < reports.size(); ++from) {
    for (const ProbeResult& result : reports[from]) {
      const int to = result.host == kHeadHost ? count : result.host;
      results_[{static_cast<int>(from), to, static_cast<std::size_t>(result.candidate)}] = result;
    }
  }
}

const ProbeResult* ProbedWays::failed(int from, int to, std::size_t candidate) const {
  const auto result = results_.find({from, to, candidate});
  if (result == results_.end()) return &silent_;
  return result->second.failure.empty() ? nullptr : &result->second;
}

bool ProbedWays::cut(int from, int to) const {
  for (std::size_t i = 0; i < addresses(to).size(); ++i) {
    if (failed(from, to, i) == nullptr) return false;
  }
  return true;
}

// "node2 does not reach it (no answer within 3 s), nor do 2 others"; empty when all reach it.
std::string objections(const ProbedWays& reach, int to, std::size_t candidate) {
  std::string first;
  std::size_t others = 0;
  for (const int from : reach.triers(to)) {
    const ProbeResult* failed = reach.failed(from, to, candidate);
    if (failed == nullptr) continue;
    if (first.empty()) {
      first = reach.at(from).name + " does not reach it (" + failed->failure + ")";
    } else {
      ++others;
    }
  }
  if (others > 0) first += ", nor " + std::string(others == 1 ? "does " : "do ") + counted(others, "other");
  return first;
}

// Why the host's other addresses were not tried. Leaves out the loopback address, which every host has.
std::string not_tried(const Eligible& addresses) {
  std::string out;
  for (const Rejected& rejected : addresses.rejected) {
    if (rejected.candidate.interface != "lo")
      out += "; not tried: " + to_text(rejected.candidate) + ", " + rejected.why;
  }
  return out;
}

std::optional<ChosenAddress> choose(const ProbedWays& reach, int to) {
  const std::size_t triers = reach.triers(to).size();
  std::string against;
  for (std::size_t i = 0; i < reach.addresses(to).size(); ++i) {
    const Candidate& candidate = reach.addresses(to)[i];
    const std::string why_not = objections(reach, to, i);
    if (why_not.empty()) {
      return ChosenAddress{candidate, reach.at(to).name + ": " + to_text(candidate) + ", reached by " +
                                          (triers == 1 ? reach.at(reach.triers(to).front()).name
                                                       : "all " + counted(triers, "host") + " that tried") +
                                          against + not_tried(reach.at(to).addresses)};
    }
    against += "; not " + to_text(candidate) + ": " + why_not;
  }
  return std::nullopt;
}

// The content of an error: a headline, and the pairs it is about.
struct Diagnosis {
  std::string headline;
  std::vector<std::pair<int, int>> pairs;
};

std::string names(const ProbedWays& reach, const std::vector<int>& hosts) {
  std::vector<std::string> out;
  for (const int host : hosts) out.push_back(reach.at(host).name);
  return join(compress_hostlist(out), ", ");
}

// A host without a working network makes the addresses of all others look bad, because it does not reach them. So the
// error first names hosts that no other reaches, then hosts that reach no other, and only then hosts without a common
// address.
Diagnosis diagnose(const ProbedWays& reach, const std::vector<int>& without_address) {
  std::map<int, int> tries;
  std::vector<std::pair<int, int>> cut;
  std::vector<int> unreached;
  for (int to = 0; to < reach.count(); ++to) {
    const std::size_t before = cut.size();
    for (const int from : reach.triers(to)) {
      ++tries[from];
      if (reach.cut(from, to)) cut.emplace_back(from, to);
    }
    if (!reach.triers(to).empty() && cut.size() - before == reach.triers(to).size()) unreached.push_back(to);
  }
  const auto only = [&](const auto& wanted) {
    std::vector<std::pair<int, int>> out;
    std::copy_if(cut.begin(), cut.end(), std::back_inserter(out), wanted);
    return out;
  };
  const auto in = [](const std::vector<int>& list, int host) {
    return std::find(list.begin(), list.end(), host) != list.end();
  };
  if (!unreached.empty()) {
    return {"no other host reaches " + names(reach, unreached),
            only([&](auto pair) { return in(unreached, pair.second); })};
  }
  std::vector<int> unreachable;
  for (const auto& [from, count] : tries) {
    const auto failed = std::count_if(cut.begin(), cut.end(), [one = from](auto pair) { return pair.first == one; });
    if (failed == count) unreachable.push_back(from);
  }
  if (!unreachable.empty()) {
    return {names(reach, unreachable) + (unreachable.size() == 1 ? " reaches" : " reach") + " no other host",
            only([&](auto pair) { return in(unreachable, pair.first); })};
  }
  if (!cut.empty()) return {"some hosts do not reach each other", cut};
  Diagnosis out{"no address of " + names(reach, without_address) + " is reachable from all hosts", {}};
  for (const int to : without_address) {
    for (const int from : reach.triers(to)) out.pairs.emplace_back(from, to);
  }
  return out;
}

// "h1 -> h2: 10.0.0.2 (eth0): no answer within 3 s". The ways that lose large messages come last, with one cure.
std::string failed_pairs(const ProbedWays& reach, const std::vector<std::pair<int, int>>& pairs) {
  std::vector<std::string> lines;
  std::vector<std::string> lose_large;
  for (const auto& [from, to] : pairs) {
    for (std::size_t i = 0; i < reach.addresses(to).size(); ++i) {
      const ProbeResult* failed = reach.failed(from, to, i);
      if (failed == nullptr) continue;
      const std::string way = reach.at(from).name + " -> " + reach.at(to).name + ": " + to_text(reach.addresses(to)[i]);
      const bool large = failed->link == LinkEnd::kLargeSilent;
      large ? lose_large.push_back(way) : lines.push_back(way + ": " + failed->failure);
    }
  }
  if (!lose_large.empty()) {
    lines.push_back(std::string(kLargeMessagesLost) + ":");
    for (const std::string& way : lose_large) lines.push_back("  " + way);
  }
  const std::size_t shown = std::min(lines.size(), kMostLines);
  const std::size_t hidden = lines.size() - shown;
  lines.resize(shown);
  if (hidden > 0) lines.push_back("and " + std::to_string(hidden) + " more");
  return lines.empty() ? "" : "\n  " + join(lines, "\n  ");
}

// Hosts without an address to try, each with its addresses and their faults.
std::string nothing_to_try(const ProbedWays& reach, const std::vector<int>& hosts) {
  std::string out;
  for (const int host : hosts) {
    if (!reach.addresses(host).empty()) continue;
    std::vector<std::string> faults;
    for (const Rejected& rejected : reach.at(host).addresses.rejected) {
      faults.push_back(to_text(rejected.candidate) + ", " + rejected.why);
    }
    out += "\n  " + reach.at(host).name + " has no address to try";
    out += faults.empty() ? ": all its interfaces are down" : ": " + join(faults, "; ");
  }
  return out;
}

// The hosts that host `from` tries if there are many: its neighbours in a ring on both sides, and host 0. Host 0 tries
// all.
std::set<int> tried_by(int from, int hosts) {
  std::set<int> out = {0};
  if (from == 0 || hosts <= kAllPairs) {
    for (int to = 1; to < hosts; ++to) out.insert(out.end(), to);
  } else {
    for (int step = 1; step <= kNextInRing; ++step) {
      out.insert((from + step) % hosts);
      out.insert((from + hosts - step) % hosts);
    }
  }
  out.erase(from);
  return out;
}

}  // namespace

std::vector<std::pair<int, int>> pairs_to_probe(int hosts) {
  std::vector<std::pair<int, int>> pairs;
  for (int from = 0; from < hosts; ++from) {
    for (const int to : tried_by(from, hosts)) pairs.emplace_back(from, to);
  }
  return pairs;
}

std::vector<ProbeTarget> probe_targets(int from, const std::vector<ProbedHost>& hosts,
                                       const std::optional<ProbedHost>& head) {
  std::vector<ProbeTarget> targets;
  const auto add = [&targets](int number, const ProbedHost& host) {
    for (std::size_t i = 0; i < host.addresses.candidates.size(); ++i) {
      const std::string& address = host.addresses.candidates[i].address;
      const bool v6 = address.find(':') != std::string::npos;
      targets.push_back({.host = number,
                         .candidate = static_cast<int>(i),
                         .address = (v6 ? "[" + address + "]" : address) + ":" + std::to_string(host.port)});
    }
  };
  if (head) add(kHeadHost, *head);
  for (const int to : tried_by(from, static_cast<int>(hosts.size()))) add(to, hosts[static_cast<std::size_t>(to)]);
  return targets;
}

Result<AddressChoice> choose_addresses(const std::vector<ProbedHost>& hosts, const std::optional<ProbedHost>& head,
                                       const std::vector<std::vector<ProbeResult>>& reports) {
  const ProbedWays reach(hosts, head, reports);
  AddressChoice out;
  std::vector<int> without_address;
  for (int host = 0; host < reach.count(); ++host) {
    auto chosen = choose(reach, host);
    if (reach.triers(host).empty()) {
      chosen =
          ChosenAddress{{"lo", "127.0.0.1"}, reach.at(host).name + ": 127.0.0.1 (lo), because it is the only host"};
    }
    if (!chosen) {
      without_address.push_back(host);
    } else if (host < static_cast<int>(hosts.size())) {
      out.hosts.push_back(*std::move(chosen));
    } else {
      out.head = *std::move(chosen);
    }
  }
  if (without_address.empty()) return out;
  const Diagnosis diagnosis = diagnose(reach, without_address);
  return Status(
      Errc::kUnsupported,
      diagnosis.headline + nothing_to_try(reach, without_address) + failed_pairs(reach, diagnosis.pairs) +
          "\nOpen the firewall between the hosts, set the same MTU on the whole path, or name the network that "
          "they share: --network eth0 or --network 10.0.0.0/8. The hosts of a job must reach each other on "
          "any TCP port, also with large packets");
}

}  // namespace distrun::launcher
