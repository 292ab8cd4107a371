// One group of ranks on Gloo: a full mesh of verified pairs on this host's address. The calls block, on a thread that
// distrun makes for the group.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/gloo/connect.h"
#include "runtime/backend/plugin/plugin_side.h"

namespace distrun::backend::gloo_plugin {

class GlooGroup {
 public:
  static Result<std::unique_ptr<GlooGroup>> create(const distrun_backend_group_spec& spec, plugin::Host host);

  // Runs the operation to its end and completes the token. Call it on the group's thread.
  void start(const distrun_backend_operation& operation, std::uint64_t token);
  // Returns true if the operation has succeeded, within a few milliseconds. Otherwise start() continues it. Any thread.
  bool try_now(const distrun_backend_operation& operation);
  void abort(std::int32_t code, const char* cause);  // any thread

 private:
  GlooGroup(std::vector<int> members, plugin::Host host, Connections connections)
      : members_(std::move(members)), host_(host), connections_(std::move(connections)) {}
  void run(const distrun_backend_operation& operation);
  Status outcome(const distrun_backend_operation& operation);
  Status explain(const std::string& what);

  std::vector<int> members_;  // world ranks
  plugin::Host host_;
  Connections connections_;
  std::exception_ptr failed_;  // the exception of an operation; no operation runs after it
  int next_skipped_ = 1;
  int skipped_ = 0;  // operations that try_now() skips, because the members do not call at the same time
  plugin::AbortGate aborted_;
};

}  // namespace distrun::backend::gloo_plugin
