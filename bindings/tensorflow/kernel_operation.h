// One TensorFlow operation in flight: inputs, outputs and handles of all its tensors.
//
// Inputs and outputs are used in place. The references taken here keep their memory, which belongs to TensorFlow or to
// warm_memory.h, until every handle is complete. This also holds if TensorFlow has already got a failure. Gathered
// results are in the runtime's memory, which its handle keeps as long as the tensor lives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/bridge/core.h"
#include "bindings/tensorflow/done.h"
#include "bindings/tensorflow/kernel.h"
#include "bindings/tensorflow/tf_api.h"

namespace distrun::tensorflow {

// Owns a reference to the memory of a tensor.
class TensorRef {
 public:
  TensorRef() = default;
  explicit TensorRef(TF_Tensor* tensor) : tensor_(tensor) {}
  TensorRef(TensorRef&& other) noexcept : tensor_(std::exchange(other.tensor_, nullptr)) {}
  TensorRef& operator=(TensorRef&& other) noexcept {
    std::swap(tensor_, other.tensor_);
    return *this;
  }
  ~TensorRef() { reset(); }
  void reset() {
    if (tensor_ != nullptr) tf.TF_DeleteTensor(std::exchange(tensor_, nullptr));
  }
  [[nodiscard]] TF_Tensor* get() const { return tensor_; }

 private:
  TF_Tensor* tensor_ = nullptr;
};

class KernelOperation final : public bridge::PendingOperation {
 public:
  KernelOperation(const Kernel& kernel, TF_OpKernelContext* context, Done done, bool wait_here)
      : kernel_(kernel), context_(context), done_(done), wait_here_(wait_here) {}

  // Submits the operation. Completes it at once if possible, or waits on the calling thread if that is allowed. Else
  // the watch completes it.
  static void start(const Kernel& kernel, TF_OpKernelContext* context, Done done, bool wait_here) noexcept;
  // Called when every handle is complete. Sets outputs and status, runs TensorFlow's callback, and frees this object.
  void complete() noexcept override;

 private:
  struct Part {
    TensorRef input;
    TensorRef output;
    TF_DataType type = 0;
    std::vector<std::int64_t> shape;
    std::string name;
    distrun_handle* handle = nullptr;
  };

  // Throws only before anything was submitted or reported to TensorFlow.
  static void launch(std::unique_ptr<KernelOperation> operation);
  bool prepare(const bridge::Attachment::Lease& lease);
  bool prepare_part(int index, Part& part, const bridge::Attachment::Lease& lease);
  bool same_size_output(int index, Part& part);
  bool new_output(int index, Part& part, const std::vector<std::int64_t>& shape, std::size_t bytes);
  bool share_output(int index, Part& part, const bridge::Attachment::Lease& lease);
  bool read_splits();
  bool enqueue(const bridge::Attachment::Lease& lease);
  [[nodiscard]] bool all_done() const;
  // Returns false if a Python signal handler raised.
  bool wait();

  void finish() noexcept;
  bool take_outputs();
  bool gathered_output(int index, Part& part, std::vector<std::int32_t>& sizes);
  bool put_integers(int index, const std::vector<std::int32_t>& values, const std::vector<std::int64_t>& shape);

  void fail(std::int32_t code, const char* message, const char* tensor = "");
  void fail_with_last_error();
  static void report(TF_OpKernelContext* context, const distrun_error& error);
  bool refuse_if_failed(const StatusScope& status);

  const Kernel& kernel_;  // owned by TensorFlow, valid until done_ has run
  TF_OpKernelContext* context_;
  Done done_;
  bool wait_here_;
  bool done_ran_ = false;  // done_ has run
  std::vector<Part> parts_;
  std::vector<distrun_handle*> handles_;  // of the parts, in the order of submission
  std::vector<std::int64_t> splits_;
};

}  // namespace distrun::tensorflow
