// The operations for TensorFlow: definitions, shapes, kernels. The constructor of this library registers them, because
// TensorFlow's load_op_library looks for them at that time.
//
// Each operation exists twice. Both are stateful, so that no optimizer merges, folds or drops one. For the first,
// Python tells TensorFlow's automatic control dependencies that such operations need no order among themselves. The
// second,
// "...Ordered", keeps the order of the program. It is for loops, whose iterations would otherwise overlap.
#include "bindings/tensorflow/ops.h"

#include <string>

#include "bindings/tensorflow/done.h"
#include "bindings/tensorflow/kernel.h"
#include "bindings/tensorflow/kernel_operation.h"
#include "bindings/tensorflow/tf_api.h"

namespace distrun::tensorflow {
namespace {

std::string& report() {
  static auto* const text = new std::string("the library's constructor has not run");
  return *text;
}

struct Definition {
  const char* name;
  const char* inputs;   // each ends with ;
  const char* outputs;  // each ends with ;
  const char* attributes;
  ShapeFunction shape;
};

void add(StatusScope& status, const std::string& specs, TF_OpDefinitionBuilder* builder,
         void (*function)(TF_OpDefinitionBuilder*, const char*)) {
  for (std::size_t start = 0; status.ok() && start < specs.size();) {
    const std::size_t end = specs.find(';', start);
    function(builder, specs.substr(start, end - start).c_str());
    start = end + 1;
  }
}

// --- shapes ---

void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  const auto count = static_cast<int>(tf.TF_ShapeInferenceContextNumInputs(context));
  TF_ShapeHandle* handle = tf.TF_NewShapeHandle();
  for (int i = 0; i < count && tf.TF_GetCode(status) == 0; ++i) {
    tf.TF_ShapeInferenceContextGetInput(context, i, handle, status);
    if (tf.TF_GetCode(status) == 0) tf.TF_ShapeInferenceContextSetOutput(context, i, handle, status);
  }
  tf.TF_DeleteShapeHandle(handle);
}

// The input's shape, but with an unknown dimension 0.
void other_rows(TF_ShapeInferenceContext* context, int index, TF_Status* status) {
  TF_ShapeHandle* input = tf.TF_NewShapeHandle();
  TF_ShapeHandle* rest = tf.TF_NewShapeHandle();
  TF_ShapeHandle* output = tf.TF_NewShapeHandle();
  tf.TF_ShapeInferenceContextGetInput(context, index, input, status);
  const bool known = tf.TF_GetCode(status) == 0 && tf.TF_ShapeInferenceContextRankKnown(context, input) != 0 &&
                     tf.TF_ShapeInferenceContextRank(context, input) > 0;
  if (known) {
    TF_ShapeHandle* rows = tf.TF_ShapeInferenceContextVectorFromSize(context, static_cast<std::size_t>(-1));
    const std::int64_t rank = tf.TF_ShapeInferenceContextRank(context, input);
    tf.TF_ShapeInferenceContextSubshape(context, input, 1, rank, rest, status);
    if (tf.TF_GetCode(status) == 0) {
      tf.TF_ShapeInferenceContextConcatenateShapes(context, rows, rest, output, status);
    }
    if (tf.TF_GetCode(status) == 0) tf.TF_ShapeInferenceContextSetOutput(context, index, output, status);
    tf.TF_DeleteShapeHandle(rows);
  }
  tf.TF_DeleteShapeHandle(input);
  tf.TF_DeleteShapeHandle(rest);
  tf.TF_DeleteShapeHandle(output);
}

void rows_for_each(TF_ShapeInferenceContext* context, TF_Status* status) {
  const auto count = static_cast<int>(tf.TF_ShapeInferenceContextNumInputs(context));
  tf.TF_ShapeInferenceContextSetUnknownShape(context, status);
  for (int i = 0; i < count && tf.TF_GetCode(status) == 0; ++i) other_rows(context, i, status);
}

void rows_for_first(TF_ShapeInferenceContext* context, TF_Status* status) {
  tf.TF_ShapeInferenceContextSetUnknownShape(context, status);
  if (tf.TF_GetCode(status) == 0) other_rows(context, 0, status);
}

void unknown_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  tf.TF_ShapeInferenceContextSetUnknownShape(context, status);
}

// --- kernels ---

template <distrun_kind kKind>
void* create(TF_OpKernelConstruction* construction) noexcept {
  return make_kernel(kKind, construction);
}

void compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) noexcept {
  static const bool kept = Done::can_be_kept(done);
  const auto& described = *static_cast<const Kernel*>(kernel);
  KernelOperation::start(described, context, kept ? Done::take(done) : Done::borrow(done), described.eager || !kept);
}

void destroy(void* kernel) { delete static_cast<Kernel*>(kernel); }

// Any type: TensorFlow cannot parse a list with the names of 8-bit floats. prepare_part() refuses other types.
#define DISTRUN_TF_COMMON "tensor_name: string = '';process_set: int = 0;eager: int = 1;grouped: int = 0;"
#define DISTRUN_TF_REDUCE "reduce: int = 0;prescale: string = '1';postscale: string = '1';"
#define DISTRUN_TF_LIST "T: list(type) >= 1;"

constexpr Definition kAllreduce = {"DistrunAllreduce", "tensors: T;", "outputs: T;",
                                   DISTRUN_TF_LIST DISTRUN_TF_COMMON DISTRUN_TF_REDUCE, same_shapes};
constexpr Definition kAllgather = {"DistrunAllgather", "tensors: T;", "outputs: T;sizes: int32;",
                                   DISTRUN_TF_LIST DISTRUN_TF_COMMON, rows_for_each};
constexpr Definition kBroadcast = {"DistrunBroadcast", "tensors: T;", "outputs: T;",
                                   DISTRUN_TF_LIST DISTRUN_TF_COMMON "root: int = 0;", same_shapes};
constexpr Definition kAlltoall = {"DistrunAlltoall", "tensor: T;splits: int64;", "output: T;received: int32;",
                                  "T: type;" DISTRUN_TF_COMMON, rows_for_first};
constexpr Definition kReducescatter = {"DistrunReducescatter", "tensors: T;", "outputs: T;",
                                       DISTRUN_TF_LIST DISTRUN_TF_COMMON DISTRUN_TF_REDUCE, rows_for_each};
constexpr Definition kJoin = {"DistrunJoin", "", "last: int32;", DISTRUN_TF_COMMON, unknown_shapes};
constexpr Definition kBarrier = {"DistrunBarrier", "", "", DISTRUN_TF_COMMON, unknown_shapes};

std::string register_one(const Definition& definition, const std::string& name, CreateFunction make) {
  StatusScope status;
  TF_OpDefinitionBuilder* builder = tf.TF_NewOpDefinitionBuilder(name.c_str());
  add(status, definition.inputs, builder, tf.TF_OpDefinitionBuilderAddInput);
  add(status, definition.outputs, builder, tf.TF_OpDefinitionBuilderAddOutput);
  add(status, definition.attributes, builder, tf.TF_OpDefinitionBuilderAddAttr);
  tf.TF_OpDefinitionBuilderSetIsStateful(builder, true);
  tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, definition.shape);
  tf.TF_RegisterOpDefinition(builder, status.get());
  if (!status.ok()) return name + ": " + status.text() + ". ";
  TF_KernelBuilder* kernel = tf.TF_NewAsyncKernelBuilder(name.c_str(), "CPU", make, compute, destroy);
  tf.TF_RegisterKernelBuilder(name.c_str(), kernel, status.get());
  return status.ok() ? "" : name + ": " + status.text() + ". ";
}

template <distrun_kind kKind>
std::string register_twice(const Definition& definition) {
  return register_one(definition, definition.name, create<kKind>) +
         register_one(definition, std::string(definition.name) + "Ordered", create<kKind>);
}

__attribute__((constructor)) void register_all() {
  report() = resolve_tf_api();
  if (!report().empty()) return;
  report() = register_twice<DISTRUN_ALLREDUCE>(kAllreduce) + register_twice<DISTRUN_ALLGATHER>(kAllgather) +
             register_twice<DISTRUN_BROADCAST>(kBroadcast) + register_twice<DISTRUN_ALLTOALL>(kAlltoall) +
             register_twice<DISTRUN_REDUCESCATTER>(kReducescatter) +
             register_one(kJoin, kJoin.name, create<DISTRUN_JOIN>) +
             register_one(kBarrier, kBarrier.name, create<DISTRUN_BARRIER>);
}

}  // namespace

const std::string& registration_report() { return report(); }

}  // namespace distrun::tensorflow
