#include "runtime/api/join/membership.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "runtime/api/join/exchange.h"
#include "runtime/base/settings.h"
#include "runtime/net/bytes/wire.h"

namespace distrun::api {
namespace {

constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kMaxSettings = 256;
constexpr std::size_t kMaxNamed = 8;  // number of hosts in one warning
constexpr const char* kInstall =
    "install the same build on all hosts (pip needs --force-reinstall if the version is the same)";

struct MemberFacts {
  std::string version;
  std::string build;
  std::string host;
  // rank 0 sends its settings, which all ranks use; the others send none
  std::vector<std::pair<std::string, std::string>> job_settings;
};

template <class V>
void fields(V& v, net::Ref<V, MemberFacts> facts) {
  v.text(facts.version, kMaxText).text(facts.build, kMaxText).text(facts.host, kMaxText);
  v.list(facts.job_settings, kMaxSettings,
         [](auto& w, auto& setting) { w.text(setting.first, kMaxText).text(setting.second, kMaxText); });
}

MemberFacts introduce(const net::World& world, const Settings& settings, std::string_view build) {
  MemberFacts facts = {
      .version = DISTRUN_VERSION_TEXT, .build = std::string(build), .host = world.host, .job_settings = {}};
  for (const SettingRow& row : setting_rows()) {
    if (world.rank == 0 && row.scope == SettingScope::kJob) {
      facts.job_settings.emplace_back(row.name, value_of(settings, row.name));
    }
  }
  return facts;
}

Status adopt(const MemberFacts& leader, Settings& settings, std::vector<std::string>& warnings) {
  for (const auto& [name, value] : leader.job_settings) {
    if (std::ranges::find(setting_rows(), name, &SettingRow::name) == setting_rows().end()) {
      return {Errc::kProtocol,
              "rank 0 on " + leader.host + " has a setting " + name + ", which this rank does not know: " + kInstall};
    }
    const std::string mine = value_of(settings, name);
    if (mine == value) continue;
    warnings.push_back("give all ranks the same value of " + name + ": rank 0 has " + value + ", this rank has " +
                       mine +
                       ". The value "
                       "of rank 0 is used");
    DISTRUN_RETURN_IF_ERROR(set_by_name(settings, name, value, "rank 0"));
  }
  return {};
}

std::string host_list(const std::vector<std::string>& hosts) {
  std::string names;
  for (std::size_t i = 0; i < std::min(hosts.size(), kMaxNamed); ++i) names += (i == 0 ? "" : ", ") + hosts[i];
  if (hosts.size() > kMaxNamed) names += " and " + std::to_string(hosts.size() - kMaxNamed) + " more";
  return names;
}

// For rank 0. This is a warning and no error: builds of one version mostly work together, and a job may mix them on
// purpose.
std::string other_builds(const std::vector<std::string>& hosts, const std::string& own_host) {
  return "the build of distrun on " + host_list(hosts) + " differs from that of rank 0 on " + own_host + ": " +
         kInstall;
}

}  // namespace

Result<Membership> agree_on_membership(net::Store& store, const net::World& world, Settings& settings,
                                       TimePoint deadline, std::string_view build) {
  Members all_ranks;
  all_ranks.ranks.resize(static_cast<std::size_t>(world.size));
  std::iota(all_ranks.ranks.begin(), all_ranks.ranks.end(), 0);
  all_ranks.index = world.rank;
  all_ranks.time_limit = settings.start_timeout;
  auto blobs =
      exchange(store, all_ranks, "members", net::as_string(net::encoded(introduce(world, settings, build))), deadline);
  if (!blobs.ok()) return blobs.status();

  Membership membership;
  std::vector<std::string> other;
  for (std::size_t rank = 0; rank < blobs->size(); ++rank) {
    auto facts = net::decoded<MemberFacts>(net::as_bytes((*blobs)[rank]), "a rank's introduction");
    if (!facts.ok()) return facts.status().with_context("rank " + std::to_string(rank));
    if (facts->version != DISTRUN_VERSION_TEXT) {
      return Status(Errc::kProtocol, "rank " + std::to_string(rank) + " on " + facts->host + " runs distrun " +
                                         facts->version + ", and rank " + std::to_string(world.rank) + " on " +
                                         world.host + " runs " + DISTRUN_VERSION_TEXT +
                                         ". Install one version on all hosts");
    }
    if (rank == 0) DISTRUN_RETURN_IF_ERROR(adopt(*facts, settings, membership.warnings));
    membership.hosts.push_back(facts->host);
    if (world.rank != 0 || facts->build == build) continue;
    if (std::ranges::find(other, facts->host) == other.end()) other.push_back(facts->host);
  }
  if (!other.empty()) membership.warnings.push_back(other_builds(other, world.host));
  return membership;
}

std::string unshared_hosts(const std::vector<std::string>& hosts, const std::vector<std::string>& reasons) {
  std::vector<std::string> unshared;
  std::string first;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (reasons[rank].empty() || std::ranges::count(hosts, hosts[rank]) == 1) continue;
    if (first.empty()) first = "rank " + std::to_string(rank) + ": " + reasons[rank];
    if (std::ranges::find(unshared, hosts[rank]) == unshared.end()) unshared.push_back(hosts[rank]);
  }
  if (unshared.empty()) return {};
  return "the ranks of " + host_list(unshared) + " cannot share memory on their host. They use sockets, which are " +
         "slower (" + first + ")";
}

}  // namespace distrun::api
