#include "launcher/plan/assign.h"

#include <algorithm>

#include "launcher/plan/text.h"

namespace distrun::launcher {
namespace {

int total(const std::vector<int>& counts) {
  int sum = 0;
  for (const int count : counts) sum += count;
  return sum;
}

Status too_many(const AssignRequest& request, const std::vector<int>& slots, bool by_max_slots) {
  std::vector<std::vector<std::string>> rows = {{"host", by_max_slots ? "max_slots" : "slots"}};
  std::vector<std::string> more;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const HostSlots& host = request.hosts[i];
    rows.push_back({host.name, by_max_slots ? std::to_string(host.max_slots) : std::to_string(slots[i])});
    more.push_back(
        host.name + ":" +
        std::to_string((request.ranks + static_cast<int>(slots.size()) - 1) / static_cast<int>(slots.size())));
  }
  const int have = total(slots);
  rows.push_back({"total", std::to_string(have)});
  std::string text = counted(static_cast<std::size_t>(request.ranks), "rank") + " do not fit into " +
                     counted(static_cast<std::size_t>(have), "slot") + ":\n" + table(rows);
  if (by_max_slots) {
    text += "Use at most " + std::to_string(have) + " ranks (-np " + std::to_string(have) + "), or raise max_slots.";
  } else {
    text += "Give more slots (-H " + join(more, ",") + "), use fewer ranks (-np " + std::to_string(have) +
            "), or add --oversubscribe to run several ranks on one slot.";
  }
  return {Errc::kSystem, text};
}

// How many ranks each host gets.
Result<std::vector<int>> share_out(const AssignRequest& request, const std::vector<int>& slots, int ranks) {
  std::vector<int> counts(slots.size(), 0);
  int left = ranks;
  for (std::size_t i = 0; i < slots.size() && left > 0; ++i) {
    counts[i] = std::min(slots[i], left);
    left -= counts[i];
  }
  if (left > 0 && !request.oversubscribe) return too_many(request, slots, false);
  while (left > 0) {
    const int before = left;
    for (std::size_t i = 0; i < slots.size() && left > 0; ++i) {
      const int most = request.hosts[i].max_slots;
      if (most > 0 && counts[i] >= most) continue;
      ++counts[i];
      --left;
    }
    if (left == before) return too_many(request, counts, true);
  }
  return counts;
}

void number_ranks(const std::vector<int>& counts, Assignment& out) {
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

bool names_this_machine(const std::string& name, const std::string& user, const std::vector<std::string>& own_names) {
  return user.empty() && std::find(own_names.begin(), own_names.end(), name) != own_names.end();
}

}  // namespace

Result<Assignment> assign(const AssignRequest& given) {
  AssignRequest request = given;
  Assignment out;
  if (request.hosts.empty()) {
    if (request.ranks == 0) {
      return Status(Errc::kInvalidArgument, "how many ranks? Give -np N, or hosts with slots (-H localhost:4)");
    }
    request.hosts.push_back({.name = request.local_name, .slots = request.ranks});
    out.reasons.push_back("no hosts were given: all ranks run on this machine, one slot each");
  }
  std::vector<int> slots;
  for (const HostSlots& host : request.hosts) {
    slots.push_back(host.slots.value_or(request.default_slots));
    if (!host.slots) {
      out.reasons.push_back(host.name + " has " + counted(static_cast<std::size_t>(slots.back()), "slot") + ": " +
                            request.default_slots_reason);
    }
  }
  const int ranks = request.ranks > 0 ? request.ranks : total(slots);
  if (request.ranks == 0) out.reasons.push_back("-np was not given: one rank for each slot");
  auto counts = share_out(request, slots, ranks);
  if (!counts.ok()) return counts.status();
  std::vector<int> used;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if ((*counts)[i] == 0) continue;
    out.hosts.push_back(request.hosts[i].name);
    out.users.push_back(request.hosts[i].user);
    used.push_back((*counts)[i]);
    if ((*counts)[i] > slots[i]) out.oversubscribed = true;
  }
  if (out.oversubscribed) out.reasons.push_back("there are more ranks than slots, as --oversubscribe allows");
  number_ranks(used, out);
  return out;
}

std::vector<std::string> names_of_host(const std::string& name, const std::vector<HostSlots>& hosts) {
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
  if (full.size() == 1) out.push_back(full.front());
  return out;
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

Status refuse_other_machines(const Assignment& assignment, const std::vector<std::string>& own_names) {
  for (std::size_t i = 0; i < assignment.hosts.size(); ++i) {
    if (names_this_machine(assignment.hosts[i], assignment.users[i], own_names)) continue;
    return {Errc::kSystem, "host " + spelt({.name = assignment.hosts[i], .user = assignment.users[i]}) +
                               " is another machine, and this version starts ranks on this machine only; "
                               "use -H localhost:N, or --no-detect inside an allocation"};
  }
  return {};
}

}  // namespace distrun::launcher
