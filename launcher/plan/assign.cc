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
  for (Place& place : out.places) {
    place.cross_size = 0;
    for (int host = 0; host < static_cast<int>(counts.size()); ++host) {
      if (counts[static_cast<std::size_t>(host)] <= place.local_rank) continue;
      if (host < place.host) ++place.cross_rank;
      ++place.cross_size;
    }
  }
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
    used.push_back((*counts)[i]);
    if ((*counts)[i] > slots[i]) out.oversubscribed = true;
  }
  if (out.oversubscribed) out.reasons.push_back("there are more ranks than slots, as --oversubscribe allows");
  number_ranks(used, out);
  return out;
}

Result<std::vector<HostSlots>> keep_local(const std::vector<HostSlots>& hosts,
                                          const std::vector<std::string>& own_names) {
  std::vector<HostSlots> out;
  for (const HostSlots& host : hosts) {
    const bool local = host.user.empty() && std::find(own_names.begin(), own_names.end(), host.name) != own_names.end();
    if (!local) {
      const std::string name = host.user.empty() ? host.name : host.user + "@" + host.name;
      return Status(Errc::kSystem, "host " + name +
                                       " is another machine, and this version starts ranks on this machine only; "
                                       "use -H localhost:N, or leave -H out");
    }
    if (out.empty()) {
      out.push_back(host);
    } else {
      // Two names of one machine must not become two hosts: local ranks, GPUs and cores are counted per machine.
      out[0].slots = out[0].slots.value_or(1) + host.slots.value_or(1);
      out[0].max_slots = std::max(out[0].max_slots, host.max_slots);
    }
  }
  return out;
}

}  // namespace distrun::launcher
