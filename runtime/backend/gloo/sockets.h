// The sockets of a Gloo context. Gloo does not say which member an error concerns. Closing a context from another
// thread ends no call. Shutting down its sockets does, on this member and on its peers.
#pragma once

#include <gloo/context.h>

#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/system/fork_guard.h"

namespace distrun::backend::gloo_plugin {

class Sockets {
 public:
  // Finds the socket of every pair among this process's descriptors, by its address, and keeps a duplicate. Gloo's own
  // descriptor number may belong to something else when it is needed.
  static Result<Sockets> of(::gloo::Context& context);

  void shut_down() const;                 // any thread
  [[nodiscard]] int lost_member() const;  // a member whose connection has ended, or -1

 private:
  std::vector<GuardedFd> members_;  // by member; invalid for this member itself
};

}  // namespace distrun::backend::gloo_plugin
