#include "test/backend/reference.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

namespace distrun::test {
namespace {

bool is_float(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

bool is_unsigned(DType dtype) { return traits_of(dtype).family == DTypeFamily::kUnsigned; }

bool is_complex(DType dtype) { return traits_of(dtype).family == DTypeFamily::kComplex; }

// The floats of which an element consists.
DType part_of(DType dtype) {
  if (!is_complex(dtype)) return dtype;
  return size_of(dtype) == 8 ? DType::kF32 : DType::kF64;
}

std::uint64_t hash_of(std::uint64_t seed, int rank, std::size_t i) {  // splitmix64
  constexpr std::uint64_t kMix[] = {0x9e3779b97f4a7c15, 0xd1b54a32d192ed03, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb};
  std::uint64_t z = seed * kMix[0] + static_cast<std::uint64_t>(rank) * kMix[1] + i;
  z = (z ^ (z >> 30)) * kMix[2];
  z = (z ^ (z >> 27)) * kMix[3];
  return z ^ (z >> 31);
}

double unit_of(std::uint64_t hash) { return static_cast<double>(hash >> 11) * 0x1p-53; }

double float_value(const Sample& sample, std::uint64_t hash) {
  if (sample.values == Values::kRough) {
    const double unit = unit_of(hash);
    return sample.op == ReduceOp::kProduct ? 0.5 + unit : 2.0 * unit - 1.0;
  }
  constexpr double kFactors[] = {1.0, -1.0, 2.0, 0.5};
  if (sample.op == ReduceOp::kProduct) return kFactors[hash % 4];
  return static_cast<double>(hash % 9) - 4.0;
}

std::int64_t int_value(const Sample& sample, std::uint64_t hash) {
  constexpr std::int64_t kBytes[] = {0, 1, 0, 2};  // all except 0 count as true
  if (sample.dtype == DType::kBool) return kBytes[hash % 4];
  if (sample.values == Values::kRough) return static_cast<std::int64_t>(hash);
  const std::int64_t small = static_cast<std::int64_t>(hash % 9);
  return is_unsigned(sample.dtype) ? small : small - 4;
}

// Wraps to the dtype's width.
std::int64_t wrapped(DType dtype, std::uint64_t value) {
  switch (dtype) {
    case DType::kU8:
      return static_cast<std::uint8_t>(value);
    case DType::kI8:
      return static_cast<std::int8_t>(value);
    case DType::kI16:
      return static_cast<std::int16_t>(value);
    case DType::kU16:
      return static_cast<std::uint16_t>(value);
    case DType::kI32:
      return static_cast<std::int32_t>(value);
    case DType::kU32:
      return static_cast<std::uint32_t>(value);
    case DType::kBool:
      return value != 0 ? 1 : 0;
    default:
      return static_cast<std::int64_t>(value);
  }
}

// A uint64 is kept as the int64 with its bits.
double double_of(DType dtype, std::int64_t value) {
  return dtype == DType::kU64 ? static_cast<double>(static_cast<std::uint64_t>(value)) : static_cast<double>(value);
}

std::int64_t load_int(DType dtype, const std::byte* from, std::size_t i) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, from + i * size_of(dtype), size_of(dtype));
  return wrapped(dtype, bits);
}

void store_int(DType dtype, std::byte* to, std::size_t i, std::int64_t value) {
  std::memcpy(to + i * size_of(dtype), &value, size_of(dtype));
}

// Truncates toward zero and saturates.
std::int64_t int_of(DType dtype, double value) {
  const double product = std::trunc(value);
  const int bits = static_cast<int>(8 * size_of(dtype));
  const bool positive = is_unsigned(dtype);
  const double high = std::ldexp(1.0, positive ? bits : bits - 1);
  const double low = positive ? 0.0 : -high;
  if (product >= high) return static_cast<std::int64_t>(~std::uint64_t{0} >> (positive ? 64 - bits : 65 - bits));
  if (positive) return static_cast<std::int64_t>(static_cast<std::uint64_t>(std::max(product, low)));
  return static_cast<std::int64_t>(std::max(product, low));
}

std::int64_t combine_int(const Sample& sample, std::int64_t a, std::int64_t b) {
  const bool boolean = sample.dtype == DType::kBool;
  const auto ua = static_cast<std::uint64_t>(a);
  const auto ub = static_cast<std::uint64_t>(b);
  switch (sample.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return boolean ? (a | b) : wrapped(sample.dtype, ua + ub);
    case ReduceOp::kMin:
      return sample.dtype == DType::kU64 ? static_cast<std::int64_t>(std::min(ua, ub)) : std::min(a, b);
    case ReduceOp::kMax:
      return sample.dtype == DType::kU64 ? static_cast<std::int64_t>(std::max(ua, ub)) : std::max(a, b);
    case ReduceOp::kProduct:
      return wrapped(sample.dtype, ua * ub);
  }
  return 0;
}

double combine_float(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return a + b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProduct:
      return a * b;
  }
  return 0;
}

std::int64_t reduced_int(const Sample& sample, int ranks, std::size_t i) {
  std::int64_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    std::int64_t value =
        wrapped(sample.dtype, static_cast<std::uint64_t>(int_value(sample, hash_of(sample.seed, rank, i))));
    const bool scaled = sample.prescale != 1.0 && sample.dtype != DType::kBool;
    if (scaled) value = int_of(sample.dtype, double_of(sample.dtype, value) * sample.prescale);
    sum = rank == 0 ? value : combine_int(sample, sum, value);
  }
  if (sample.dtype == DType::kBool) return sum;
  const std::int64_t divisor = sample.op == ReduceOp::kAverage ? ranks : 1;
  if (sample.postscale == 1.0) {
    if (sample.dtype != DType::kU64) return sum / divisor;
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(sum) / static_cast<std::uint64_t>(divisor));
  }
  return int_of(sample.dtype, double_of(sample.dtype, sum) / static_cast<double>(divisor) * sample.postscale);
}

std::complex<double> complex_value(const Sample& sample, std::uint64_t hash) {
  return {float_value(sample, hash), float_value(sample, hash_of(hash, 1, 0))};
}

std::complex<double> reduced_complex(const Sample& sample, int ranks, std::size_t i) {
  std::complex<double> result;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto value = complex_value(sample, hash_of(sample.seed, rank, i)) * sample.prescale;
    const bool multiplies = sample.op == ReduceOp::kProduct;
    result = rank == 0 ? value : multiplies ? result * value : result + value;
  }
  return result * sample.postscale / (sample.op == ReduceOp::kAverage ? static_cast<double>(ranks) : 1.0);
}

void store_complex(DType dtype, std::byte* to, std::size_t i, std::complex<double> value) {
  store(part_of(dtype), to, 2 * i, value.real());
  store(part_of(dtype), to, 2 * i + 1, value.imag());
}

double reduced_float(const Sample& sample, int ranks, std::size_t i) {
  double sum = 0;
  Bytes rounded(8);
  for (int rank = 0; rank < ranks; ++rank) {
    store(sample.dtype, rounded.data(), 0, float_value(sample, hash_of(sample.seed, rank, i)));
    store(sample.dtype, rounded.data(), 0, load(sample.dtype, rounded.data(), 0) * sample.prescale);
    const double value = load(sample.dtype, rounded.data(), 0);
    sum = rank == 0 ? value : combine_float(sample.op, sum, value);
  }
  return sum * sample.postscale / (sample.op == ReduceOp::kAverage ? ranks : 1);
}

double load_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const double mantissa = bits & 0x3ff;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25));
}

std::uint16_t half_of(double value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) return 0x7e00;
  if (magnitude >= 65520.0) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (magnitude == 0.0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), -14);
  const double units = std::nearbyint(std::ldexp(magnitude, 10 - exponent));  // 1024 to 2048, less for denormals
  return static_cast<std::uint16_t>(sign + (exponent + 14) * 1024 + static_cast<int>(units));
}

std::uint16_t bfloat_of(double value) {
  const auto narrow = static_cast<float>(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &narrow, sizeof(bits));
  if (std::isnan(value)) return 0x7fc0;
  const std::uint32_t rest = bits & 0xffffU;
  const bool up = rest > 0x8000U || (rest == 0x8000U && (bits & 0x10000U) != 0);
  return static_cast<std::uint16_t>((bits >> 16) + (up ? 1U : 0U));
}

double epsilon_of(DType dtype) {
  if (dtype == DType::kF16) return 0x1p-10;
  if (dtype == DType::kBF16) return 0x1p-7;
  return dtype == DType::kF32 ? 0x1p-23 : 0x1p-52;
}

}  // namespace

std::string describe(const Sample& sample) {
  return std::string(name_of(sample.dtype)) + " " + std::string(name_of(sample.op)) + " prescale " +
         std::to_string(sample.prescale) + " postscale " + std::to_string(sample.postscale) +
         (sample.values == Values::kRough ? " rough" : "");
}

double load(DType dtype, const std::byte* from, std::size_t i) {
  const std::byte* at = from + i * size_of(dtype);
  if (dtype == DType::kF64) {
    double value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return static_cast<double>(value);
  }
  if (!is_float(dtype)) return double_of(dtype, load_int(dtype, from, i));
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  if (dtype == DType::kF16) return load_half(bits);
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return static_cast<double>(value);
}

void store(DType dtype, std::byte* to, std::size_t i, double value) {
  std::byte* at = to + i * size_of(dtype);
  if (dtype == DType::kF64) {
    std::memcpy(at, &value, sizeof(value));
  } else if (dtype == DType::kF32) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(at, &narrow, sizeof(narrow));
  } else if (is_float(dtype)) {
    const std::uint16_t bits = dtype == DType::kF16 ? half_of(value) : bfloat_of(value);
    std::memcpy(at, &bits, sizeof(bits));
  } else {
    store_int(dtype, to, i, static_cast<std::int64_t>(value));
  }
}

Bytes input_of(const Sample& sample, int rank, std::size_t count, std::size_t from) {
  Bytes bytes(count * size_of(sample.dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t hash = hash_of(sample.seed, rank, from + i);
    if (is_complex(sample.dtype)) {
      store_complex(sample.dtype, bytes.data(), i, complex_value(sample, hash));
    } else if (is_float(sample.dtype)) {
      store(sample.dtype, bytes.data(), i, float_value(sample, hash));
    } else {
      store_int(sample.dtype, bytes.data(), i, int_value(sample, hash));
    }
  }
  return bytes;
}

Bytes allreduce_of(const Sample& sample, int ranks, std::size_t count, std::size_t from) {
  Bytes bytes(count * size_of(sample.dtype));
  for (std::size_t i = 0; i < count; ++i) {
    if (is_complex(sample.dtype)) {
      store_complex(sample.dtype, bytes.data(), i, reduced_complex(sample, ranks, from + i));
    } else if (is_float(sample.dtype)) {
      store(sample.dtype, bytes.data(), i, reduced_float(sample, ranks, from + i));
    } else {
      store_int(sample.dtype, bytes.data(), i, reduced_int(sample, ranks, from + i));
    }
  }
  return bytes;
}

std::string difference(const Sample& sample, int ranks, const std::byte* got, const Bytes& expected) {
  // memcmp() also is the only read of these bytes that ThreadSanitizer sees: it does not instrument this file.
  if (expected.empty() || std::memcmp(got, expected.data(), expected.size()) == 0) return {};
  const DType part = part_of(sample.dtype);
  const std::size_t size = size_of(part);
  const std::size_t count = expected.size() / size;
  // Rough sums may cancel out. Their error is therefore relative to the inputs (at most 1), not to the result.
  const bool rough = sample.values == Values::kRough;
  const double roundings = rough ? 4.0 * ranks : 1.0;
  const double scale = rough ? ranks * std::fabs(sample.prescale * sample.postscale) : 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    const double have = load(part, got, i);
    const double want = load(part, expected.data(), i);
    // The error of one part of a product is relative to both.
    const double other = part == sample.dtype ? 0.0 : load(part, expected.data(), i ^ 1U);
    const double allowed = epsilon_of(part) * roundings * std::max(std::hypot(want, other), scale);
    const bool same = is_float(part) ? std::fabs(have - want) <= allowed || (std::isnan(have) && std::isnan(want))
                                     : std::memcmp(got + i * size, expected.data() + i * size, size) == 0;
    if (!same) {
      return describe(sample) + ": element " + std::to_string(i) + " of " + std::to_string(count) + " is " +
             std::to_string(have) + ", not " + std::to_string(want);
    }
  }
  return {};
}

}  // namespace distrun::test
