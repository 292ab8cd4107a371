// assign() gives ranks to hosts and slots. Pure; returns the reasons with the decision.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/options.h"
#include "launcher/plan/hosts/hosts.h"
#include "launcher/plan/place/gpu_pool.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

// The host of one rank, and the rank's numbers there.
struct Place {
  int rank = 0;
  int host = 0;  // index into Assignment::hosts
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  friend bool operator==(const Place&, const Place&) = default;
};

struct Assignment {
  std::vector<std::string> hosts;  // those that got ranks, in the user's order
  std::vector<std::string> users;  // by host: of user@host, or empty
  std::vector<int> slots;          // by host
  std::vector<Place> places;       // by rank; the ranks of a host are consecutive
  bool oversubscribed = false;
  std::vector<std::string> reasons;
  std::vector<std::string> hints;  // shown to the user in any case
};

struct AssignRequest {
  std::vector<HostSlots> hosts;  // empty: this machine, with as many slots as ranks
  bool named = false;            // the user named the hosts and expects ranks on each
  PlacementOptions placement;
  std::string local_name = "localhost";
  int default_slots = 1;  // for a host without a slot count
  std::string default_slots_reason;
  std::string more_slots;  // half a sentence on how to get more slots; empty: with -H
};

// Fills host after host, each up to its slots or --nproc-per-node. If there are more ranks than slots, returns an error
// with a table and a cure. With `oversubscribe`, all hosts then take one more rank in turn, up to max_slots.
Result<Assignment> assign(const AssignRequest& request);

// How many ranks a host without a slot count takes: one per GPU (or per group of GPUs, with --gpus-per-rank), else one
// per core.
struct OwnSlots {
  int count = 1;
  std::string why;
};
OwnSlots own_slots(const Topology& topology, const PlacementOptions& placement);

// Sets the slots of each host that has no slot count: own_slots(), or `without_gpus` if the host has no GPUs. `found`
// is by host. Returns the reasons.
std::vector<std::string> fill_slots(std::vector<HostSlots>& hosts, const std::vector<Topology>& found,
                                    const PlacementOptions& placement);

// The same without asking the hosts, as if they had no GPUs. Hosts with `without_gpus` get that many slots, the others
// stay as they are. Returns true if there were any.
bool count_no_gpus(std::vector<HostSlots>& hosts);

// The names that users and schedulers give to the machine whose own name is `name`. If that has no domain, a host with
// the same name and a domain may be this machine too, as in a nodefile with full names. `is_here` must confirm it,
// since another site may have a machine of that name. If several hosts match, none of them counts as this machine.
std::vector<std::string> names_of_host(const std::string& name, const std::vector<HostSlots>& hosts,
                                       const std::function<bool(const std::string&)>& is_here);

// Merges all names of this machine into one host, under the first name used. Local ranks, GPUs and cores are counted
// per machine.
std::vector<HostSlots> merge_own_names(const std::vector<HostSlots>& hosts, const std::vector<std::string>& own_names);

// A host as the user named it, and an identity that differs between machines. Empty: unknown.
struct NamedMachine {
  std::string name;
  std::string identity;
};
// One sentence for each machine that the user named twice: its ranks would be numbered as if they were on two hosts.
std::vector<std::string> machines_named_twice(const std::vector<NamedMachine>& hosts);

bool names_this_machine(const std::string& host, const std::string& user, const std::vector<std::string>& own_names);

}  // namespace distrun::launcher
