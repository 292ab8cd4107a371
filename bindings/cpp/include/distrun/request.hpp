// What is asked for: one operation on one tensor, for Session::submit(). A value; it owns no tensor's memory.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "distrun/distrun.h"
#include "distrun/error.hpp"

namespace distrun {

// 16 bits of a tensor as they lie in memory: IEEE binary16, and the upper half of a float. For arithmetic use the type
// of a library of yours, which ElementType may name too. Sums of both are accumulated in float.
struct Float16 {
  std::uint16_t bits = 0;
};
struct BFloat16 {
  std::uint16_t bits = 0;
};

namespace detail {

template <class T>
constexpr distrun_dtype dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DISTRUN_FLOAT32;
  else if constexpr (std::is_same_v<T, double>)
    return DISTRUN_FLOAT64;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return DISTRUN_UINT8;
  else if constexpr (std::is_same_v<T, std::int8_t>)
    return DISTRUN_INT8;
  else if constexpr (std::is_same_v<T, std::int16_t>)
    return DISTRUN_INT16;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DISTRUN_INT32;
  else if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, long long>)  // on Linux the first is long
    return DISTRUN_INT64;
  else if constexpr (std::is_same_v<T, Float16>)
    return DISTRUN_FLOAT16;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return DISTRUN_BFLOAT16;
  else if constexpr (std::is_same_v<T, bool>)
    return DISTRUN_BOOL;
  else
    static_assert(sizeof(T) == 0, "distrun has no such element type; specialise distrun::ElementType for one of yours");
}

}  // namespace detail

// The dtype of T's elements. For a 16-bit float of another library:
//   template <> struct distrun::ElementType<__half> : std::integral_constant<distrun_dtype, DISTRUN_FLOAT16> {};
template <class T>
struct ElementType : std::integral_constant<distrun_dtype, detail::dtype_of<T>()> {};

// Where a tensor lies. `stream` (a CUstream or cudaStream_t; null: the default one) is what makes the input ready: the
// operation starts on the device behind what the stream has been given when it is submitted, and nobody waits here.
// Once it is complete every stream may use the output. All of a rank's tensors of one process set are on one GPU.
struct Device {
  std::int32_t type = 0;   // 0: the host; 1: CUDA
  std::int32_t index = 0;  // of the GPU, among those that this process sees
  void* stream = nullptr;
};
inline Device cuda(int index, void* stream = nullptr) { return {1, index, stream}; }

// One operation. Make it with the function of its name, then change what is to differ:
//
//   auto request = distrun::Request::allreduce("weights", data, {rows, columns}, DISTRUN_SUM);
//   request.postscale = 0.5;
//   session.submit(request).wait();
//
// `data` is contiguous and, with `output`, stays valid and untouched until the operation is done. The shape counts
// elements; dimension 0 is the rows. Ranks agree on name, kind, dtype, shape (but for the rows of allgather and
// alltoall), reduction, scale, root, group and device, or each gets an Error with DISTRUN_MISMATCH.
struct Request {
  using Shape = std::vector<std::int64_t>;

  distrun_kind kind = DISTRUN_ALLREDUCE;
  std::string name;  // 1 to 1024 bytes, unique among the operations in flight of its process set; join: ignored
  distrun_dtype dtype = DISTRUN_FLOAT32;
  Shape shape;                              // of the input; {} is a scalar
  const void* input = nullptr;              // at least one dimension to gather, exchange or share out
  void* output = nullptr;                   // null: made by the library (allgather, alltoall)
  distrun_reduce reduce = DISTRUN_AVERAGE;  // allreduce, reducescatter
  double prescale = 1.0;                    // allreduce, reducescatter: of each input
  double postscale = 1.0;                   // and of the result
  int root = 0;                             // broadcast: a world rank
  std::vector<std::int64_t> splits;         // alltoall: rows for each member; {}: equal shares
  int process_set = 0;                      // 0: all ranks
  int group = -1;                           // operations of one submit() with the same number run all or none
  Device device;

  // output[i] = postscale * the reduction over the members of prescale * data[i]; in place unless `output` is changed.
  template <class T>
  static Request allreduce(std::string name, T* data, Shape shape, distrun_reduce reduce = DISTRUN_AVERAGE) {
    Request made = of(DISTRUN_ALLREDUCE, std::move(name), data, std::move(shape));
    made.output = data;
    made.reduce = reduce;
    return made;
  }
  // The root's data on every member; in place.
  template <class T>
  static Request broadcast(std::string name, T* data, Shape shape, int root) {
    Request made = of(DISTRUN_BROADCAST, std::move(name), data, std::move(shape));
    made.output = data;
    made.root = root;
    return made;
  }
  // All members' rows, in member order: Operation::values(), shape() and rows(). Rows may differ in number.
  template <class T>
  static Request allgather(std::string name, const T* data, Shape shape) {
    return of(DISTRUN_ALLGATHER, std::move(name), data, std::move(shape));
  }
  // Block r of the rows goes to member r: splits[r] rows, or equal shares. What comes is as of allgather.
  template <class T>
  static Request alltoall(std::string name, const T* data, Shape shape, std::vector<std::int64_t> splits = {}) {
    Request made = of(DISTRUN_ALLTOALL, std::move(name), data, std::move(shape));
    made.splits = std::move(splits);
    return made;
  }
  // This member's share of the rows of the reduction, to `share`, which is apart from the data and has
  // Session::share_of(rows) rows.
  template <class T>
  static Request reducescatter(std::string name, const T* data, Shape shape, T* share,
                               distrun_reduce reduce = DISTRUN_AVERAGE) {
    Request made = of(DISTRUN_REDUCESCATTER, std::move(name), data, std::move(shape));
    made.output = share;
    made.reduce = reduce;
    return made;
  }
  // Done when all members have come.
  static Request barrier(std::string name = "barrier") {
    Request made;
    made.kind = DISTRUN_BARRIER;
    made.name = std::move(name);
    made.dtype = DISTRUN_UINT8;
    made.shape = {0};
    return made;
  }
  // This rank has no more data (distrun_op in distrun.h); the one of rows() is the rank that joined last. A `device`
  // that is a GPU is where this rank takes part in what is on GPUs.
  static Request join() {
    Request made = barrier("join");
    made.kind = DISTRUN_JOIN;
    return made;
  }

  // For distrun_enqueue; it refers to this request's name, shape and splits.
  [[nodiscard]] distrun_op op() const {
    if (name.find('\0') != std::string::npos) {
      detail::refuse("the name '" + std::string(name.c_str()) + "' goes on behind a zero byte; take that out", name);
    }
    distrun_op made = {};
    made.struct_size = sizeof(made);
    made.kind = kind;
    made.name = name.c_str();
    made.dtype = dtype;
    made.reduce = reduce;
    made.device_type = device.type;
    made.device_index = device.index;
    made.shape = shape.data();
    made.ndim = static_cast<std::uint32_t>(shape.size());
    made.root = root;
    made.input = input;
    made.output = output;
    made.prescale = prescale;
    made.postscale = postscale;
    made.process_set = process_set;
    made.group = group;
    made.stream = device.stream;
    made.splits = splits.data();
    made.num_splits = static_cast<std::uint32_t>(splits.size());
    return made;
  }

 private:
  template <class T>
  static Request of(distrun_kind kind, std::string name, const T* data, Shape shape) {
    Request made;
    made.kind = kind;
    made.name = std::move(name);
    made.dtype = ElementType<T>::value;
    made.shape = std::move(shape);
    made.input = data;
    return made;
  }
};

}  // namespace distrun
