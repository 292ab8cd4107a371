// Detects platforms that start one command on each of several hosts and let the program find the others: Kubeflow,
// Vertex AI, SageMaker, AWS Batch. Pure.
#pragma once

#include <optional>
#include <string>

#include "runtime/base/environment.h"
#include "runtime/base/status.h"

namespace distrun::net {

struct PlatformTasks {
  std::string variable;
  int count = 0;  // greater than 1
};

// Reads the number of tasks from TF_CONFIG (its chief, master and worker tasks), JAX_NUM_PROCESSES, SM_HOSTS or
// AWS_BATCH_JOB_NUM_NODES, if it is greater than 1. Nothing if the count is unknown. Also nothing in a task of
// TF_CONFIG that does not train with others: a ps, an evaluator, or a process without a task in it.
std::optional<PlatformTasks> platform_tasks(const Environment& environment);

// For a process without a launcher's variables. An error if a platform has several tasks: this process would act as
// rank 0 of 1, and so would each of the others.
Status not_one_of_several(const Environment& environment);

}  // namespace distrun::net
