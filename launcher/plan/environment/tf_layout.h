// Layouts of TensorFlow clusters: who is what, who runs a server instead of the user's program, and which layouts
// cannot work. Pure.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

struct TfRole {
  std::string type;  // chief, worker, ps or evaluator
  int index = 0;
  friend bool operator==(const TfRole&, const TfRole&) = default;
};

// Roles in rank order: "chief=1,worker=2,ps=1,evaluator=1". An error also for layouts in which nobody would run the
// program, or has nobody to run it with.
Result<std::vector<TfRole>> parse_tf_roles(std::string_view text, int ranks, TfServers servers = TfServers::kOurs);

bool has_servers(const std::vector<TfRole>& roles);
// Ranks that serve until all of client_ranks() have ended, and are ended then. Both are empty without a ps.
std::set<int> server_ranks(const std::vector<TfRole>& roles, TfServers servers);
std::set<int> client_ranks(const std::vector<TfRole>& roles, TfServers servers);

// The strategies of tf.distribute for several processes that a script names.
struct Strategies {
  bool known = false;             // there is a text to look at
  bool multi_worker = false;      // MultiWorkerMirroredStrategy
  bool parameter_server = false;  // ParameterServerStrategy
  bool by_slurm = false;          // with SlurmClusterResolver in the place of TF_CONFIG
};
Strategies strategies_in(std::string_view script);

// Fails for what TensorFlow would answer with a hang.
Status check_tf_layout(const std::vector<TfRole>& roles, const Strategies& script);

}  // namespace distrun::launcher
