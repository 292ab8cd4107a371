// The arithmetic of an all-reduce on one element, for every dtype (docs/reference/numerics.md has the rules).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "distrun/distrun_backend.h"

namespace demo {

inline std::size_t bytes_of(int dtype) {
  constexpr std::size_t kBytes[] = {1, 1, 2, 4, 8, 2, 2, 4, 8, 1};
  return kBytes[dtype];
}

inline double half_to_double(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
  if (exponent == 31) value = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : HUGE_VAL;
  return (bits & 0x8000) != 0 ? -value : value;
}

inline std::uint16_t double_to_half(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(value);
  if (std::isnan(value)) return 0x7e00;
  if (size >= 65520) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (size == 0) return sign;
  const int exponent = std::max(std::ilogb(size), -14);
  // 1024 to 2048 units, or fewer for denormals. 2048 units carry into the exponent without extra code.
  const int units = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return static_cast<std::uint16_t>(sign + (exponent + 14) * 1024 + units);
}

inline double bfloat_to_double(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

inline std::uint16_t double_to_bfloat(double value) {
  if (std::isnan(value)) return 0x7fc0;
  const float narrow = static_cast<float>(value);
  std::uint32_t bits;
  std::memcpy(&bits, &narrow, sizeof(bits));
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// The types that store a dtype (Stored) and compute with it (Value).
template <int dtype, class StoredType, class ValueType>
struct Element {
  using Stored = StoredType;
  using Value = ValueType;
  static constexpr bool kInteger = std::is_integral_v<ValueType>;

  static Value load(Stored stored) {
    if constexpr (dtype == DISTRUN_BACKEND_FLOAT16)
      return half_to_double(stored);
    else if constexpr (dtype == DISTRUN_BACKEND_BFLOAT16)
      return bfloat_to_double(stored);
    else if constexpr (dtype == DISTRUN_BACKEND_BOOL)
      return stored != 0;
    else
      return static_cast<Value>(stored);
  }
  static Stored store(Value value) {
    if constexpr (dtype == DISTRUN_BACKEND_FLOAT16)
      return double_to_half(value);
    else if constexpr (dtype == DISTRUN_BACKEND_BFLOAT16)
      return double_to_bfloat(value);
    else
      return static_cast<Stored>(value);  // integers wrap around
  }
  static Value combine(int reduce, Value a, Value b) {
    if constexpr (kInteger) {
      if (dtype == DISTRUN_BACKEND_BOOL && reduce <= DISTRUN_BACKEND_AVERAGE) return a | b;
      using Unsigned = std::make_unsigned_t<Value>;  // its overflow is defined
      if (reduce <= DISTRUN_BACKEND_AVERAGE) return load(store(Value(Unsigned(a) + Unsigned(b))));
      if (reduce == DISTRUN_BACKEND_PRODUCT) return load(store(Value(Unsigned(a) * Unsigned(b))));
    } else {
      if (reduce <= DISTRUN_BACKEND_AVERAGE) return a + b;
      if (reduce == DISTRUN_BACKEND_PRODUCT) return a * b;
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
    }
    return reduce == DISTRUN_BACKEND_MIN ? std::min(a, b) : std::max(a, b);
  }
  static Value scale(Value value, double factor, double divisor) {
    if constexpr (dtype == DISTRUN_BACKEND_BOOL)
      return value;
    else if constexpr (!kInteger)
      return value * (factor / divisor);
    else if (factor == 1)
      return value / static_cast<Value>(divisor);
    else
      return saturated(static_cast<double>(value) / divisor * factor);
  }

 private:
  static Value saturated(double value) {
    using Limits = std::numeric_limits<Stored>;
    if (std::isnan(value)) return 0;
    if (value >= static_cast<double>(Limits::max())) return static_cast<Value>(Limits::max());
    return static_cast<Value>(std::max(value, static_cast<double>(Limits::min())));
  }
};

// sum[i] = sum[i] op next[i]. Called with the whole input of one member after the other.
template <class E>
void accumulate(int reduce, std::vector<typename E::Value>& sum, const std::vector<char>& next, bool first) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    typename E::Stored stored;
    std::memcpy(&stored, next.data() + i * sizeof(stored), sizeof(stored));
    sum[i] = first ? E::load(stored) : E::combine(reduce, sum[i], E::load(stored));
  }
}

// data[i] *= factor / divisor, rounded to the dtype.
template <class E>
void scale(std::vector<char>& data, double factor) {
  if (factor == 1) return;
  for (std::size_t at = 0; at < data.size(); at += sizeof(typename E::Stored)) {
    typename E::Stored stored;
    std::memcpy(&stored, data.data() + at, sizeof(stored));
    stored = E::store(E::scale(E::load(stored), factor, 1));
    std::memcpy(data.data() + at, &stored, sizeof(stored));
  }
}

// Calls f(Element) for the dtype.
template <class F>
void with_element(int dtype, F f) {
  switch (dtype) {
    case DISTRUN_BACKEND_UINT8:
      return f(Element<DISTRUN_BACKEND_UINT8, std::uint8_t, std::int64_t>());
    case DISTRUN_BACKEND_INT8:
      return f(Element<DISTRUN_BACKEND_INT8, std::int8_t, std::int64_t>());
    case DISTRUN_BACKEND_INT16:
      return f(Element<DISTRUN_BACKEND_INT16, std::int16_t, std::int64_t>());
    case DISTRUN_BACKEND_INT32:
      return f(Element<DISTRUN_BACKEND_INT32, std::int32_t, std::int64_t>());
    case DISTRUN_BACKEND_INT64:
      return f(Element<DISTRUN_BACKEND_INT64, std::int64_t, std::int64_t>());
    case DISTRUN_BACKEND_FLOAT16:
      return f(Element<DISTRUN_BACKEND_FLOAT16, std::uint16_t, double>());
    case DISTRUN_BACKEND_BFLOAT16:
      return f(Element<DISTRUN_BACKEND_BFLOAT16, std::uint16_t, double>());
    case DISTRUN_BACKEND_FLOAT32:
      return f(Element<DISTRUN_BACKEND_FLOAT32, float, double>());
    case DISTRUN_BACKEND_FLOAT64:
      return f(Element<DISTRUN_BACKEND_FLOAT64, double, double>());
    case DISTRUN_BACKEND_BOOL:
      return f(Element<DISTRUN_BACKEND_BOOL, std::uint8_t, std::int64_t>());
  }
}

}  // namespace demo
