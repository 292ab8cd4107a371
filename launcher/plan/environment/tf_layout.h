// Layouts of TensorFlow clusters: the role of each rank, which ranks run a server instead of the user's program, and
// which layouts cannot work. Pure.
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

// Parses roles in rank order: "chief=1,worker=2,ps=1,evaluator=1". Also fails if no rank would run the program, or if
// the program would have no workers.
Result<std::vector<TfRole>> parse_tf_roles(std::string_view text, int ranks, TfServers servers = TfServers::kOurs);

bool has_servers(const std::vector<TfRole>& roles);
// Ranks that serve until all of client_ranks() have ended; distrun then ends them. Both sets are empty without a ps.
std::set<int> server_ranks(const std::vector<TfRole>& roles, TfServers servers);
std::set<int> client_ranks(const std::vector<TfRole>& roles, TfServers servers);

// What a script uses of tf.distribute, as far as its text tells.
struct Strategies {
  bool known = false;             // the text of the script is known
  bool multi_worker = false;      // MultiWorkerMirroredStrategy
  bool parameter_server = false;  // ParameterServerStrategy
  bool by_slurm = false;          // with SlurmClusterResolver instead of TF_CONFIG
  bool mirrored = false;          // MirroredStrategy, which is for one process
  bool fits = false;              // calls fit() of a Keras that --tf-keras3-mwms may have to repair
  bool sets_tf_config = false;    // assigns TF_CONFIG whatever the launcher says
  bool estimator = false;
  bool estimator_before_init = false;  // the first Estimator is made before the init() of the same function
};
Strategies strategies_in(std::string_view script);

// Returns an error for layouts that would hang in TensorFlow.
Status check_tf_layout(const std::vector<TfRole>& roles, const Strategies& script);

}  // namespace distrun::launcher
