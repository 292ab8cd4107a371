// Lets the members of a group agree on the outcome of a set-up step. They exchange their results through the store.
#pragma once

#include <string>

#include "runtime/backend/factory.h"

namespace distrun::backend {

// The outcome of a step for one member, as stored: a u8 that is 1 for success, then the error text.
std::string outcome_of(const Status& status);
// kUnsupported with the text of the member that failed; kProtocol if the bytes are malformed.
Status status_of(const std::string& outcome);

// Collective over the group, once for each `step` of its set-up. Returns ok if every member passed an ok `mine`.
// Otherwise every member gets the same error, which names the first member that failed. Costs two store calls per
// member (the first member collects). The step may have used up the deadline, so the members wait a few seconds longer
// for the answers.
Status agree(const std::string& step, const Status& mine, const GroupSpec& group, net::Store& store,
             TimePoint deadline);

}  // namespace distrun::backend
