// launcher/plan/environment/tf_layout.h: --tf-roles, and the roles that a script names. The first byte is the number of
// ranks, or 0 for a script.
#include "launcher/plan/environment/tf_layout.h"
#include "test/fuzz/hosts.h"

namespace distrun::fuzz {

int roles(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int ranks = data[0];
  if (ranks == 0) {
    const launcher::Strategies found = launcher::strategies_in(text);
    require(text.size() >= 23 || !(found.multi_worker || found.parameter_server), "a strategy is found by its name");
    return 0;
  }
  const auto parsed = launcher::parse_tf_roles(text, ranks);
  if (!parsed.ok()) {
    require_sane(parsed.status());
    return 0;
  }
  require(static_cast<int>(parsed->size()) == ranks, "each rank has one role");
  std::string written;
  for (const launcher::TfRole& role : *parsed) written += (written.empty() ? "" : ",") + role.type + "=1";
  const auto again = launcher::parse_tf_roles(written, ranks);
  require(again.ok() && *again == *parsed, "roles survive being written and read");
  const auto servers = launcher::server_ranks(*parsed, launcher::TfServers::kOurs);
  const auto clients = launcher::client_ranks(*parsed, launcher::TfServers::kOurs);
  require(servers.empty() || (clients.size() == 1 && !servers.contains(*clients.begin())), "somebody runs the program");
  return 0;
}

std::vector<Bytes> roles_seeds() {
  std::vector<Bytes> seeds;
  for (const auto& [ranks, text] : std::vector<std::pair<int, const char*>>{
           {5, "xchief=1,worker=2,ps=1,evaluator=1"},
           {4, "xchief:1,worker:2,ps"},
           {2, "xworker,worker"},
           {200, "xchief,worker=199"},
           {3, "xworker=2,ps=1"},
           {1, "xboss=1"},
           {0, "xs = tf.distribute.MultiWorkerMirroredStrategy()\n# ParameterServerStrategy"}}) {
    seeds.push_back(bytes_of(text));
    seeds.back()[0] = static_cast<std::byte>(ranks);
  }
  return seeds;
}

}  // namespace distrun::fuzz
