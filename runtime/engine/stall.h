// The texts that name who keeps the others waiting. Pure.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/readiness.h"

namespace distrun::engine {

// "waiting for rank 2 (node1), which has not submitted allreduce 'b', allreduce 'c' and 3 more, for 12.0 s; ..."
std::string stall_text(const std::vector<const PendingTensor*>& waiting, const std::vector<std::string>& hosts,
                       TimePoint now);

// kTimeout for the tensor that has waited longest, naming the ranks it waits for.
ErrorInfo stall_error(const PendingTensor& tensor, const std::vector<std::string>& hosts, TimePoint now);

// The tensors that their submitters seem to mean by `tensor`: of the same set and user's name, but another operation or
// a group of another length ("allreduce.k" and "allgather.k", "g_1of1" and both of "g_1of2", "g_2of2"), submitted by
// all ranks that miss `tensor` and by none that has it. Names that a counter made say nothing.
std::vector<PendingTensor*> rivals_of(const PendingTensor& tensor, const std::vector<PendingTensor*>& waiting);
// kMismatch that names both.
Status rival_error(const PendingTensor& tensor, const PendingTensor& rival, const std::vector<std::string>& hosts);

// "12.3 s"
std::string seconds_text(Duration duration);

}  // namespace distrun::engine
