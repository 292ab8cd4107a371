// The C API: enqueue, wait, results.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "distrun/distrun.h"
#include "runtime/api/c/error.h"
#include "runtime/api/c/handles.h"
#include "runtime/base/system/fork_guard.h"
#include "runtime/base/types.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/protocol/tensor_key.h"

using distrun::Errc;
using distrun::OpOutput;
using distrun::Status;
using distrun::api::check_struct;
using distrun::api::collect;
using distrun::api::deadline_of;
using distrun::api::guarded;
using distrun::engine::HandlePtr;
using distrun::engine::Submission;

namespace {

// The numbers in the public header equal those of the runtime.
#define DISTRUN_DTYPE(id, number, c_name, ...) static_assert(DISTRUN_##c_name == number);
#include "runtime/base/dtypes.def"
#undef DISTRUN_DTYPE
#define DISTRUN_OPERATION(id, number, c_name, ...) static_assert(DISTRUN_##c_name == number);
#include "runtime/base/operations.def"
#undef DISTRUN_OPERATION

const distrun::OpTraits& traits_of(const distrun_op& op) {
  return distrun::traits_of(static_cast<distrun::OpKind>(op.kind));
}

// Size of version 1 of the struct: all fields up to `stream`.
constexpr std::uint32_t kOpV1 = offsetof(distrun_op, splits);
constexpr std::uint32_t kMaxDims = 64;
constexpr std::uint64_t kMaxCount = 1 << 20;  // of one call; a larger number is an error of the caller

Status refuse(const distrun_op& op, const std::string& text) {
  const std::string name = op.name == nullptr ? "" : op.name;
  return Status(
      distrun::ErrorInfo{.code = Errc::kInvalidArgument, .message = "tensor '" + name + "': " + text, .tensor = name});
}

Status check_shape(const distrun_op& op) {
  if (op.ndim > kMaxDims) {
    return refuse(op, "it has " + std::to_string(op.ndim) + " dimensions, and at most " + std::to_string(kMaxDims) +
                          " are allowed");
  }
  if (op.ndim > 0 && op.shape == nullptr) return refuse(op, "shape is NULL");
  std::int64_t bytes = static_cast<std::int64_t>(distrun::size_of(static_cast<distrun::DType>(op.dtype)));
  bool empty = false;
  for (std::uint32_t i = 0; i < op.ndim; ++i) {
    if (op.shape[i] < 0) return refuse(op, "dimension " + std::to_string(i) + " is negative");
    if (op.shape[i] == 0) {
      empty = true;
    } else if (bytes > std::numeric_limits<std::int64_t>::max() / op.shape[i]) {
      return refuse(op, "its shape is too large for the memory of a process");
    } else {
      bytes *= op.shape[i];
    }
  }
  const OpOutput output = traits_of(op).output;
  const bool moves_data = output != OpOutput::kNone && !empty;
  if (moves_data && op.input == nullptr) return refuse(op, "input is NULL");
  if (moves_data && output == OpOutput::kAsInput && op.output == nullptr) return refuse(op, "output is NULL");
  return {};
}

// In all functions below, `size` is the first operation's struct_size. It is the stride, so it holds for all
// operations.
bool has_splits(const distrun_op& op, std::uint32_t size) {
  return traits_of(op).has_splits && size >= sizeof(distrun_op) && op.num_splits > 0;
}

Status check_op(const distrun_op& op, std::uint32_t size) {
  const bool named = op.name != nullptr && *op.name != '\0';
  if (!named && op.kind != DISTRUN_JOIN) return refuse(op, "an operation needs a name");
  if (op.kind < 0 || op.kind >= distrun::kNumOpKinds) return refuse(op, "unknown kind " + std::to_string(op.kind));
  if (op.dtype < 0 || op.dtype >= distrun::kNumDTypes) return refuse(op, "unknown dtype " + std::to_string(op.dtype));
  if (op.reduce < 0 || op.reduce >= distrun::kNumReduceOps) {
    return refuse(op, "unknown reduction " + std::to_string(op.reduce));
  }
  if (op.device_type != 0 && op.device_type != 1) {
    return refuse(op, "unknown device type " + std::to_string(op.device_type));
  }
  if (op.device_type == 1 && (op.device_index < 0 || op.device_index > std::numeric_limits<std::int16_t>::max())) {
    return refuse(op, "no device has the number " + std::to_string(op.device_index));
  }
  // Both are 0 if the caller did not set them. A caller that wants a result of 0 can set one of them to 0.
  if (traits_of(op).reduces && op.prescale == 0 && op.postscale == 0) {
    return refuse(op, "prescale and postscale are 0. Set them to 1.0, or the result would be 0");
  }
  if (has_splits(op, size) && op.splits == nullptr) return refuse(op, "splits is NULL, but num_splits is not 0");
  return check_shape(op);
}

Submission to_submission(const distrun_op& op, std::uint32_t size) {
  Submission made;
  made.kind = static_cast<distrun::OpKind>(op.kind);
  made.name = op.kind == DISTRUN_JOIN ? distrun::engine::kJoinName : std::string_view(op.name);
  made.dtype = static_cast<distrun::DType>(op.dtype);
  made.shape.assign(op.shape, op.shape + op.ndim);
  made.device = {.type = static_cast<distrun::DeviceType>(op.device_type),
                 .index = static_cast<std::int16_t>(op.device_index)};
  if (op.kind == DISTRUN_JOIN) {  // ranks may give different ones, so it is not part of the agreement
    if (op.device_type == 1) made.stand_in_gpu = op.device_index;
    made.device = {};
  }
  made.reduce = static_cast<distrun::ReduceOp>(op.reduce);
  made.prescale = op.prescale;
  made.postscale = op.postscale;
  made.root = op.root;
  made.process_set = op.process_set;
  made.group = op.group;
  made.input = op.input;
  made.output = op.output;
  if (has_splits(op, size)) made.splits.assign(op.splits, op.splits + op.num_splits);
  return made;
}

// Makes one mark for consecutive operations on the same stream.
class Marks {
 public:
  explicit Marks(distrun::api::Session& session) : session_(session) {}
  Status put_on(const distrun_op& op, Submission& submission) {
    if (submission.device.type == distrun::DeviceType::kCpu) return {};
    if (last_ == nullptr || submission.device != device_ || op.stream != stream_) {
      auto made = session_.mark(submission.device, op.stream);
      if (!made.ok()) return made.status().with_context("tensor '" + submission.name + "'");
      last_ = *std::move(made);
      device_ = submission.device;
      stream_ = op.stream;
    }
    submission.mark = last_;
    return {};
  }

 private:
  distrun::api::Session& session_;
  std::shared_ptr<void> last_;
  distrun::Device device_;
  void* stream_ = nullptr;
};

const distrun_op& op_at(const distrun_op* ops, std::uint64_t index) {
  const auto* bytes = reinterpret_cast<const std::byte*>(ops) + index * ops->struct_size;
  return *reinterpret_cast<const distrun_op*>(bytes);
}

Status check_count(std::uint64_t count) {
  if (count <= kMaxCount) return {};
  return {Errc::kInvalidArgument,
          "count is " + std::to_string(count) + ", and one call takes at most " + std::to_string(kMaxCount)};
}

Status enqueue(distrun_session* session, const distrun_op* ops, std::uint64_t count, distrun_handle** handles) {
  if (count == 0) return {};
  DISTRUN_RETURN_IF_ERROR(check_struct(ops, "ops"));
  if (handles == nullptr) return {Errc::kInvalidArgument, "handles is NULL"};
  DISTRUN_RETURN_IF_ERROR(check_count(count));
  if (ops->struct_size < kOpV1) {
    return {Errc::kInvalidArgument, "ops[0].struct_size is " + std::to_string(ops->struct_size) +
                                        ". Set it to sizeof(distrun_op) (DISTRUN_INIT)"};
  }
  std::vector<Submission> submissions;
  submissions.reserve(count);
  Marks marks(*session->session);
  for (std::uint64_t i = 0; i < count; ++i) {
    DISTRUN_RETURN_IF_ERROR(check_op(op_at(ops, i), ops->struct_size));
    submissions.push_back(to_submission(op_at(ops, i), ops->struct_size));
    DISTRUN_RETURN_IF_ERROR(marks.put_on(op_at(ops, i), submissions.back()));
  }
  distrun::engine::Engine& engine = session->session->engine();
  // Makes the C handles first, because nothing may fail here once the engine has the operations.
  std::vector<std::unique_ptr<distrun_handle>> made(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    made[i] = std::make_unique<distrun_handle>(distrun_handle{&engine, nullptr, op_at(ops, i).output});
  }
  auto submitted = engine.submit(submissions);
  if (!submitted.ok()) return submitted.status();
  for (std::uint64_t i = 0; i < count; ++i) {
    made[i]->operation = std::move((*submitted)[i]);
    handles[i] = made[i].release();
  }
  return {};
}

// The handles of a caller that are not NULL.
struct GivenHandles {
  std::vector<distrun_handle*> handles{};
  std::vector<std::uint64_t> places{};
  std::vector<HandlePtr> operations{};

  Status take(distrun_handle* const* from, std::uint64_t count) {
    DISTRUN_RETURN_IF_ERROR(check_count(count));
    for (std::uint64_t i = 0; from != nullptr && i < count; ++i) {
      if (from[i] == nullptr) continue;
      handles.push_back(from[i]);
      places.push_back(i);
    }
    if (handles.empty() && count > 0 && from != nullptr) return {Errc::kInvalidArgument, "all handles are NULL"};
    return collect(handles.data(), handles.size(), operations);
  }
  [[nodiscard]] distrun::engine::Engine& engine() const { return *handles.front()->engine; }
};

Status check_done(const distrun_handle* handle) {
  if (handle == nullptr) return {Errc::kInvalidArgument, "the handle is NULL"};
  if (!handle->operation->done()) return {Errc::kInvalidArgument, "the operation has not ended yet. Wait for it first"};
  return {};
}

}  // namespace

namespace distrun::api {

TimePoint deadline_of(double timeout) {
  constexpr double kForever = 1e9;  // seconds; keeps the clock's arithmetic in range
  return timeout < 0 || timeout > kForever ? TimePoint::max() : deadline_after(timeout);
}

Status collect(distrun_handle* const* handles, std::uint64_t count, std::vector<HandlePtr>& out) {
  if (count == 0 || handles == nullptr) return {Errc::kInvalidArgument, "no handles to wait for"};
  DISTRUN_RETURN_IF_ERROR(check_count(count));
  out.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (handles[i] == nullptr) return {Errc::kInvalidArgument, "handle " + std::to_string(i) + " is NULL"};
    if (handles[i]->engine != handles[0]->engine) {
      return {Errc::kInvalidArgument,
              "the handles belong to different sessions. Wait for those of one session at a time"};
    }
    out.push_back(handles[i]->operation);
  }
  return {};
}

}  // namespace distrun::api

extern "C" {

int32_t distrun_enqueue(distrun_session* session, const distrun_op* ops, uint64_t count, distrun_handle** handles) {
  return guarded([&]() -> Status {
    if (session == nullptr) return {Errc::kNotInitialized, "distrun is not initialized. Call init first"};
    return enqueue(session, ops, count, handles);
  });
}

int32_t distrun_wait(distrun_handle* handle, double timeout) {
  return guarded([&]() -> Status {
    if (handle == nullptr) return {Errc::kInvalidArgument, "the handle is NULL"};
    if (!handle->operation->done()) {
      DISTRUN_RETURN_IF_ERROR(handle->engine->wait_all({&handle->operation, 1}, deadline_of(timeout)));
    }
    return handle->operation->status();
  });
}

int32_t distrun_wait_all(distrun_handle* const* handles, uint64_t count, double timeout, uint64_t* failed) {
  if (failed != nullptr) *failed = count;
  return guarded([&]() -> Status {
    if (count == 0) return {};
    GivenHandles given;
    DISTRUN_RETURN_IF_ERROR(given.take(handles, count));
    DISTRUN_RETURN_IF_ERROR(given.engine().wait_all(given.operations, deadline_of(timeout)));
    for (std::size_t i = 0; i < given.operations.size(); ++i) {
      if (given.operations[i]->status().ok()) continue;
      if (failed != nullptr) *failed = given.places[i];
      return given.operations[i]->status();
    }
    return {};
  });
}

int32_t distrun_wait_any(distrun_handle* const* handles, uint64_t count, double timeout, uint64_t* index) {
  if (index != nullptr) *index = count;
  return guarded([&]() -> Status {
    if (index == nullptr) return {Errc::kInvalidArgument, "index is NULL"};
    GivenHandles given;
    DISTRUN_RETURN_IF_ERROR(given.take(handles, count));
    DISTRUN_RETURN_IF_ERROR(given.engine().wait_any(given.operations, deadline_of(timeout)));
    for (std::size_t i = 0; i < given.operations.size(); ++i) {
      if (!given.operations[i]->done()) continue;
      *index = given.places[i];
      return given.operations[i]->status();
    }
    return {Errc::kInternal, "wait_any returned before any operation was done"};
  });
}

int32_t distrun_poll(distrun_handle* handle) {
  return handle != nullptr && (handle->operation->done() || distrun::in_forked_child()) ? 1 : 0;
}

int32_t distrun_get_error(distrun_handle* handle, distrun_error* error) {
  return guarded([&]() -> Status {
    DISTRUN_RETURN_IF_ERROR(check_done(handle));
    DISTRUN_RETURN_IF_ERROR(check_struct(error, "error"));
    distrun::api::fill_error(handle->operation->status(), error);
    return {};
  });
}

int32_t distrun_get_result(distrun_handle* handle, distrun_result* result) {
  return guarded([&]() -> Status {
    DISTRUN_RETURN_IF_ERROR(check_done(handle));
    DISTRUN_RETURN_IF_ERROR(check_struct(result, "result"));
    DISTRUN_RETURN_IF_ERROR(handle->operation->status());
    const distrun::engine::Output& output = handle->operation->output();
    distrun_result filled = {};
    filled.ndim = static_cast<std::uint32_t>(output.shape.size());
    filled.shape = output.shape.data();
    filled.data = output.gathered ? static_cast<const void*>(output.gathered.get()) : handle->output;
    filled.bytes = output.bytes;
    filled.first_dims = output.first_dims.data();
    filled.num_members = static_cast<std::uint32_t>(output.first_dims.size());
    distrun::api::copy_sized(result, filled);
    return {};
  });
}

void distrun_release(distrun_handle* handle) {
  if (distrun::in_forked_child()) return;
  const std::unique_ptr<distrun_handle> owned(handle);
}

}  // extern "C"
