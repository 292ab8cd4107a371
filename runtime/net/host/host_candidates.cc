#include "runtime/net/host/host_candidates.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>

namespace distrun::net {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof name) == 0 ? name : "";
}

std::string host_hint(int rank) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  struct stat network {};
  // Without /proc there is no hint. To treat the rank as alone on its host is safe.
  if (!(file >> boot_id) || ::stat("/proc/self/ns/net", &network) != 0) return "alone-" + std::to_string(rank);
  return boot_id + "-" + std::to_string(network.st_ino);
}

Result<HostCandidates> find_candidates(const World& world, const std::string& hint, Store* store, TimePoint deadline) {
  if (world.size == 1) return HostCandidates{.ranks = {world.rank}, .prefix = ""};
  const auto entered = store->add("host/entered", 1);
  if (!entered.ok()) return entered.status();
  // No rank enters the next set-up before all have entered this one, so the count gives the number of the set-up.
  const std::string round = "host/" + std::to_string((*entered - 1) / world.size) + "/";
  const std::string group = round + hint + "/";
  const auto position = store->add(group + "count", 1);
  if (!position.ok()) return position.status();
  DISTRUN_RETURN_IF_ERROR(store->set(group + std::to_string(*position), std::to_string(world.rank)));
  const auto registered = store->add(round + "registered", 1);
  if (!registered.ok()) return registered.status();
  if (*registered == world.size) DISTRUN_RETURN_IF_ERROR(store->set(round + "all", "1"));
  if (const auto all = store->get(round + "all", deadline); !all.ok())
    return all.status().with_context("waiting for all ranks to name their host");
  const auto count = store->add(group + "count", 0);
  if (!count.ok()) return count.status();
  HostCandidates found{.ranks = {}, .prefix = group};
  for (std::int64_t i = 1; i <= *count; ++i) {
    const auto text = store->get(group + std::to_string(i), deadline);
    if (!text.ok()) return text.status();
    int rank = -1;
    const auto parsed = std::from_chars(text->data(), text->data() + text->size(), rank);
    if (parsed.ec != std::errc() || rank < 0 || rank >= world.size)
      return Status(Errc::kProtocol, "the store has '" + *text + "' where a rank of this host should be");
    found.ranks.push_back(rank);
  }
  std::sort(found.ranks.begin(), found.ranks.end());
  return found;
}

}  // namespace distrun::net
