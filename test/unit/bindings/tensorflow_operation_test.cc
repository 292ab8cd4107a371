// TensorFlow operations when memory runs out, over fakes of TensorFlow and of the C API.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <string>

#include "bindings/bridge/failures.h"
#include "bindings/tensorflow/kernel.h"
#include "bindings/tensorflow/kernel_operation.h"
#include "bindings/tensorflow/tf_api.h"
#include "bindings/tensorflow/warm_memory.h"
#include "test/support/little_memory.h"
#include "test/unit/bindings/fake_core.h"

namespace distrun::tensorflow {

using test::allocations_left;
using test::fake_core;
using test::PlentyOfMemory;

struct TF_Status {
  TF_Code code = 0;
  std::string message;
};
struct TF_Tensor {
  std::array<float, 4> own{};
  void* data = own.data();
  std::size_t bytes = sizeof(float);
  void (*free)(void*, std::size_t, void*) = nullptr;
  void* argument = nullptr;
};
struct TF_OpKernelContext {
  TF_Status status;
  int outputs = 0;
  int done = 0;
};
struct TF_OpKernelConstruction {
  TF_Status status;
};

namespace {

constexpr int kResourcesExhausted = 8;
constexpr const char* kLongName = "a name that needs memory of its own";

TF_Tensor* new_tensor() {
  const PlentyOfMemory plenty;
  return new TF_Tensor;
}

void use_fake_tensorflow() {
  tf.TF_NewStatus = [] {
    const PlentyOfMemory plenty;
    return new TF_Status;
  };
  tf.TF_DeleteStatus = [](TF_Status* status) { delete status; };
  tf.TF_SetStatus = [](TF_Status* status, TF_Code code, const char* message) {
    const PlentyOfMemory plenty;
    *status = {.code = code, .message = message};
  };
  tf.TF_GetCode = [](const TF_Status* status) { return status->code; };
  tf.TF_NumInputs = [](TF_OpKernelContext*) { return 1; };
  tf.TF_GetInput = [](TF_OpKernelContext*, int, TF_Tensor** tensor, TF_Status*) { *tensor = new_tensor(); };
  tf.TF_DeleteTensor = [](TF_Tensor* tensor) {
    if (tensor->free != nullptr) tensor->free(tensor->data, tensor->bytes, tensor->argument);
    delete tensor;
  };
  tf.TF_TensorType = [](const TF_Tensor*) { return 1; };
  tf.TF_NumDims = [](const TF_Tensor*) { return 1; };
  tf.TF_Dim = [](const TF_Tensor*, int) -> std::int64_t { return 1; };
  tf.TF_TensorByteSize = [](const TF_Tensor* tensor) { return tensor->bytes; };
  tf.TF_TensorData = [](const TF_Tensor* tensor) { return tensor->data; };
  tf.TF_NewTensor = [](TF_DataType, const std::int64_t*, int, void* data, std::size_t bytes,
                       void (*free)(void*, std::size_t, void*), void* argument) {
    TF_Tensor* const made = new_tensor();
    made->data = data;
    made->bytes = bytes;
    made->free = free;
    made->argument = argument;
    return made;
  };
  tf.TF_AllocateOutput = [](TF_OpKernelContext* context, int, TF_DataType, const std::int64_t*, int, std::size_t,
                            TF_Status*) {
    ++context->outputs;
    return new_tensor();
  };
  tf.TF_SetOutput = [](TF_OpKernelContext* context, int, const TF_Tensor*, TF_Status*) { ++context->outputs; };
  tf.TF_OpKernelContext_Failure = [](TF_OpKernelContext* context, TF_Status* status) {
    const PlentyOfMemory plenty;
    context->status = *status;
  };
  tf.TF_RunAsyncOpKernelDoneCallback = [](TF_AsyncOpKernelDoneCallback* callback) {
    ++reinterpret_cast<TF_OpKernelContext*>(callback)->done;
  };
}

// One operation, with memory for `allocations` allocations. Returns true if the memory was enough.
bool gathered_with(long allocations, const Kernel& kernel, bool complete_at_once) {
  TF_OpKernelContext context;
  fake_core.complete = complete_at_once;
  const Done done = Done::borrow(reinterpret_cast<TF_AsyncOpKernelDoneCallback*>(&context));
  allocations_left = allocations;
  KernelOperation::start(kernel, &context, done, complete_at_once);
  fake_core.complete = true;
  test::complete_watched();
  allocations_left = -1;
  CHECK(context.done == 1);
  CHECK(fake_core.handles == 0);
  if (context.status.code == 0) {
    CHECK(context.outputs == 2);
    return true;
  }
  auto failure = DISTRUN_INIT(distrun_error);
  CHECK(context.status.code == kResourcesExhausted);
  CHECK(bridge::find_failure(context.status.message, failure));
  CHECK(failure.code == DISTRUN_OUT_OF_MEMORY);
  return false;
}

}  // namespace

TEST_CASE("tensorflow: an operation without memory fails once, wherever memory ends") {
  use_fake_tensorflow();
  test::attach_fake_core();
  Kernel kernel;
  kernel.kind = DISTRUN_ALLGATHER;
  kernel.names = {kLongName};
  for (const bool at_once : {true, false}) {
    REQUIRE(gathered_with(-1, kernel, at_once));
    long enough = 0;
    while (!gathered_with(enough, kernel, at_once)) ++enough;
    CHECK(enough > 5);
  }
  CHECK(bridge::attachment().detach());
}

TEST_CASE("tensorflow: a kernel that there is no memory for is a failure of its making") {
  use_fake_tensorflow();
  tf.TF_OpKernelConstruction_GetAttrSize = [](TF_OpKernelConstruction*, const char*, std::int32_t*, std::int32_t* size,
                                              TF_Status*) { *size = 3; };
  tf.TF_OpKernelConstruction_GetAttrString = [](TF_OpKernelConstruction*, const char*, char* value, std::size_t,
                                                TF_Status*) { std::copy_n("1.0", 3, value); };
  tf.TF_OpKernelConstruction_GetAttrInt64 = [](TF_OpKernelConstruction*, const char*, std::int64_t* value, TF_Status*) {
    *value = 1;
  };
  tf.TF_OpKernelConstruction_Failure = [](TF_OpKernelConstruction* construction, TF_Status* status) {
    const PlentyOfMemory plenty;
    construction->status = *status;
  };
  int failed = 0;
  for (long allocations = 0;; ++allocations) {
    TF_OpKernelConstruction construction;
    allocations_left = allocations;
    Kernel* const kernel = make_kernel(DISTRUN_ALLREDUCE, &construction);
    allocations_left = -1;
    CHECK((kernel == nullptr) == (construction.status.code == kResourcesExhausted));
    if (kernel == nullptr) ++failed;
    delete kernel;
    if (kernel != nullptr) break;
  }
  CHECK(failed > 0);
}

TEST_CASE("tensorflow: a block that there is no memory to keep is let go") {
  WarmMemory memory(WarmMemory::kLeast);
  void* const block = memory.take(WarmMemory::kLeast);
  REQUIRE(block != nullptr);
  allocations_left = 0;
  memory.give_back(block, WarmMemory::kLeast);
  allocations_left = -1;
  CHECK(memory.kept() == 0);
}

}  // namespace distrun::tensorflow
