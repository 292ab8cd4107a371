#include "bindings/tensorflow/kernel_operation.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include "bindings/bridge/failures.h"
#include "bindings/tensorflow/signals.h"
#include "bindings/tensorflow/warm_memory.h"

namespace distrun::tensorflow {

using bridge::attachment;
using bridge::core;

namespace {

// A signal that arrives just before a wait begins is noticed only when the wait ends.
constexpr double kLookSeconds = 0.5;
// The ranks need this time to answer each other when all of them are there. A longer wait would block a thread of
// TensorFlow.
constexpr double kSoonSeconds = 20e-6;

constexpr TF_DataType kTfInt32 = 3;

// TensorFlow's dtype as distrun's dtype; -1 if distrun does not support it.
std::int32_t dtype_of(TF_DataType type) {
  switch (type) {
#define DISTRUN_DTYPE(id, number, c_name, name, bytes, family, exponent, element, nccl, open_mpi, mpi_abi, tf_name, \
                      tf, xla)                                                                                      \
  case tf:                                                                                                          \
    return DISTRUN_##c_name;
#include "runtime/base/dtypes.def"
#undef DISTRUN_DTYPE
    default:
      return -1;
  }
}

std::string unknown_type(const std::string& name, TF_DataType type) {
  std::string known;
#define DISTRUN_DTYPE(id, number, c_name, name, bytes, family, exponent, element, nccl, open_mpi, mpi_abi, tf_name, \
                      tf_number, xla)                                                                               \
  if (tf_number > 0) known += std::string(known.empty() ? "" : ", ") + #tf_name;
#include "runtime/base/dtypes.def"
#undef DISTRUN_DTYPE
  return "tensor '" + name + "': TensorFlow's type " + std::to_string(type) + " is not supported. Cast it to one of " +
         known;
}

std::vector<std::int64_t> shape_of(const TF_Tensor* tensor) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(tf.TF_NumDims(tensor)));
  for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = tf.TF_Dim(tensor, static_cast<int>(i));
  return shape;
}

// This rank's rows of a reducescatter of `rows` rows. Returns `rows` if the process set is unknown.
std::int64_t share_of(std::int64_t rows, std::int32_t process_set, const bridge::Attachment::Lease& lease) {
  auto world = DISTRUN_INIT(distrun_world);
  std::uint64_t count = 0;
  if (core.distrun_get_world(lease.session(), &world) != DISTRUN_OK) return rows;
  std::vector<std::int32_t> members(static_cast<std::size_t>(world.size));
  if (core.distrun_process_set_ranks(lease.session(), process_set, members.data(), members.size(), &count) != 0) {
    return rows;
  }
  members.resize(count);
  const auto place = std::find(members.begin(), members.end(), world.rank) - members.begin();
  const auto size = static_cast<std::int64_t>(count);
  return rows / size + (place < rows % size ? 1 : 0);
}

std::string too_many_rows(const std::string& tensor, std::int64_t rows, std::uint32_t place) {
  return "tensor '" + tensor + "': " + std::to_string(rows) + " rows came from the rank at place " +
         std::to_string(place) +
         " of the process set, more than the int32 sizes of TensorFlow allow. Use fewer and longer rows.";
}

// Does not use ABORTED and UNAVAILABLE: for MonitoredTrainingSession they mean that a server has restarted, so it
// retries forever.
int tf_code(std::int32_t code) {
  switch (code) {
    case DISTRUN_INVALID_ARGUMENT:
    case DISTRUN_DUPLICATE_NAME:
      return 3;  // INVALID_ARGUMENT
    case DISTRUN_MISMATCH:
    case DISTRUN_NOT_INITIALIZED:
    case DISTRUN_SHUT_DOWN:
      return 9;  // FAILED_PRECONDITION
    case DISTRUN_TIMEOUT:
      return 4;  // DEADLINE_EXCEEDED
    case DISTRUN_UNSUPPORTED:
      return 12;  // UNIMPLEMENTED
    case DISTRUN_OUT_OF_MEMORY:
      return 8;  // RESOURCE_EXHAUSTED
    case DISTRUN_INTERRUPTED:
      return 1;  // CANCELLED
    case DISTRUN_PROTOCOL:
    case DISTRUN_SYSTEM:
    case DISTRUN_INTERNAL:
      return 13;  // INTERNAL
    default:
      return 2;  // UNKNOWN: a rank was lost or left, the job was aborted
  }
}

}  // namespace

void KernelOperation::start(const Kernel& kernel, TF_OpKernelContext* context, Done done, bool wait_here) noexcept {
  try {
    launch(std::make_unique<KernelOperation>(kernel, context, done, wait_here));
  } catch (const std::exception&) {
    report(context, bridge::failure_of_exception());
    done.run();
  }
}

void KernelOperation::launch(std::unique_ptr<KernelOperation> operation) {
  const auto lease = attachment().lease();
  if (!lease) {
    operation->fail(DISTRUN_NOT_INITIALIZED, "distrun is not initialized. Call hvd.init() first");
    return operation->done_.run();
  }
  if (!operation->prepare(*lease) || !operation->enqueue(*lease)) return operation->done_.run();
  const std::vector<distrun_handle*>& handles = operation->handles_;
  if (operation->wait_here_) {
    if (operation->wait()) return operation.release()->complete();
    operation->fail(DISTRUN_INTERRUPTED, "interrupted by a signal. The operation stays in flight");
    operation->done_ran_ = true;
    operation->done_.run();
  } else {
    core.distrun_wait_all(handles.data(), handles.size(), kSoonSeconds, nullptr);
    if (operation->all_done()) return operation.release()->complete();
  }
  lease->watch(handles, operation.release());
}

void KernelOperation::complete() noexcept {
  const std::unique_ptr<KernelOperation> self(this);
  if (!done_ran_) finish();
  for (const Part& part : parts_) core.distrun_release(part.handle);
  parts_.clear();
  if (!done_ran_) done_.run();
}

bool KernelOperation::prepare(const bridge::Attachment::Lease& lease) {
  const int inputs = tf.TF_NumInputs(context_);
  int tensors = operation_of(kernel_.kind).output != Output::kNone ? inputs : 0;
  if (kernel_.kind == DISTRUN_ALLTOALL) {
    tensors = 1;
    if (!read_splits()) return false;
  }
  parts_.resize(static_cast<std::size_t>(std::max(tensors, 1)));
  for (int i = 0; i < tensors; ++i) {
    if (!prepare_part(i, parts_[static_cast<std::size_t>(i)], lease)) return false;
  }
  return true;
}

bool KernelOperation::prepare_part(int index, Part& part, const bridge::Attachment::Lease& lease) {
  const StatusScope status;
  TF_Tensor* input = nullptr;
  tf.TF_GetInput(context_, index, &input, status.get());
  if (refuse_if_failed(status)) return false;
  part.input = TensorRef(input);
  part.type = tf.TF_TensorType(input);
  if (dtype_of(part.type) < 0) {
    const std::string name = kernel_.tensor_names(parts_.size())[static_cast<std::size_t>(index)];
    fail(DISTRUN_INVALID_ARGUMENT, unknown_type(name, part.type).c_str(), name.c_str());
    return false;
  }
  part.shape = shape_of(input);
  const Output output = operation_of(kernel_.kind).output;
  if (output == Output::kAsInput) return same_size_output(index, part);
  if (output == Output::kShare) return share_output(index, part, lease);
  return true;
}

bool KernelOperation::same_size_output(int index, Part& part) {
  const std::size_t bytes = tf.TF_TensorByteSize(part.input.get());
  const bool small = bytes < WarmMemory::kLeast;
  if (kernel_.eager || (!small && kernel_.inputs_stay.load(std::memory_order_relaxed))) {
    return new_output(index, part, part.shape, bytes);
  }
  // Runs in place if no other user needs the input any more. Our own reference would count as a user.
  const StatusScope status;
  int forwarded = -1;
  part.input.reset();
  part.output = TensorRef(tf.TF_ForwardInputOrAllocateOutput(
      context_, &index, 1, index, part.shape.data(), static_cast<int>(part.shape.size()), &forwarded, status.get()));
  if (refuse_if_failed(status)) return false;
  if (forwarded >= 0) return true;
  if (!small) kernel_.inputs_stay.store(true, std::memory_order_relaxed);
  TF_Tensor* input = nullptr;
  tf.TF_GetInput(context_, index, &input, status.get());
  part.input = TensorRef(input);
  return !refuse_if_failed(status);
}

bool KernelOperation::new_output(int index, Part& part, const std::vector<std::int64_t>& shape, std::size_t bytes) {
  const StatusScope status;
  const int dims = static_cast<int>(shape.size());
  void* const memory = bytes < WarmMemory::kLeast ? nullptr : warm_memory().take(bytes);
  if (memory == nullptr) {
    part.output = TensorRef(tf.TF_AllocateOutput(context_, index, part.type, shape.data(), dims, bytes, status.get()));
    return !refuse_if_failed(status);
  }
  const auto give_back = [](void* given, std::size_t size, void*) { warm_memory().give_back(given, size); };
  part.output = TensorRef(tf.TF_NewTensor(part.type, shape.data(), dims, memory, bytes, give_back, nullptr));
  tf.TF_SetOutput(context_, index, part.output.get(), status.get());
  return !refuse_if_failed(status);
}

bool KernelOperation::share_output(int index, Part& part, const bridge::Attachment::Lease& lease) {
  std::vector<std::int64_t> shape = part.shape;
  std::size_t bytes = tf.TF_TensorByteSize(part.input.get());
  if (!shape.empty()) {
    const std::int64_t rows = shape.front();
    shape.front() = share_of(rows, kernel_.process_set, lease);
    if (rows > 0) bytes = bytes / static_cast<std::size_t>(rows) * static_cast<std::size_t>(shape.front());
  }
  return new_output(index, part, shape, bytes);
}

bool KernelOperation::read_splits() {
  const StatusScope status;
  TF_Tensor* tensor = nullptr;
  tf.TF_GetInput(context_, 1, &tensor, status.get());
  if (refuse_if_failed(status)) return false;
  const TensorRef splits(tensor);
  const std::size_t count = tf.TF_TensorByteSize(tensor) / sizeof(std::int64_t);
  const auto* const values = static_cast<const std::int64_t*>(tf.TF_TensorData(tensor));
  splits_.assign(values, values + count);
  return true;
}

bool KernelOperation::enqueue(const bridge::Attachment::Lease& lease) {
  std::vector<std::string> names = kernel_.tensor_names(parts_.size());
  std::vector<distrun_op> ops(parts_.size(), DISTRUN_INIT(distrun_op));
  handles_.resize(parts_.size());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    part.name = std::move(names[i]);
    distrun_op& op = ops[i];
    op.kind = kernel_.kind;
    op.name = part.name.c_str();
    op.dtype = operation_of(kernel_.kind).output != Output::kNone ? dtype_of(part.type) : 0;
    op.reduce = kernel_.reduce;
    op.shape = part.shape.data();
    op.ndim = static_cast<std::uint32_t>(part.shape.size());
    op.root = kernel_.root;
    op.output = part.output.get() == nullptr ? nullptr : tf.TF_TensorData(part.output.get());
    op.input = part.input.get() == nullptr ? op.output : tf.TF_TensorData(part.input.get());
    op.prescale = kernel_.prescale;
    op.postscale = kernel_.postscale;
    op.process_set = kernel_.process_set;
    op.group = kernel_.grouped ? 0 : -1;
    op.splits = splits_.data();
    op.num_splits = static_cast<std::uint32_t>(splits_.size());
  }
  if (core.distrun_enqueue(lease.session(), ops.data(), ops.size(), handles_.data()) != DISTRUN_OK) {
    fail_with_last_error();
    return false;
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].handle = handles_[i];
  return true;
}

bool KernelOperation::all_done() const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return core.distrun_poll(part.handle) != 0; });
}

bool KernelOperation::wait() {
  for (;;) {
    core.distrun_wait_all(handles_.data(), handles_.size(), kLookSeconds, nullptr);
    if (all_done()) return true;
    if (handler_raised()) return false;
  }
}

void KernelOperation::finish() noexcept {
  for (const Part& part : parts_) {
    auto error = DISTRUN_INIT(distrun_error);
    core.distrun_get_error(part.handle, &error);
    if (error.code != DISTRUN_OK) return report(context_, error);
  }
  try {
    take_outputs();
  } catch (const std::exception&) {
    report(context_, bridge::failure_of_exception());
  }
}

bool KernelOperation::take_outputs() {
  const Output output = operation_of(kernel_.kind).output;
  if (kernel_.kind == DISTRUN_BARRIER || output == Output::kAsInput || output == Output::kShare) return true;
  std::vector<std::int32_t> sizes;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (!gathered_output(static_cast<int>(i), parts_[i], sizes)) return false;
  }
  const auto tensors = static_cast<std::int64_t>(parts_.size());
  if (kernel_.kind == DISTRUN_JOIN) {
    attachment().forget_numbers(kernel_.process_set);
    return put_integers(0, sizes, {});
  }
  if (kernel_.kind == DISTRUN_ALLTOALL) return put_integers(1, sizes, {static_cast<std::int64_t>(sizes.size())});
  return put_integers(static_cast<int>(tensors), sizes, {tensors, static_cast<std::int64_t>(sizes.size()) / tensors});
}

// Turns the runtime's result into TensorFlow's output without a copy, and appends its rows per member to `sizes`.
bool KernelOperation::gathered_output(int index, Part& part, std::vector<std::int32_t>& sizes) {
  auto result = DISTRUN_INIT(distrun_result);
  core.distrun_get_result(part.handle, &result);
  for (std::uint32_t i = 0; i < result.num_members; ++i) {
    const std::int64_t rows = result.first_dims[i];
    if (rows > std::numeric_limits<std::int32_t>::max()) {
      fail(DISTRUN_INVALID_ARGUMENT, too_many_rows(part.name, rows, i).c_str(), part.name.c_str());
      return false;
    }
    sizes.push_back(static_cast<std::int32_t>(rows));
  }
  if (kernel_.kind == DISTRUN_JOIN) return true;
  const StatusScope status;
  const auto release = [](void*, std::size_t, void* handle) {
    core.distrun_release(static_cast<distrun_handle*>(handle));
  };
  // The handle keeps the memory. The last reference to the tensor releases it.
  part.output = TensorRef(tf.TF_NewTensor(part.type, result.shape, static_cast<int>(result.ndim),
                                          const_cast<void*>(result.data), result.bytes, release, part.handle));
  part.handle = nullptr;
  tf.TF_SetOutput(context_, index, part.output.get(), status.get());
  return !refuse_if_failed(status);
}

bool KernelOperation::put_integers(int index, const std::vector<std::int32_t>& values,
                                   const std::vector<std::int64_t>& shape) {
  const StatusScope status;
  const std::size_t bytes = values.size() * sizeof(std::int32_t);
  const TensorRef output(tf.TF_AllocateOutput(context_, index, kTfInt32, shape.data(), static_cast<int>(shape.size()),
                                              bytes, status.get()));
  if (refuse_if_failed(status)) return false;
  if (bytes > 0) std::memcpy(tf.TF_TensorData(output.get()), values.data(), bytes);
  return true;
}

void KernelOperation::fail(std::int32_t code, const char* message, const char* tensor) {
  auto error = DISTRUN_INIT(distrun_error);
  error.code = code;
  error.message = message;
  error.tensor = tensor;
  error.host = error.cause = "";
  error.usable = 1;
  report(context_, error);
}

void KernelOperation::fail_with_last_error() {
  auto error = DISTRUN_INIT(distrun_error);
  core.distrun_last_error(&error);
  report(context_, error);
}

void KernelOperation::report(TF_OpKernelContext* context, const distrun_error& error) {
  bridge::remember_failure(error);
  const StatusScope status;
  tf.TF_SetStatus(status.get(), tf_code(error.code), error.message);
  tf.TF_OpKernelContext_Failure(context, status.get());
}

bool KernelOperation::refuse_if_failed(const StatusScope& status) {
  if (status.ok()) return false;
  tf.TF_OpKernelContext_Failure(context_, status.get());
  return true;
}

}  // namespace distrun::tensorflow
