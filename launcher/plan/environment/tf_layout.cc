#include "launcher/plan/environment/tf_layout.h"

#include <algorithm>
#include <array>
#include <initializer_list>
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
    return {Errc::kInvalidArgument, "--tf-own-servers needs a ps in --tf-roles. Leave it out, or add ps=1 or more"};
  }
  if (!client_ranks(roles, TfServers::kOwn).empty()) return {};
  return {Errc::kInvalidArgument,
          "add worker=1 or more to --tf-roles: it has a ps, but no chief and no worker to train"};
}

Status check_servers(const std::vector<TfRole>& roles) {
  if (!has_servers(roles)) return {};
  if (count_of(roles, "chief") == 0) {
    return {Errc::kInvalidArgument,
            "add chief=1 to --tf-roles: ranks of ps and worker run a TensorFlow server, and only the chief runs your "
            "program. If your program runs in every role and its workers train, add --tf-own-servers"};
  }
  if (count_of(roles, "worker") == 0) {
    return {Errc::kInvalidArgument,
            "add worker=1 or more to --tf-roles: ParameterServerStrategy needs workers that compute"};
  }
  return {};
}

bool names_any(std::string_view text, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(),
                     [text](std::string_view name) { return text.find(name) != text.npos; });
}

// os.environ["TF_CONFIG"] = ...
bool assigns_tf_config(std::string_view line) {
  for (const std::string_view variable : {"environ[\"TF_CONFIG\"]", "environ['TF_CONFIG']"}) {
    const std::size_t at = line.find(variable);
    if (at == line.npos) continue;
    const std::string_view rest = trim(line.substr(at + variable.size()));
    if (rest.starts_with('=') && !rest.starts_with("==")) return true;
  }
  return false;
}

// tf.estimator.Estimator(...), .DNNClassifier(...) and so on. RunConfig() reads TF_CONFIG too.
bool makes_estimator(std::string_view line) {
  constexpr std::string_view kModule = "estimator.";
  if (names_any(line, {"model_to_estimator("})) return true;
  const std::size_t at = line.find(kModule);
  if (at == line.npos) return false;
  const std::string_view call = line.substr(at + kModule.size());
  const std::string_view name = call.substr(0, call.find_first_of("(. ,)["));
  const bool is_class = !name.empty() && name.front() >= 'A' && name.front() <= 'Z';
  return is_class && call.substr(name.size()).starts_with('(') && !name.ends_with("Spec");
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
      return role_error(
          text, start,
          in_quotes(type) +
              " is not a TensorFlow role. Write chief, worker, ps or evaluator, each with a number, as in "
              "chief=1,worker=2,ps=1");
    }
    const auto count = sign == item.size() ? 1 : parse_number(item.substr(sign + 1), 1, kMaxRanks);
    if (!count) return role_error(text, start + sign + 1, "expected a number of tasks, 1 or more");
    if (type == "chief" && (*count > 1 || next[type] > 0))
      return role_error(text, start, "there can be only one chief");
    for (int i = 0; i < *count && static_cast<int>(out.size()) <= ranks; ++i) out.push_back({type, next[type]++});
    start = comma + 1;
  }
  if (static_cast<int>(out.size()) != ranks) {
    return Status(Errc::kInvalidArgument, "--tf-roles " + in_quotes(text) + " must give each of the " +
                                              counted(static_cast<std::size_t>(ranks), "rank") +
                                              " one role. Make the sum of its numbers equal to -np");
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
  const bool own_keras = names_any(script, {"tf_keras", "TF_USE_LEGACY_KERAS", "patch_keras_mwms"});
  const bool by_rank = names_any(script, {"\"RANK\"", "'RANK'", "TF_CONFIG\" not in", "TF_CONFIG' not in"});
  bool initialized = false;
  bool made_estimator = false;
  while (!script.empty()) {
    const std::size_t end = std::min(script.find('\n'), script.size());
    std::string_view line = script.substr(0, end);
    script.remove_prefix(std::min(end + 1, script.size()));
    line = line.substr(0, line.find('#'));
    out.multi_worker = out.multi_worker || names_any(line, {"MultiWorkerMirroredStrategy"});
    out.parameter_server = out.parameter_server || names_any(line, {"ParameterServerStrategy"});
    out.by_slurm = out.by_slurm || names_any(line, {"SlurmClusterResolver(", "SlurmClusterResolver)"});  // a base class
    out.mirrored = out.mirrored || names_any(line, {".MirroredStrategy(", " MirroredStrategy(", "=MirroredStrategy("});
    out.fits = out.fits || (!own_keras && names_any(line, {".fit("}));
    out.sets_tf_config = out.sets_tf_config || (!by_rank && assigns_tf_config(line));
    if (trim(line).starts_with("def ")) made_estimator = false;
    made_estimator = made_estimator || (!initialized && makes_estimator(line));
    initialized = initialized || names_any(line, {".init("});
    out.estimator = out.estimator || makes_estimator(line);
    out.estimator_before_init = out.estimator_before_init || (made_estimator && initialized);
    made_estimator = made_estimator && !initialized;
  }
  return out;
}

Status check_tf_layout(const std::vector<TfRole>& roles, const Strategies& script) {
  // A script that names both strategies may choose by the cluster that it finds.
  if (!has_servers(roles) || !script.multi_worker || script.parameter_server) return {};
  return {
      Errc::kInvalidArgument,
      "leave out ps in --tf-roles, or use ParameterServerStrategy: the script uses MultiWorkerMirroredStrategy, whose "
      "workers would wait for the ps for ever"};
}

}  // namespace distrun::launcher
