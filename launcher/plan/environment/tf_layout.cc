#include "launcher/plan/environment/tf_layout.h"

#include <algorithm>
#include <array>
#include <map>

#include "launcher/plan/hosts/hosts.h"
#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

constexpr std::array<std::string_view, 4> kTypes = {"chief", "worker", "ps", "evaluator"};

Status role_error(std::string_view text, std::size_t column, const std::string& what) {
  return {Errc::kInvalidArgument, caret_error("--tf-roles", text, {column, what})};
}

int count_of(const std::vector<TfRole>& roles, std::string_view type) {
  return static_cast<int>(
      std::count_if(roles.begin(), roles.end(), [type](const TfRole& role) { return role.type == type; }));
}

std::set<int> ranks_of(const std::vector<TfRole>& roles, const std::set<std::string_view>& types) {
  std::set<int> out;
  for (std::size_t rank = 0; rank < roles.size(); ++rank) {
    if (types.contains(roles[rank].type)) out.insert(static_cast<int>(rank));
  }
  return out;
}

Status check_own_servers(const std::vector<TfRole>& roles) {
  if (!has_servers(roles)) {
    return {Errc::kInvalidArgument, "--tf-own-servers is for --tf-roles with ps; leave it out, or add ps=1 or more"};
  }
  if (!client_ranks(roles, TfServers::kOwn).empty()) return {};
  return {Errc::kInvalidArgument,
          "--tf-roles with ps but without chief and worker: nobody would train; add worker=1 or more"};
}

Status check_servers(const std::vector<TfRole>& roles) {
  if (!has_servers(roles)) return {};
  if (count_of(roles, "chief") == 0) {
    return {
        Errc::kInvalidArgument,
        "--tf-roles with ps but without chief: ps and worker ranks run a TensorFlow server, so nobody would run your "
        "program; add chief=1, or --tf-own-servers if the program runs in every role and its workers train"};
  }
  if (count_of(roles, "worker") == 0) {
    return {
        Errc::kInvalidArgument,
        "--tf-roles with ps but without worker: ParameterServerStrategy has nobody to compute; add worker=1 or more"};
  }
  return {};
}

}  // namespace

Result<std::vector<TfRole>> parse_tf_roles(std::string_view text, int ranks, TfServers servers) {
  std::vector<TfRole> out;
  std::map<std::string, int> next;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    const std::string_view item = text.substr(start, comma - start);
    const std::size_t sign = std::min(item.find_first_of("=:"), item.size());
    const std::string type(item.substr(0, sign));
    if (std::find(kTypes.begin(), kTypes.end(), type) == kTypes.end()) {
      return role_error(text, start,
                        in_quotes(type) +
                            " is no TensorFlow role; write chief, worker, ps or evaluator, each with a number, as in "
                            "chief=1,worker=2,ps=1");
    }
    const auto count = sign == item.size() ? 1 : parse_number(item.substr(sign + 1), 1, kMaxRanks);
    if (!count) return role_error(text, start + sign + 1, "expected a number of tasks from 1 on");
    if (type == "chief" && (*count > 1 || next[type] > 0))
      return role_error(text, start, "there can be one chief only");
    for (int i = 0; i < *count && static_cast<int>(out.size()) <= ranks; ++i) out.push_back({type, next[type]++});
    start = comma + 1;
  }
  if (static_cast<int>(out.size()) != ranks) {
    return Status(Errc::kInvalidArgument, "--tf-roles " + in_quotes(text) + " does not give each of the " +
                                              counted(static_cast<std::size_t>(ranks), "rank") +
                                              " one role; make the numbers add up to -np");
  }
  DISTRUN_RETURN_IF_ERROR(servers == TfServers::kOwn ? check_own_servers(out) : check_servers(out));
  return out;
}

bool has_servers(const std::vector<TfRole>& roles) { return count_of(roles, "ps") > 0; }

std::set<int> server_ranks(const std::vector<TfRole>& roles, TfServers servers) {
  if (!has_servers(roles)) return {};
  return servers == TfServers::kOwn ? ranks_of(roles, {"ps"}) : ranks_of(roles, {"ps", "worker"});
}

std::set<int> client_ranks(const std::vector<TfRole>& roles, TfServers servers) {
  if (!has_servers(roles)) return {};
  return servers == TfServers::kOwn ? ranks_of(roles, {"chief", "worker"}) : ranks_of(roles, {"chief"});
}

Strategies strategies_in(std::string_view script) {
  Strategies out{.known = !script.empty()};
  while (!script.empty()) {
    const std::size_t end = std::min(script.find('\n'), script.size());
    std::string_view line = script.substr(0, end);
    script.remove_prefix(std::min(end + 1, script.size()));
    line = line.substr(0, line.find('#'));
    out.multi_worker = out.multi_worker || line.find("MultiWorkerMirroredStrategy") != std::string_view::npos;
    out.parameter_server = out.parameter_server || line.find("ParameterServerStrategy") != std::string_view::npos;
    for (const char* use : {"SlurmClusterResolver(", "SlurmClusterResolver)"}) {  // a call, and a base class
      out.by_slurm = out.by_slurm || line.find(use) != std::string_view::npos;
    }
  }
  return out;
}

Status check_tf_layout(const std::vector<TfRole>& roles, const Strategies& script) {
  // A script that names both strategies may choose by the cluster that it finds.
  if (!has_servers(roles) || !script.multi_worker || script.parameter_server) return {};
  return {
      Errc::kInvalidArgument,
      "--tf-roles with ps, but the script uses MultiWorkerMirroredStrategy: its workers would wait for ever, because "
      "the ps takes no part; leave out ps, or use ParameterServerStrategy"};
}

}  // namespace distrun::launcher
