#include "launcher/plan/place/assign.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

using Counts = std::vector<int>;

std::string number(std::size_t value) { return std::to_string(value); }

std::size_t total(const Counts& counts) {
  std::size_t sum = 0;
  for (const int count : counts) sum += static_cast<std::size_t>(count);
  return sum;
}

// Rows such as "node[01-04]   8 each": neighbouring hosts with the same number share a row. The rows fit on a screen.
std::string table_of(const std::vector<HostSlots>& hosts, const Counts& counts, const std::string& heading) {
  constexpr std::size_t kMostRows = 20;
  std::vector<std::vector<std::string>> rows = {{"host", heading}};
  std::size_t i = 0;
  while (i < hosts.size() && rows.size() <= kMostRows) {
    std::vector<HostSlots> same;
    const int count = counts[i];
    for (; i < hosts.size() && counts[i] == count; ++i) same.push_back({.name = hosts[i].name, .user = hosts[i].user});
    rows.push_back({shortened(as_option(same)), std::to_string(count) + (same.size() > 1 ? " each" : "")});
  }
  if (i < hosts.size()) rows.push_back({"... and " + counted(hosts.size() - i, "host"), ""});
  rows.push_back({"total", number(total(counts))});
  return table(rows);
}

// True if distrun has chosen these slots. The user may then say how many ranks the host gets.
bool replaceable(const HostSlots& host) { return !host.slots || host.counted; }

// "give more slots (-H a:3,b:3)", or the advice that came with the source of the hosts.
std::string more_slots(const AssignRequest& request, std::size_t each) {
  if (!request.more_slots.empty()) {
    const bool all = std::all_of(request.hosts.begin(), request.hosts.end(), replaceable);
    return (all ? "give each host its ranks with --nproc-per-node " + number(each) + ", " : "") + request.more_slots;
  }
  std::vector<HostSlots> hosts = request.hosts;
  for (HostSlots& host : hosts) host.slots = static_cast<int>(each);
  return "give more slots (-H " + shortened(as_option(hosts)) + ")";
}

std::string sentence(std::string text) {
  if (text.front() >= 'a' && text.front() <= 'z') text.front() = static_cast<char>(text.front() - 'a' + 'A');
  return text;
}

Status too_many(const AssignRequest& request, const Counts& slots, std::size_t ranks) {
  const std::size_t have = total(slots);
  return {Errc::kSystem, counted(ranks, "rank") + std::string(verb(ranks, " does", " do")) + " not fit into " +
                             counted(have, "slot") + ":\n" + table_of(request.hosts, slots, "slots") +
                             sentence(more_slots(request, (ranks + slots.size() - 1) / slots.size())) +
                             ", use fewer ranks (-np " + number(have) +
                             "), or add --oversubscribe to run several ranks on one slot."};
}

Status beyond_max_slots(const AssignRequest& request, const Counts& most, std::size_t ranks) {
  return {Errc::kSystem, counted(ranks, "rank") + std::string(verb(ranks, " does", " do")) +
                             " not fit, even with --oversubscribe:\n" + table_of(request.hosts, most, "max_slots") +
                             "Use at most " + counted(total(most), "rank") + " (-np " + number(total(most)) +
                             "), or raise max_slots."};
}

Status too_many_per_host(const AssignRequest& request, const Counts& slots) {
  const auto each = static_cast<std::size_t>(request.placement.ranks_per_host);
  return {Errc::kSystem, counted(each, "rank") + " on each host, as --nproc-per-node asks, " +
                             std::string(verb(each, "does", "do")) + " not fit:\n" +
                             table_of(request.hosts, slots, "slots") + sentence(more_slots(request, each)) +
                             ", use fewer on each host, or add --oversubscribe to run several ranks on one slot."};
}

// How many ranks each host gets.
Result<Counts> share_out(const AssignRequest& request, const Counts& slots, int ranks) {
  Counts counts(slots.size(), 0);
  int left = ranks;
  for (std::size_t i = 0; i < slots.size() && left > 0; ++i) {
    counts[i] = std::min(slots[i], left);
    left -= counts[i];
  }
  if (left > 0 && !request.placement.oversubscribe) return too_many(request, slots, static_cast<std::size_t>(ranks));
  while (left > 0) {
    const int before = left;
    for (std::size_t i = 0; i < slots.size() && left > 0; ++i) {
      const int most = request.hosts[i].max_slots;
      if (most > 0 && counts[i] >= most) continue;
      ++counts[i];
      --left;
    }
    if (left == before) return beyond_max_slots(request, counts, static_cast<std::size_t>(ranks));
  }
  return counts;
}

// Puts the same number of ranks on each host, and uses as many hosts as that takes.
Result<Counts> share_evenly(const AssignRequest& request, const Counts& slots, int ranks) {
  const int each = request.placement.ranks_per_host;
  Counts counts(slots.size(), 0);
  int left = ranks;
  for (std::size_t i = 0; i < slots.size() && left > 0; ++i) {
    const int most = request.hosts[i].max_slots;
    counts[i] = std::min(each, left);
    left -= counts[i];
    const bool fits = counts[i] <= slots[i] || (request.placement.oversubscribe && (most == 0 || counts[i] <= most));
    if (!fits) return too_many_per_host(request, slots);
  }
  if (left == 0) return counts;
  const auto fitting = static_cast<std::size_t>(ranks - left);
  return Status(Errc::kSystem,
                counted(static_cast<std::size_t>(ranks), "rank") + " with " + std::to_string(each) + " on each host " +
                    std::string(verb(static_cast<std::size_t>(ranks), "needs ", "need ")) +
                    counted(static_cast<std::size_t>((ranks + each - 1) / each), "host") + ", and the job has " +
                    number(slots.size()) + ". Name more hosts, or use fewer ranks (-np " + number(fitting) + ").");
}

int at_most(int max_slots, int count) { return max_slots > 0 ? std::min(max_slots, count) : count; }

// A host with replaceable() slots gets those of --nproc-per-node. A host without a slot count gets the default.
Counts slots_of(const AssignRequest& request, std::vector<std::string>& reasons) {
  const bool typed = request.placement.ranks_per_host > 0;
  const int otherwise = typed ? request.placement.ranks_per_host : request.default_slots;
  Counts slots;
  std::vector<HostSlots> without;
  for (const HostSlots& host : request.hosts) {
    const bool open = typed ? replaceable(host) : !host.slots;
    slots.push_back(open ? at_most(host.max_slots, otherwise) : *host.slots);
    if (open && slots.back() == otherwise) without.push_back({.name = host.name, .user = host.user});
  }
  if (!without.empty() && !typed) {
    reasons.push_back(shortened(as_option(without)) + (without.size() == 1 ? " has " : " have ") +
                      counted(static_cast<std::size_t>(otherwise), "slot") + (without.size() == 1 ? ": " : " each: ") +
                      request.default_slots_reason);
  }
  return slots;
}

// Returns an empty text if each host has a rank. Also with --nproc-per-node, which already tells the user how many
// ranks each host has.
std::string without_ranks(const AssignRequest& request, const Counts& slots, const Counts& counts) {
  std::vector<HostSlots> idle;
  std::vector<HostSlots> used;
  std::size_t filled = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const HostSlots host{.name = request.hosts[i].name, .user = request.hosts[i].user};
    if (counts[i] > 0) {
      used.push_back(host);
      filled += static_cast<std::size_t>(slots[i]);
    } else if (slots[i] > 0) {
      idle.push_back(host);
    }
  }
  if (idle.empty() || !request.named || request.placement.ranks_per_host > 0) return "";
  const auto ranks = static_cast<std::size_t>(total(counts));
  if (ranks < slots.size()) return "";  // some host has no rank in any case
  const std::size_t each = (ranks + slots.size() - 1) / slots.size();
  const bool fits = (slots.size() - 1) * each < ranks && std::all_of(slots.begin(), slots.end(), [each](int count) {
                      return static_cast<std::size_t>(count) >= each;
                    });
  return shortened(as_option(idle)) + (idle.size() == 1 ? " gets" : " get") +
         " no rank: ranks fill one host after the other, and " + shortened(as_option(used)) +
         (used.size() == 1 ? " has " : " have ") + counted(filled, "slot") +
         (fits ? ". To spread them, use --nproc-per-node " + std::to_string(each) : "");
}

void number_ranks(const Counts& counts, Assignment& out) {
  int rank = 0;
  for (std::size_t host = 0; host < counts.size(); ++host) {
    for (int local = 0; local < counts[host]; ++local) {
      out.places.push_back(
          {.rank = rank++, .host = static_cast<int>(host), .local_rank = local, .local_size = counts[host]});
    }
  }
  std::vector<int> hosts_with;  // by local rank
  for (Place& place : out.places) {
    const auto local = static_cast<std::size_t>(place.local_rank);
    if (local == hosts_with.size()) hosts_with.push_back(0);
    place.cross_rank = hosts_with[local]++;
  }
  for (Place& place : out.places) place.cross_size = hosts_with[static_cast<std::size_t>(place.local_rank)];
}

}  // namespace

Result<Assignment> assign(const AssignRequest& given) {
  AssignRequest request = given;
  Assignment out;
  if (request.hosts.empty()) {
    const int slots = request.placement.ranks_per_host > 0 ? request.placement.ranks_per_host : request.placement.ranks;
    if (slots == 0) {
      return Status(Errc::kInvalidArgument,
                    "the number of ranks is missing: use -np N, or hosts with slots (-H localhost:4)");
    }
    request.hosts.push_back({.name = request.local_name, .slots = slots});
    out.reasons.push_back("no hosts were given: all ranks run on this machine, one slot each");
  }
  const Counts slots = slots_of(request, out.reasons);
  const bool even = request.placement.ranks_per_host > 0;
  const std::size_t wanted = request.placement.ranks > 0 ? static_cast<std::size_t>(request.placement.ranks)
                             : even ? static_cast<std::size_t>(request.placement.ranks_per_host) * slots.size()
                                    : total(slots);
  if (wanted > static_cast<std::size_t>(kMaxRanks)) {
    return Status(Errc::kSystem,
                  number(wanted) + " ranks are too many: distrun can start at most -np " + std::to_string(kMaxRanks));
  }
  if (request.placement.ranks == 0 && !even) out.reasons.push_back("-np was not given: one rank for each slot");
  if (even)
    out.reasons.push_back(counted(static_cast<std::size_t>(request.placement.ranks_per_host), "rank") +
                          " on each host");
  const int ranks = static_cast<int>(wanted);
  auto counts = even ? share_evenly(request, slots, ranks) : share_out(request, slots, ranks);
  if (!counts.ok()) return counts.status();
  if (std::string hint = without_ranks(request, slots, *counts); !hint.empty()) out.hints.push_back(std::move(hint));
  Counts used;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if ((*counts)[i] == 0) continue;
    out.hosts.push_back(request.hosts[i].name);
    out.users.push_back(request.hosts[i].user);
    out.slots.push_back(slots[i]);
    used.push_back((*counts)[i]);
    if ((*counts)[i] > slots[i]) out.oversubscribed = true;
  }
  if (out.oversubscribed) out.reasons.push_back("there are more ranks than slots, as --oversubscribe allows");
  number_ranks(used, out);
  return out;
}

OwnSlots own_slots(const Topology& topology, const PlacementOptions& placement) {
  const std::vector<PoolEntry> pool = gpu_pool(topology);
  if (pool.empty()) {
    const int cores = usable_cores(topology);
    const bool limited = cores < count_cores(topology.cpus);
    return {.count = cores,
            .why = limited ? "one for each core that its CPU quota allows; it has no GPUs"
                           : "one for each core; it has no GPUs"};
  }
  const std::string what = pool.front().slice ? "MIG slice" : "GPU";
  const int each = placement.gpus_per_rank;
  return {.count = std::max(1, ranks_for(pool, placement)),
          .why = each > 1 ? "one for " + std::to_string(each) + " GPUs" : "one for each " + what};
}

std::vector<std::string> fill_slots(std::vector<HostSlots>& hosts, const std::vector<Topology>& found,
                                    const PlacementOptions& placement) {
  // Equal hosts share a line.
  std::map<std::pair<std::string, int>, std::vector<HostSlots>> alike;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].slots) continue;
    OwnSlots own = own_slots(found[i], placement);
    if (hosts[i].without_gpus > 0 && gpu_pool(found[i]).empty()) {
      own = {.count = hosts[i].without_gpus, .why = "as the allocation says; it has no GPUs"};
    }
    const int most = at_most(hosts[i].max_slots, own.count);
    if (most < own.count) own = {.count = most, .why = "its max_slots"};
    hosts[i].slots = own.count;
    hosts[i].counted = true;
    alike[{own.why, own.count}].push_back({.name = hosts[i].name, .user = hosts[i].user});
  }
  std::vector<std::string> reasons;
  for (const auto& [kind, same] : alike) {
    reasons.push_back(shortened(as_option(same)) + (same.size() == 1 ? " has " : " have ") +
                      counted(static_cast<std::size_t>(kind.second), "slot") + (same.size() == 1 ? ": " : " each: ") +
                      kind.first);
  }
  return reasons;
}

bool count_no_gpus(std::vector<HostSlots>& hosts) {
  bool any = false;
  for (HostSlots& host : hosts) {
    if (host.slots || host.without_gpus == 0) continue;
    host.slots = at_most(host.max_slots, host.without_gpus);
    host.counted = true;
    any = true;
  }
  return any;
}

std::vector<std::string> names_of_host(const std::string& name, const std::vector<HostSlots>& hosts,
                                       const std::function<bool(const std::string&)>& is_here) {
  std::vector<std::string> out = {"localhost", "localhost.localdomain", "ip6-localhost"};
  if (name.empty() || name == out.front()) return out;
  out.push_back(name);
  if (const std::size_t dot = name.find('.'); dot != std::string::npos) {
    out.push_back(name.substr(0, dot));
    return out;
  }
  std::vector<std::string> full;
  for (const HostSlots& host : hosts) {
    if (host.name.starts_with(name + '.')) full.push_back(host.name);
  }
  if (full.size() == 1 && is_here(full.front())) out.push_back(full.front());
  return out;
}

std::vector<std::string> machines_named_twice(const std::vector<NamedMachine>& hosts) {
  std::vector<std::string> out;
  std::set<std::string> seen;
  for (const NamedMachine& first : hosts) {
    if (first.identity.empty() || !seen.insert(first.identity).second) continue;
    std::vector<std::string> names;
    for (const NamedMachine& host : hosts) {
      if (host.identity == first.identity) names.push_back(host.name);
    }
    if (names.size() < 2) continue;
    out.push_back(join(names, ", ") + " are the same machine. Name it once, with all its slots: -H " + names.front() +
                  ":4. Otherwise two ranks would get the same LOCAL_RANK and GPU");
  }
  return out;
}

bool names_this_machine(const std::string& name, const std::string& user, const std::vector<std::string>& own_names) {
  return user.empty() && std::find(own_names.begin(), own_names.end(), name) != own_names.end();
}

std::vector<HostSlots> merge_own_names(const std::vector<HostSlots>& hosts, const std::vector<std::string>& own_names) {
  std::vector<HostSlots> out;
  std::optional<std::size_t> own;
  for (const HostSlots& host : hosts) {
    const bool is_own = names_this_machine(host.name, host.user, own_names);
    if (!is_own || !own) {
      if (is_own) own = out.size();
      out.push_back(host);
      continue;
    }
    HostSlots& first = out[*own];
    if (first.slots || host.slots) first.slots = first.slots.value_or(1) + host.slots.value_or(1);
    first.max_slots = std::max(first.max_slots, host.max_slots);
  }
  return out;
}

}  // namespace distrun::launcher
