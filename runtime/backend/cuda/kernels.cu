// Packs and unpacks on the device, with one launch for all tensors of a batch. distrun_pack_T reads tensors of dtype T,
// multiplies, and writes the data that NCCL reduces (16-bit integers as 32-bit ones, booleans as 0 or 1).
// distrun_unpack_T divides, multiplies and writes back. distrun_combine_T reduces packed data from a peer into this
// member's data, as an MPI or NCCL would do: to = from op to. The arithmetic is that of
// runtime/backend/kernels/elements.h (docs/reference/numerics.md). This file includes no CUDA header, so that the PTX
// needs no new driver. The tests run this same file on the CPU (test/backend/nccl/fake_kernels.cc).
#include "runtime/backend/cuda/batch.h"
#include "runtime/backend/cuda/device_words.h"

using distrun::backend::cuda_parts::Batch;
using distrun::backend::cuda_parts::kTileElements;
using distrun::backend::cuda_parts::Piece;

namespace {

template <class T>
struct Limits;
template <>
struct Limits<std::uint8_t> {
  static constexpr std::uint8_t kLow = 0, kHigh = UINT8_MAX;
};
template <>
struct Limits<std::uint16_t> {
  static constexpr std::uint16_t kLow = 0, kHigh = UINT16_MAX;
};
template <>
struct Limits<std::uint32_t> {
  static constexpr std::uint32_t kLow = 0, kHigh = UINT32_MAX;
};
template <>
struct Limits<std::uint64_t> {
  static constexpr std::uint64_t kLow = 0, kHigh = UINT64_MAX;
};
template <>
struct Limits<std::int8_t> {
  static constexpr std::int8_t kLow = INT8_MIN, kHigh = INT8_MAX;
};
template <>
struct Limits<std::int16_t> {
  static constexpr std::int16_t kLow = INT16_MIN, kHigh = INT16_MAX;
};
template <>
struct Limits<std::int32_t> {
  static constexpr std::int32_t kLow = INT32_MIN, kHigh = INT32_MAX;
};
template <>
struct Limits<std::int64_t> {
  static constexpr std::int64_t kLow = INT64_MIN, kHigh = INT64_MAX;
};

struct Finish {
  double factor;
  std::int64_t divisor;
  bool scales;
};

// Truncates toward zero and saturates. NaN becomes 0.
template <class T>
__device__ T truncated(double value) {
  if (value != value) return 0;
  if (value >= static_cast<double>(Limits<T>::kHigh)) return Limits<T>::kHigh;
  if (value <= static_cast<double>(Limits<T>::kLow)) return Limits<T>::kLow;
  return static_cast<T>(value);
}

// The type that divides, for an average.
template <class T>
struct DividedAs {
  using Type = std::int64_t;
};
template <>
struct DividedAs<std::uint64_t> {
  using Type = std::uint64_t;
};

template <class T, class W = T>
struct Integer {
  using Stored = T;
  using Wire = W;
  using Held = W;
  __device__ static T scaled(T value, const Finish& how) {
    using Wide = typename DividedAs<T>::Type;
    if (how.factor == 1.0) return static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(how.divisor));
    return truncated<T>(static_cast<double>(value) / static_cast<double>(how.divisor) * how.factor);
  }
  __device__ static Wire pack(Stored value, const Finish& how) { return how.scales ? scaled(value, how) : value; }
  // First the wider sum wraps around to the stored type.
  __device__ static Stored unpack(Wire value, const Finish& how) {
    const Stored wrapped = static_cast<Stored>(value);
    return how.scales ? scaled(wrapped, how) : wrapped;
  }
  __device__ static Held held(Wire value) { return value; }
  __device__ static Wire wire(Held value) { return value; }
};

struct Bool {
  using Stored = std::uint8_t;
  using Wire = std::uint8_t;
  using Held = std::uint8_t;
  __device__ static Wire pack(Stored value, const Finish&) { return value != 0 ? 1 : 0; }
  __device__ static Stored unpack(Wire value, const Finish&) { return value; }
  __device__ static Held held(Wire value) { return value; }
  __device__ static Wire wire(Held value) { return value; }
};

template <class T>
struct Float {
  using Stored = T;
  using Wire = T;
  using Held = T;
  __device__ static T pack(T value, const Finish& how) {
    return how.scales ? value * static_cast<T>(how.factor / static_cast<double>(how.divisor)) : value;
  }
  __device__ static T unpack(T value, const Finish& how) { return pack(value, how); }
  __device__ static T held(T value) { return value; }
  __device__ static T wire(T value) { return value; }
};

struct HalfBits {
  __device__ static float widen(std::uint16_t bits) { return float_of_half(bits); }
  __device__ static std::uint16_t narrow(float value) { return half_of_float(value); }
};

struct BFloatBits {
  __device__ static float widen(std::uint16_t bits) { return float_of_bits(static_cast<std::uint32_t>(bits) << 16); }
  __device__ static std::uint16_t narrow(float value) {
    const std::uint32_t bits = bits_of_float(value);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const std::uint32_t quiet = (bits >> 16) | 0x40U;
    return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
  }
};

template <class Bits>
struct SmallFloat {
  using Stored = std::uint16_t;
  using Wire = std::uint16_t;
  using Held = float;
  __device__ static std::uint16_t pack(std::uint16_t value, const Finish& how) {
    return how.scales ? Bits::narrow(Float<float>::pack(Bits::widen(value), how)) : value;
  }
  __device__ static std::uint16_t unpack(std::uint16_t value, const Finish& how) { return pack(value, how); }
  __device__ static float held(std::uint16_t value) { return Bits::widen(value); }
  __device__ static std::uint16_t wire(float value) { return Bits::narrow(value); }
};

// Integers wrap around.
template <class T>
__device__ T added(T a, T b) {
  return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
__device__ inline float added(float a, float b) { return a + b; }
__device__ inline double added(double a, double b) { return a + b; }

template <class T>
__device__ T multiplied(T a, T b) {
  return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}
__device__ inline float multiplied(float a, float b) { return a * b; }
__device__ inline double multiplied(double a, double b) { return a * b; }

struct Sum {
  template <class T>
  __device__ static T of(T a, T b) {
    return added(a, b);
  }
};
struct Product {
  template <class T>
  __device__ static T of(T a, T b) {
    return multiplied(a, b);
  }
};
// The result is NaN if either value is NaN.
struct Min {
  template <class T>
  __device__ static T of(T a, T b) {
    return ((b < a) | (b != b)) ? b : a;
  }
};
struct Max {
  template <class T>
  __device__ static T of(T a, T b) {
    return ((b > a) | (b != b)) ? b : a;
  }
};

// The piece with tile `tile`: the first piece whose tiles end after it.
__device__ std::uint32_t piece_of(const Batch& batch, std::uint32_t tile) {
  std::uint32_t low = 0;
  std::uint32_t high = batch.num_pieces - 1;
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    if (tile < batch.tile_ends[middle]) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

template <class From, class To, class Convert>
__device__ void for_each(const Batch& batch, Convert convert) {
  const std::uint32_t tiles = batch.tile_ends[batch.num_pieces - 1];
  for (std::uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::uint32_t index = piece_of(batch, tile);
    const Piece& piece = batch.pieces[index];
    const std::uint32_t before = index == 0 ? 0 : batch.tile_ends[index - 1];
    const std::uint64_t first = static_cast<std::uint64_t>(tile - before) * kTileElements;
    const std::uint64_t left = piece.count - first;
    const std::uint32_t count = left < kTileElements ? static_cast<std::uint32_t>(left) : kTileElements;
    const From* from = static_cast<const From*>(piece.from) + first;
    To* to = static_cast<To*>(piece.to) + first;
    DISTRUN_UNROLL  // several loads in flight, to use the memory bandwidth
        for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) to[i] = convert(from[i], to[i]);
  }
}

template <class E, class Op>
__device__ void combine_by(const Batch& batch) {
  using Wire = typename E::Wire;
  for_each<Wire, Wire>(batch, [](Wire came, const Wire& here) {
    return E::wire(Op::template of<typename E::Held>(E::held(came), E::held(here)));
  });
}

template <class E>
__device__ void combine(const Batch& batch) {
  switch (batch.combine) {
    case distrun::backend::cuda_parts::kCombineSum:
      return combine_by<E, Sum>(batch);
    case distrun::backend::cuda_parts::kCombineProduct:
      return combine_by<E, Product>(batch);
    case distrun::backend::cuda_parts::kCombineMin:
      return combine_by<E, Min>(batch);
    case distrun::backend::cuda_parts::kCombineMax:
      return combine_by<E, Max>(batch);
  }
}

}  // namespace

#define DISTRUN_KERNELS(dtype, ...)                                                                              \
  extern "C" __global__ void distrun_pack_##dtype(const __grid_constant__ Batch batch) {                         \
    using E = __VA_ARGS__;                                                                                       \
    const Finish how = {batch.factor, batch.divisor, batch.scales != 0};                                         \
    for_each<E::Stored, E::Wire>(batch, [&](E::Stored value, const E::Wire&) { return E::pack(value, how); });   \
  }                                                                                                              \
  extern "C" __global__ void distrun_unpack_##dtype(const __grid_constant__ Batch batch) {                       \
    using E = __VA_ARGS__;                                                                                       \
    const Finish how = {batch.factor, batch.divisor, batch.scales != 0};                                         \
    for_each<E::Wire, E::Stored>(batch, [&](E::Wire value, const E::Stored&) { return E::unpack(value, how); }); \
  }                                                                                                              \
  extern "C" __global__ void distrun_combine_##dtype(const __grid_constant__ Batch batch) {                      \
    combine<__VA_ARGS__>(batch);                                                                                 \
  }

// The types of this file for the elements of dtypes.def.
template <class T>
struct PlainElement {
  using Type = Integer<T>;
};
template <>
struct PlainElement<std::int16_t> {
  using Type = Integer<std::int16_t, std::int32_t>;
};
template <>
struct PlainElement<std::uint16_t> {
  using Type = Integer<std::uint16_t, std::uint32_t>;
};
template <>
struct PlainElement<float> {
  using Type = Float<float>;
};
template <>
struct PlainElement<double> {
  using Type = Float<double>;
};
template <class T>
using Plain = typename PlainElement<T>::Type;
using Float16 = SmallFloat<HalfBits>;
using BFloat16 = SmallFloat<BFloatBits>;

// Complex numbers and what is only moved have no kernels.
#define DISTRUN_KERNELS_OF_kUnsigned(...) DISTRUN_KERNELS(__VA_ARGS__)
#define DISTRUN_KERNELS_OF_kSigned(...) DISTRUN_KERNELS(__VA_ARGS__)
#define DISTRUN_KERNELS_OF_kFloat(...) DISTRUN_KERNELS(__VA_ARGS__)
#define DISTRUN_KERNELS_OF_kBool(...) DISTRUN_KERNELS(__VA_ARGS__)
#define DISTRUN_KERNELS_OF_kComplex(...)
#define DISTRUN_KERNELS_OF_kMovedOnly(...)
#define DISTRUN_DTYPE(id, number, c_name, name, bytes, family, exponent, element, ...) \
  DISTRUN_KERNELS_OF_##family(name, element)
#include "runtime/base/dtypes.def"
#undef DISTRUN_DTYPE
