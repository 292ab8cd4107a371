// The functions of TensorFlow's C API that the op library uses. They are declared here and looked up at load time. So
// the library is built without TensorFlow and is not linked with it. One file works with every version that has these
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace distrun::tensorflow {

struct TF_Status;
struct TF_Tensor;
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_AsyncOpKernelDoneCallback;
using TF_DataType = int;
using TF_Code = int;

using CreateFunction = void* (*)(TF_OpKernelConstruction*);
using ComputeFunction = void (*)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);
using DeleteFunction = void (*)(void*);
using ShapeFunction = void (*)(TF_ShapeInferenceContext*, TF_Status*);

// X(result, name, arguments)
#define DISTRUN_TF_FUNCTIONS(X)                                                                                     \
  X(TF_Status*, TF_NewStatus, ())                                                                                   \
  X(void, TF_DeleteStatus, (TF_Status*))                                                                            \
  X(void, TF_SetStatus, (TF_Status*, TF_Code, const char*))                                                         \
  X(TF_Code, TF_GetCode, (const TF_Status*))                                                                        \
  X(const char*, TF_Message, (const TF_Status*))                                                                    \
  X(TF_OpDefinitionBuilder*, TF_NewOpDefinitionBuilder, (const char*))                                              \
  X(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder*, const char*))                                   \
  X(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder*, const char*))                                  \
  X(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder*, const char*))                                    \
  X(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder*, bool))                                     \
  X(void, TF_OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder*, ShapeFunction))                \
  X(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder*, TF_Status*))                                           \
  X(TF_KernelBuilder*, TF_NewAsyncKernelBuilder,                                                                    \
    (const char*, const char*, CreateFunction, ComputeFunction, DeleteFunction))                                    \
  X(void, TF_RunAsyncOpKernelDoneCallback, (TF_AsyncOpKernelDoneCallback*))                                         \
  X(void, TF_RegisterKernelBuilder, (const char*, TF_KernelBuilder*, TF_Status*))                                   \
  X(int, TF_NumInputs, (TF_OpKernelContext*))                                                                       \
  X(void, TF_GetInput, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*))                                         \
  X(TF_Tensor*, TF_AllocateOutput,                                                                                  \
    (TF_OpKernelContext*, int, TF_DataType, const std::int64_t*, int, std::size_t, TF_Status*))                     \
  X(TF_Tensor*, TF_ForwardInputOrAllocateOutput,                                                                    \
    (TF_OpKernelContext*, const int*, int, int, const std::int64_t*, int, int*, TF_Status*))                        \
  X(void, TF_SetOutput, (TF_OpKernelContext*, int, const TF_Tensor*, TF_Status*))                                   \
  X(void, TF_OpKernelContext_Failure, (TF_OpKernelContext*, TF_Status*))                                            \
  X(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction*, TF_Status*))                                  \
  X(void, TF_OpKernelConstruction_GetAttrSize,                                                                      \
    (TF_OpKernelConstruction*, const char*, std::int32_t*, std::int32_t*, TF_Status*))                              \
  X(void, TF_OpKernelConstruction_GetAttrString,                                                                    \
    (TF_OpKernelConstruction*, const char*, char*, std::size_t, TF_Status*))                                        \
  X(void, TF_OpKernelConstruction_GetAttrInt64, (TF_OpKernelConstruction*, const char*, std::int64_t*, TF_Status*)) \
  X(TF_Tensor*, TF_NewTensor,                                                                                       \
    (TF_DataType, const std::int64_t*, int, void*, std::size_t, void (*)(void*, std::size_t, void*), void*))        \
  X(void, TF_DeleteTensor, (TF_Tensor*))                                                                            \
  X(TF_DataType, TF_TensorType, (const TF_Tensor*))                                                                 \
  X(int, TF_NumDims, (const TF_Tensor*))                                                                            \
  X(std::int64_t, TF_Dim, (const TF_Tensor*, int))                                                                  \
  X(std::size_t, TF_TensorByteSize, (const TF_Tensor*))                                                             \
  X(void*, TF_TensorData, (const TF_Tensor*))                                                                       \
  X(std::int64_t, TF_ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext*))                                   \
  X(TF_ShapeHandle*, TF_NewShapeHandle, ())                                                                         \
  X(void, TF_DeleteShapeHandle, (TF_ShapeHandle*))                                                                  \
  X(void, TF_ShapeInferenceContextGetInput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))          \
  X(void, TF_ShapeInferenceContextSetOutput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))         \
  X(void, TF_ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext*, TF_Status*))                         \
  X(TF_ShapeHandle*, TF_ShapeInferenceContextVectorFromSize, (TF_ShapeInferenceContext*, std::size_t))              \
  X(int, TF_ShapeInferenceContextRankKnown, (TF_ShapeInferenceContext*, TF_ShapeHandle*))                           \
  X(std::int64_t, TF_ShapeInferenceContextRank, (TF_ShapeInferenceContext*, TF_ShapeHandle*))                       \
  X(void, TF_ShapeInferenceContextSubshape,                                                                         \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, std::int64_t, std::int64_t, TF_ShapeHandle*, TF_Status*))          \
  X(void, TF_ShapeInferenceContextConcatenateShapes,                                                                \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, TF_ShapeHandle*, TF_ShapeHandle*, TF_Status*))

struct TfApi {
#define X(result, name, arguments) result(*name) arguments = nullptr;
  DISTRUN_TF_FUNCTIONS(X)
#undef X
};

// The functions of the TensorFlow in this process. The library's constructor fills this once, before any use.
extern TfApi tf;

// Fills `tf`. Returns an empty text, or a sentence that lists what is missing.
std::string resolve_tf_api();

// A status that lives as long as the scope.
class StatusScope {
 public:
  StatusScope() : status_(tf.TF_NewStatus()) {}
  ~StatusScope() { tf.TF_DeleteStatus(status_); }
  StatusScope(const StatusScope&) = delete;
  StatusScope& operator=(const StatusScope&) = delete;
  [[nodiscard]] TF_Status* get() const { return status_; }
  [[nodiscard]] bool ok() const { return tf.TF_GetCode(status_) == 0; }
  [[nodiscard]] std::string text() const { return tf.TF_Message(status_); }

 private:
  TF_Status* status_;
};

}  // namespace distrun::tensorflow
