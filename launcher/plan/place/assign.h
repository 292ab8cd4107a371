// assign(): hosts and slots to ranks. Pure; returns the reasons with the decision.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/options.h"
#include "launcher/plan/hosts/hosts.h"
#include "launcher/plan/place/gpu_pool.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

// Where one rank runs, and what it is called there.
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
  std::vector<std::string> hints;  // to be said in any case
};

struct AssignRequest {
  std::vector<HostSlots> hosts;  // empty: this machine, with as many slots as ranks
  bool named = false;            // by the user, who expects ranks on each
  PlacementOptions placement;
  std::string local_name = "localhost";
  int default_slots = 1;  // of a host that names none, and why:
  std::string default_slots_reason;
  std::string more_slots;  // how to get more of them, a half sentence; empty: with -H
};

// Fills host after host, each up to its slots or --nproc-per-node. More ranks than slots is an error with a table and
// the cure unless `oversubscribe`; then all hosts take one more rank in turn, up to max_slots.
Result<Assignment> assign(const AssignRequest& request);

// How many ranks a host takes that nobody has given a number: one for each of its GPUs (or as many as the
// user wants for each rank), else cores.
struct OwnSlots {
  int count = 1;
  std::string why;
};
OwnSlots own_slots(const Topology& topology, const PlacementOptions& placement);

// Each host that names no slots gets its own, or its `without_gpus`; `found` is by host. Returns the reasons.
std::vector<std::string> fill_slots(std::vector<HostSlots>& hosts, const std::vector<Topology>& found,
                                    const PlacementOptions& placement);

// The same where there are no GPUs, or nobody can be asked: those that have `without_gpus` get these, others stay as
// they are. True if there were any.
bool count_no_gpus(std::vector<HostSlots>& hosts);

// What people and schedulers call a machine whose own name is `name`. A name without a domain is also the one host that
// has it with a domain, as in a nodefile with full names, if `is_here` says so of that one, for another site may have a
// machine of that name; where several have it, none can be told to be this machine.
std::vector<std::string> names_of_host(const std::string& name, const std::vector<HostSlots>& hosts,
                                       const std::function<bool(const std::string&)>& is_here);

// All names of this machine become one host under the first name used: local ranks, GPUs and cores are counted per
// machine.
std::vector<HostSlots> merge_own_names(const std::vector<HostSlots>& hosts, const std::vector<std::string>& own_names);

// A host, as the user named it, and what tells machines apart; empty: nothing does.
struct NamedMachine {
  std::string name;
  std::string identity;
};
// For each machine that has several names a sentence that says so: its ranks would be numbered as those of two hosts.
std::vector<std::string> machines_named_twice(const std::vector<NamedMachine>& hosts);

bool names_this_machine(const std::string& host, const std::string& user, const std::vector<std::string>& own_names);

}  // namespace distrun::launcher
