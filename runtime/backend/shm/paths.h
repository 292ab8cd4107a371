// The paths through the window. A transfer gets the steps of its path once; each step then moves one chunk after the
// other.
#pragma once

#include "runtime/backend/shm/member.h"
#include "runtime/backend/shm/store_policy.h"
#include "runtime/backend/shm/transfer.h"

namespace distrun::backend::shm {

// Each step moves the next chunk by one stage. If this member has nothing to do in that stage, it moves all chunks.
// False: the step must wait for another member, and nothing has changed.
struct PathSteps {
  using Step = bool (*)(WindowMember& member, StorePolicy& stores, WindowTransfer& transfer);
  Step pack = nullptr;
  Step reduce = nullptr;  // kTwoPhase only
  Step unpack = nullptr;
};

const PathSteps& steps_of(Path path);

}  // namespace distrun::backend::shm
