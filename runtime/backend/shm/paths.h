// The ways through the window. A transfer gets its path's steps once; a stage then moves chunk after chunk by them.
#pragma once

#include "runtime/backend/shm/member.h"
#include "runtime/backend/shm/store_policy.h"
#include "runtime/backend/shm/transfer.h"

namespace distrun::backend::shm {

// Each step moves the next chunk one stage further, or all chunks where this member has nothing to do in that stage.
// False: another member must come first, and nothing has changed.
struct PathSteps {
  using Step = bool (*)(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer);
  Step pack = nullptr;
  Step reduce = nullptr;  // kTwoPhase only
  Step unpack = nullptr;
};

const PathSteps& steps_of(Path path);

}  // namespace distrun::backend::shm
