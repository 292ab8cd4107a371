// The sockets of a Gloo context. Gloo does not say which member an error is about, and closing a context from another
// thread ends nothing; shutting its sockets down does, here and at the other ends.
#pragma once

#include <gloo/context.h>

#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/system/fork_guard.h"

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
