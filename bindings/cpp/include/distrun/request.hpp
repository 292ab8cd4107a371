// A request for one operation on one tensor, for Session::submit(). A value that does not own the tensor's memory.
#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "distrun/distrun.h"
#include "distrun/error.hpp"

namespace distrun {

// 16 bits of a tensor as they are in memory: IEEE binary16, and the upper half of a float. For arithmetic use the type
// of another library, and specialise ElementType for it. Sums of both types are accumulated in float.
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
  else if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, long long>)  // int64_t is long on Linux
    return DISTRUN_INT64;
  else if constexpr (std::is_same_v<T, std::uint16_t>)
    return DISTRUN_UINT16;
  else if constexpr (std::is_same_v<T, std::uint32_t>)
    return DISTRUN_UINT32;
  else if constexpr (std::is_same_v<T, std::uint64_t> || std::is_same_v<T, unsigned long long>)
    return DISTRUN_UINT64;
  else if constexpr (std::is_same_v<T, std::complex<float>>)
    return DISTRUN_COMPLEX64;
  else if constexpr (std::is_same_v<T, std::complex<double>>)
    return DISTRUN_COMPLEX128;
  else if constexpr (std::is_same_v<T, Float16>)
    return DISTRUN_FLOAT16;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return DISTRUN_BFLOAT16;
  else if constexpr (std::is_same_v<T, bool>)
    return DISTRUN_BOOL;
  else
    static_assert(sizeof(T) == 0,
                  "distrun has no such element type: specialise distrun::ElementType for a type of yours");
}

}  // namespace detail

// The dtype of T's elements. For a 16-bit float of another library (the same for an 8-bit float, which is only moved):
//   template <> struct distrun::ElementType<__half> : std::integral_constant<distrun_dtype, DISTRUN_FLOAT16> {};
template <class T>
struct ElementType : std::integral_constant<distrun_dtype, detail::dtype_of<T>()> {};

// The device of a tensor. `stream` is a CUstream or cudaStream_t (null: the default stream) that produces the input.
// The operation starts on the device after all work that the stream has at the time of submit(). The host does not wait
// for that. After completion every stream may use the output. All tensors of a rank in one process set must be on one
// GPU.
struct Device {
  std::int32_t type = 0;   // 0: the host; 1: CUDA
  std::int32_t index = 0;  // of the GPU, among those visible to this process
  void* stream = nullptr;
};
inline Device cuda(int index, void* stream = nullptr) { return {1, index, stream}; }

// One operation. Make it with the function of its name, then change single members:
//
//   auto request = distrun::Request::allreduce("weights", data, {rows, columns}, DISTRUN_SUM);
//   request.postscale = 0.5;
//   session.submit(request).wait();
//
// `data` must be contiguous. `data` and `output` must stay valid and unchanged until the operation is done. The shape
// counts elements, and dimension 0 is the rows. Ranks must agree on name, kind, dtype, shape (except the rows of
// allgather and alltoall), reduction, scale factors, root, group and device. If they do not, each rank gets an Error
// with DISTRUN_MISMATCH.
struct Request {
  using Shape = std::vector<std::int64_t>;

  distrun_kind kind = DISTRUN_ALLREDUCE;
  std::string name;  // 1 to 1024 bytes, unique among the operations in flight of its process set; join: ignored
  distrun_dtype dtype = DISTRUN_FLOAT32;
  Shape shape;                              // of the input; {} is a scalar
  const void* input = nullptr;              // allgather, alltoall and reducescatter need at least one dimension
  void* output = nullptr;                   // null: the library allocates it (allgather, alltoall)
  distrun_reduce reduce = DISTRUN_AVERAGE;  // allreduce, reducescatter
  double prescale = 1.0;                    // allreduce, reducescatter: factor for each input
  double postscale = 1.0;                   // the same for the result
  int root = 0;                             // broadcast: a world rank
  std::vector<std::int64_t> splits;         // alltoall: rows for each member; {}: equal shares
  int process_set = 0;                      // 0: all ranks
  int group = -1;                           // operations of one submit() with the same number run all or none
  Device device;

  // output[i] = postscale * reduction over the members of (prescale * data[i]). In place unless `output` is changed.
  template <class T>
  static Request allreduce(std::string name, T* data, Shape shape, distrun_reduce reduce = DISTRUN_AVERAGE) {
    Request made = of(DISTRUN_ALLREDUCE, std::move(name), data, std::move(shape));
    made.output = data;
    made.reduce = reduce;
    return made;
  }
  // data becomes the root's data on every member. In place.
  template <class T>
  static Request broadcast(std::string name, T* data, Shape shape, int root) {
    Request made = of(DISTRUN_BROADCAST, std::move(name), data, std::move(shape));
    made.output = data;
    made.root = root;
    return made;
  }
  // Collects the rows of all members in member order: see Operation::values(), shape() and rows(). Each member may have
  // another number of rows.
  template <class T>
  static Request allgather(std::string name, const T* data, Shape shape) {
    return of(DISTRUN_ALLGATHER, std::move(name), data, std::move(shape));
  }
  // Sends block r of the rows to member r: splits[r] rows, or equal shares. The result is as for allgather.
  template <class T>
  static Request alltoall(std::string name, const T* data, Shape shape, std::vector<std::int64_t> splits = {}) {
    Request made = of(DISTRUN_ALLTOALL, std::move(name), data, std::move(shape));
    made.splits = std::move(splits);
    return made;
  }
  // Writes this member's share of the reduced rows to `share`, which has Session::share_of(rows) rows and must not
  // overlap the data.
  template <class T>
  static Request reducescatter(std::string name, const T* data, Shape shape, T* share,
                               distrun_reduce reduce = DISTRUN_AVERAGE) {
    Request made = of(DISTRUN_REDUCESCATTER, std::move(name), data, std::move(shape));
    made.output = share;
    made.reduce = reduce;
    return made;
  }
  // Done when all members have called it.
  static Request barrier(std::string name = "barrier") {
    Request made;
    made.kind = DISTRUN_BARRIER;
    made.name = std::move(name);
    made.dtype = DISTRUN_UINT8;
    made.shape = {0};
    return made;
  }
  // This rank has no more data (distrun_op in distrun.h). rows() then has the rank that joined last. If `device` is a
  // GPU, this rank takes part in operations on GPUs there.
  static Request join() {
    Request made = barrier("join");
    made.kind = DISTRUN_JOIN;
    return made;
  }

  // For distrun_enqueue. The result refers to this request's name, shape and splits.
  [[nodiscard]] distrun_op op() const {
    if (name.find('\0') != std::string::npos) {
      detail::refuse("the name '" + std::string(name.c_str()) + "' contains a zero byte. Remove it", name);
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
