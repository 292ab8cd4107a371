// How one element of each dtype is read, held and written. Each file for an instruction set includes this. Everything
// is in an unnamed namespace, so each file gets its own copy, compiled with its own options (see table.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "runtime/backend/kernels/table.h"

namespace distrun::backend::kernels {
namespace {

// User memory may be unaligned.
template <class T>
struct __attribute__((packed, may_alias)) Packed {
  T value;
};
template <class T>
inline T get(const std::byte* from, std::size_t i) {
  return reinterpret_cast<const Packed<T>*>(from)[i].value;
}
template <class T>
inline void put(std::byte* to, std::size_t i, T value) {
  reinterpret_cast<Packed<T>*>(to)[i].value = value;
}

// Saturates. NaN becomes 0.
template <class T>
inline T truncated(double value) {
  constexpr T kLow = std::numeric_limits<T>::min();
  constexpr T kHigh = std::numeric_limits<T>::max();
  // The first double above the range. It is 2^63 for int64, because kHigh is not a double there.
  constexpr double kTooHigh = static_cast<double>(kHigh / 2 + 1) * 2.0;  // NOLINT(bugprone-integer-division)
  if (!(value > static_cast<double>(kLow))) return value == value ? kLow : T{0};
  if (value >= kTooHigh) return kHigh;
  return static_cast<T>(value);
}

inline float finished(float value, const FinishArgs& finish) { return value * finish.f32; }
inline double finished(double value, const FinishArgs& finish) { return value * finish.f64; }
template <class T>
inline T finished(T value, const FinishArgs& finish) {
  using Wide = std::conditional_t<std::is_same_v<T, std::uint64_t>, std::uint64_t, std::int64_t>;
  if (finish.factor == 1.0) return static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(finish.divisor));
  return truncated<T>(static_cast<double>(value) / static_cast<double>(finish.divisor) * finish.factor);
}

template <class T>
struct Plain {
  using Stored = T;
  using Held = T;
  static constexpr bool kSimple = true;  // held as stored, without conversion
  static Held widen(Stored value) { return value; }
  static Stored narrow(Held value) { return value; }
  static Held finish(Held value, const FinishArgs& how) { return finished(value, how); }
};

struct Bool {
  using Stored = std::uint8_t;
  using Held = std::uint8_t;
  static constexpr bool kSimple = false;
  static Held widen(Stored value) { return value != 0 ? 1 : 0; }
  static Stored narrow(Held value) { return value; }
  static Held finish(Held value, const FinishArgs&) { return value; }
};

// The parts as in memory. Sums never need this: they are sums of the parts.
template <class T>
struct ComplexParts {
  T real;
  T imaginary;
};

template <class T>
struct Complex {
  using Part = T;
  using Stored = ComplexParts<T>;
  using Held = ComplexParts<T>;
  static constexpr bool kSimple = false;
  static Held widen(Stored value) { return value; }
  static Stored narrow(Held value) { return value; }
  static Held finish(Held value, const FinishArgs& how) {
    return {finished(value.real, how), finished(value.imaginary, how)};
  }
};

struct MovedOnly {};  // no kernel reads it

// bfloat16 is the upper half of a float32. Rounds to nearest even. The AVX512-BF16 instructions flush denormals, so the
// result would depend on the processor; they are not used.
struct BFloat16 {
  using Stored = std::uint16_t;
  using Held = float;
  static constexpr bool kSimple = false;
  static Held widen(Stored value) { return __builtin_bit_cast(float, static_cast<std::uint32_t>(value) << 16); }
  static Stored narrow(Held value) {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const std::uint32_t quiet = (bits >> 16) | 0x40U;
    return static_cast<Stored>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
  }
  static Held finish(Held value, const FinishArgs& how) { return finished(value, how); }
};

// IEEE half precision in integer arithmetic. It gives the same bits as the F16C instructions, also for NaN payloads.
struct Float16 {
  using Stored = std::uint16_t;
  using Held = float;
  static constexpr bool kSimple = false;
  static Held widen(Stored value) {
    const std::uint32_t magnitude = value & 0x7fffU;
    const std::uint32_t sign = static_cast<std::uint32_t>(value & 0x8000U) << 16;
    const std::uint32_t normal = (magnitude << 13) + (112U << 23);
    const std::uint32_t special = (magnitude << 13) | 0x7f800000U | (magnitude > 0x7c00U ? 0x400000U : 0U);
    const float tiny = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F;
    const std::uint32_t finite = magnitude < 0x400U ? __builtin_bit_cast(std::uint32_t, tiny) : normal;
    return __builtin_bit_cast(float, sign | (magnitude >= 0x7c00U ? special : finite));
  }
  static Stored narrow(Held value) {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    const std::uint32_t sign = (bits >> 16) & 0x8000U;
    const std::uint32_t normal = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - (112U << 23)) >> 13;
    // Adding 0.5 makes the addition round at 2^-24, the unit of half's denormals.
    const float shifted = __builtin_bit_cast(float, magnitude) + 0.5F;
    const std::uint32_t tiny = __builtin_bit_cast(std::uint32_t, shifted) - 0x3f000000U;
    const std::uint32_t nan = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
    const std::uint32_t finite = magnitude < 0x38800000U ? tiny : normal;
    const std::uint32_t large = magnitude > 0x7f800000U ? nan : 0x7c00U;
    return static_cast<Stored>(sign | (magnitude >= 0x477ff000U ? large : finite));
  }
  static Held finish(Held value, const FinishArgs& how) { return finished(value, how); }
};

// Converts a block of elements to their held form and back. With F16C it converts eight halves at a time.
template <class E>
inline void widen_block(const std::byte* from, typename E::Held* to, std::size_t count) {
  std::size_t i = 0;
#if defined(__F16C__)
  if constexpr (std::is_same_v<E, Float16>) {
    for (; i + 8 <= count; i += 8) {
      const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i));
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
    }
  }
#endif
  for (; i < count; ++i) to[i] = E::widen(get<typename E::Stored>(from, i));
}

template <class E>
inline void narrow_block(const typename E::Held* from, std::byte* to, std::size_t count) {
  std::size_t i = 0;
#if defined(__F16C__)
  if constexpr (std::is_same_v<E, Float16>) {
    for (; i + 8 <= count; i += 8) {
      const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i), half);
    }
  }
#endif
  for (; i < count; ++i) put<typename E::Stored>(to, i, E::narrow(from[i]));
}

}  // namespace
}  // namespace distrun::backend::kernels
