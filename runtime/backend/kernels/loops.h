// The reduction loops and their table. The files that include this instantiate it once per instruction set. These are
// plain loops that the compiler vectorises. -ffp-contract=off keeps every rounding as written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/backend/kernels/elements.h"
#include "runtime/backend/kernels/table.h"

#if defined(__clang__)
#define DISTRUN_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define DISTRUN_VECTORISE _Pragma("GCC ivdep")
#endif

namespace distrun::backend::kernels {
namespace {

// Unsigned and at least as wide as int. It wraps modulo 2^bits without undefined behaviour.
template <class T>
using Wrapping = std::conditional_t<
    sizeof(T) < sizeof(unsigned), unsigned,
    typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::enable_if<true, T>>::type>;

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct Product {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};
// If any rank has a NaN, the result is NaN. Of equal values (+0 and -0) the first rank's value is kept.
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return ((b < a) | (b != b)) ? b : a;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return ((b > a) | (b != b)) ? b : a;
  }
};

// The elements of a block stay in the L1 cache from one source to the next.
inline constexpr std::size_t kBlock = 512;

// For two sources whose conversion the compiler vectorises; needs no block in between. Never inlined: of two NaNs the
// first one's payload is kept, and in each inlined copy the compiler might choose a different one as the first.
template <class E, class Op>
__attribute__((noinline)) void reduce_pair(Sources sources, std::byte* out, std::size_t count,
                                           const FinishArgs& finish) {
  using T = typename E::Stored;
  const std::byte* a = sources.at[0];
  const std::byte* b = sources.at[1];
  const FinishArgs how = finish;
  if constexpr (std::is_floating_point_v<typename E::Held>) {
    DISTRUN_VECTORISE
    for (std::size_t i = 0; i < count; ++i) {
      const auto both = Op::apply(E::widen(get<T>(a, i)), E::widen(get<T>(b, i)));
      put<T>(out, i, E::narrow(E::finish(both, how)));
    }
  } else {
    DISTRUN_VECTORISE
    for (std::size_t i = 0; i < count; ++i) put<T>(out, i, Op::apply(get<T>(a, i), get<T>(b, i)));
  }
}

// Writes past the caches. Both pointers are at cache lines, and `bytes` is a multiple of the line.
inline void stream_lines(std::byte* to, const std::byte* from, std::size_t bytes) {
#if defined(__AVX__)
  for (std::size_t at = 0; at < bytes; at += sizeof(__m256i)) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), *reinterpret_cast<const __m256i*>(from + at));
  }
#elif defined(__x86_64__)
  for (std::size_t at = 0; at < bytes; at += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at), *reinterpret_cast<const __m128i*>(from + at));
  }
#else
  for (std::size_t at = 0; at < bytes; ++at) to[at] = from[at];
#endif
}

// Uses a block of only a few lines, so that the processor reads the next input while this block is written.
template <class E, class Op>
inline void stream_pair(Sources sources, std::byte* out, std::size_t count, const FinishArgs& finish) {
  constexpr std::size_t kSize = sizeof(typename E::Stored);
  constexpr std::size_t kBytes = 512;
  alignas(64) std::byte block[kBytes];
  for (std::size_t at = 0; at < count; at += kBytes / kSize) {
    const std::size_t here = count - at < kBytes / kSize ? count - at : kBytes / kSize;
    const std::byte* const moved[] = {sources.at[0] + at * kSize, sources.at[1] + at * kSize};
    reduce_pair<E, Op>({.at = moved, .count = 2}, block, here, finish);
    stream_lines(out + at * kSize, block, here * kSize);
  }
}

// One loop for each part: if one loop makes both, GCC 12 contracts them (vfmaddsub), in spite of -ffp-contract=off.
// Then the results would depend on the instruction set and on the order of the factors.
template <class T>
inline void multiply_block(ComplexParts<T>* held, const ComplexParts<T>* next, std::size_t count) {
  T real[kBlock];
  T imaginary[kBlock];
  DISTRUN_VECTORISE
  for (std::size_t i = 0; i < count; ++i) real[i] = held[i].real * next[i].real - held[i].imaginary * next[i].imaginary;
  DISTRUN_VECTORISE
  for (std::size_t i = 0; i < count; ++i)
    imaginary[i] = held[i].real * next[i].imaginary + held[i].imaginary * next[i].real;
  DISTRUN_VECTORISE
  for (std::size_t i = 0; i < count; ++i) held[i] = {real[i], imaginary[i]};
}

template <class E, class Op>
inline void combine_block(const std::byte* from, typename E::Held* held, std::size_t count) {
  if constexpr (requires { typename E::Part; }) {
    static_assert(std::is_same_v<Op, Product>, "complex numbers are added as their parts");
    typename E::Held next[kBlock];
    widen_block<E>(from, next, count);
    multiply_block(held, next, count);
  } else if constexpr (E::kSimple) {
    DISTRUN_VECTORISE
    for (std::size_t i = 0; i < count; ++i) held[i] = Op::apply(held[i], get<typename E::Stored>(from, i));
  } else {
    typename E::Held next[kBlock];
    widen_block<E>(from, next, count);
    DISTRUN_VECTORISE
    for (std::size_t i = 0; i < count; ++i) held[i] = Op::apply(held[i], next[i]);
  }
}

template <class E, class Op>
void reduce(Sources sources, std::byte* out, std::size_t count, const FinishArgs& finish) {
  constexpr std::size_t kSize = sizeof(typename E::Stored);
  constexpr bool kFloat = std::is_floating_point_v<typename E::Held>;
  if constexpr (E::kSimple || std::is_same_v<E, BFloat16>) {
    if (sources.count == 2 && (kFloat || finish.identity)) {
      if (finish.stream) {
        stream_pair<E, Op>(sources, out, count, finish);
      } else {
        reduce_pair<E, Op>(sources, out, count, finish);
      }
      return;
    }
  }
  typename E::Held held[kBlock];
  const FinishArgs how = finish;
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t here = count - at < kBlock ? count - at : kBlock;
    widen_block<E>(sources.at[0] + at * kSize, held, here);
    for (std::size_t s = 1; s < sources.count; ++s) combine_block<E, Op>(sources.at[s] + at * kSize, held, here);
    if (!how.identity) {
      DISTRUN_VECTORISE
      for (std::size_t i = 0; i < here; ++i) held[i] = E::finish(held[i], how);
    }
    narrow_block<E>(held, out + at * kSize, here);
  }
}

#if defined(__AVX512F__)
inline constexpr std::size_t kRegister = 64;
#elif defined(__AVX__)
inline constexpr std::size_t kRegister = 32;
#else
inline constexpr std::size_t kRegister = 16;
#endif

// Loads four registers before it stores one. The code is written so that no compiler turns it into memcpy().
void copy_blocks(std::byte* to, const std::byte* from, std::size_t bytes) {
  using Part = unsigned char __attribute__((vector_size(kRegister), aligned(1), may_alias));
  static_assert(kCopyBlock % (4 * sizeof(Part)) == 0);
  for (std::size_t at = 0; at < bytes; at += 4 * sizeof(Part)) {
    const auto* in = reinterpret_cast<const Part*>(from + at);
    auto* out = reinterpret_cast<Part*>(to + at);
    const Part a = in[0];
    const Part b = in[1];
    const Part c = in[2];
    const Part d = in[3];
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
  }
}

template <class E>
void add_parts(Sources sources, std::byte* out, std::size_t count, const FinishArgs& finish) {
  reduce<Plain<typename E::Part>, Sum>(sources, out, 2 * count, finish);
}

// A reduction that the dtype does not have stays null.
template <class E>
constexpr void fill_row(ReduceFn* row) {
  if constexpr (requires { typename E::Part; }) {
    row[0] = &add_parts<E>;
    row[3] = &reduce<E, Product>;
  } else if constexpr (!std::is_same_v<E, MovedOnly>) {
    row[0] = &reduce<E, Sum>;
    row[1] = &reduce<E, Min>;
    row[2] = &reduce<E, Max>;
    row[3] = &reduce<E, Product>;
  }
}

// All values are 0 or 1, so a logical or is max, and a logical and is min.
template <>
constexpr void fill_row<Bool>(ReduceFn* row) {
  row[0] = row[2] = &reduce<Bool, Max>;
  row[1] = row[3] = &reduce<Bool, Min>;
}

constexpr ReduceFn* row_of(Table& table, DType dtype) { return table.reduce[static_cast<int>(dtype)]; }

constexpr Table make_table() {
  Table table = {};
#define DISTRUN_DTYPE(id, number, c_name, name, bytes, family, exponent, element, ...) \
  fill_row<element>(row_of(table, DType::k##id));
#include "runtime/base/dtypes.def"
#undef DISTRUN_DTYPE
  table.copy = &copy_blocks;
  return table;
}

}  // namespace
}  // namespace distrun::backend::kernels
