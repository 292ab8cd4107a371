// The sockets of a Gloo context. Gloo has no way to end a call that blocks: closing the context does not, and a
// member's death wakes its neighbours only. Shutting the sockets down does.
#pragma once

#include <gloo/context.h>

#include <vector>

#include "runtime/base/fork_guard.h"
#include "runtime/base/status.h"

namespace distrun::backend::gloo_plugin {

class Sockets {
 public:
  // Finds the socket of every pair among this process's descriptors, by its address, and keeps a duplicate: a number of
  // Gloo's own may belong to somebody else by the time that it is needed.
  static Result<Sockets> of(::gloo::Context& context);

  void shut_down() const;                 // any thread
  [[nodiscard]] int lost_member() const;  // one whose connection has ended, or -1

 private:
  std::vector<GuardedFd> members_;  // [i]: invalid for this member itself
};

}  // namespace distrun::backend::gloo_plugin
