// One outcome for all: the members of a group tell each other through the store whether a step of their set-up worked.
#pragma once

#include <string>

#include "runtime/backend/factory.h"

namespace distrun::backend {

// How a step went for one member, as it travels through the store: a u8 that is 1 where it worked, then why not.
std::string outcome_of(const Status& status);
// kUnsupported with the text of the one who failed; kProtocol where the bytes are no outcome.
Status status_of(const std::string& outcome);

// Collective over the group, once per `step` of a group's set-up: ok when every member came with an ok `mine`;
// otherwise the same error on every member, naming the first one that failed. Costs two store calls per member (the
// first member collects). The step may have used up the deadline: the answers are waited for some seconds longer.
Status agree(const std::string& step, const Status& mine, const GroupSpec& group, net::Store& store,
             TimePoint deadline);

}  // namespace distrun::backend
