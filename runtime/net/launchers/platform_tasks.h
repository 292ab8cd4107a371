// Platforms that start one command on each of several hosts and leave it to the program to find the others: Kubeflow,
// Vertex AI, SageMaker, AWS Batch. Pure.
#pragma once

#include <optional>
#include <string>

#include "runtime/base/environment.h"
#include "runtime/base/status.h"

namespace distrun::net {

struct PlatformTasks {
  std::string variable;
  int count = 0;  // above 1
};

// What TF_CONFIG (its chief, master and worker tasks), JAX_NUM_PROCESSES, SM_HOSTS or AWS_BATCH_JOB_NUM_NODES names, if
// that is more than one. Nothing where the count cannot be told, and in a task of TF_CONFIG's that trains with nobody:
// a ps, an evaluator, and who has no task in it.
std::optional<PlatformTasks> platform_tasks(const Environment& environment);

// An error for a process that no launcher has told of others, if a platform does: it would believe that it is rank 0 of
// 1, and so would each of the others.
Status not_one_of_several(const Environment& environment);

}  // namespace distrun::net
