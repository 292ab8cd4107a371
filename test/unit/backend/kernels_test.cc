#include "runtime/backend/kernels/kernels.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <complex>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "test/backend/reference.h"

namespace distrun::backend::kernels {
namespace {

using test::Bytes;
using test::load;
using test::store;

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

// Random bits, which include NaNs of every kind, infinities and denormals.
Bytes random_bits(std::size_t bytes, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes out(bytes);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random() & 0xff);
  // Every 16th byte pair looks like the top of a special value.
  for (std::size_t i = 1; i < bytes; i += 16) out[i] = static_cast<std::byte>(i % 3 == 0 ? 0x7f : 0xff);
  return out;
}

std::vector<const std::byte*> pointers(const std::vector<Bytes>& sources, std::size_t offset) {
  std::vector<const std::byte*> at;
  for (const Bytes& source : sources) at.push_back(source.data() + offset);
  return at;
}

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Reduces literal values at every level. The levels must agree; returns the result of the first one.
template <class T>
std::vector<T> reduced(const Reduction& what, const std::vector<std::vector<T>>& sources) {
  std::vector<Bytes> inputs;
  for (const auto& source : sources) inputs.push_back(bytes_of(source));
  std::vector<T> out(sources[0].size());
  reduce(what, pointers(inputs, 0), reinterpret_cast<std::byte*>(out.data()), out.size());
  return out;
}

}  // namespace

TEST_CASE("kernels: every instruction set gives the same bits, on any input, aligned or not") {
  constexpr std::size_t kCount = 1300;  // more than two blocks, and a tail
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    for (const ReduceOp op : kOps) {
      // A product of complex numbers keeps no particular NaN.
      if (!can_reduce(dtype, op) || traits_of(dtype).family == DTypeFamily::kComplex) continue;
      for (const std::size_t n : {1U, 2U, 3U, 5U}) {
        for (const Finish finish : {Finish{}, Finish{.factor = 0.3}, Finish{.divisor = 7}, Finish{-2.5, 3}}) {
          std::vector<Bytes> inputs;
          for (std::uint32_t s = 0; s < n; ++s) inputs.push_back(random_bits(kCount * 8 + 1, s + 1));
          const Reduction what = {.dtype = dtype, .op = op, .finish = finish};
          const std::size_t offset = n % 2;
          const std::size_t bytes = kCount * size_of(dtype);
          Bytes expected(bytes + 1, std::byte{1});
          reduce_at(Level::kPortable, what, pointers(inputs, offset), expected.data() + offset, kCount);
          for (const Level level : kLevels) {
            if (!supported(level)) continue;
            for (const bool stream : {false, true}) {
              Bytes got(bytes + 1, std::byte{1});
              reduce_at(level, what, pointers(inputs, offset), got.data() + offset, kCount, stream);
              INFO(name_of(level) << " " << name_of(dtype) << " " << name_of(op) << " of " << n << " factor "
                                  << finish.factor << " divisor " << finish.divisor << " stream " << stream);
              REQUIRE(got == expected);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("kernels: the same as scalar code, for every count up to a few vectors") {
  for (int d = 0; d < kNumDTypes; ++d) {
    for (const ReduceOp op : kOps) {
      if (!can_reduce(static_cast<DType>(d), op)) continue;
      const test::Sample sample = {
          .dtype = static_cast<DType>(d), .op = op, .postscale = 2.0, .values = test::Values::kRough};
      for (std::size_t count = 0; count < 70; ++count) {
        std::vector<Bytes> inputs;
        for (int rank = 0; rank < 3; ++rank) inputs.push_back(test::input_of(sample, rank, count));
        Bytes got(count * size_of(sample.dtype));
        reduce({.dtype = sample.dtype, .op = op, .finish = finish_of(op, 2.0, 3)}, pointers(inputs, 0), got.data(),
               count);
        REQUIRE(test::difference(sample, 3, got.data(), test::allreduce_of(sample, 3, count)).empty());
      }
    }
  }
}

TEST_CASE("kernels: the output may be one of the sources") {
  for (const Level level : kLevels) {
    if (!supported(level)) continue;
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kI8}) {
      const std::vector<Bytes> inputs = {random_bits(6000, 1), random_bits(6000, 2), random_bits(6000, 3)};
      const Reduction what = {.dtype = dtype, .op = ReduceOp::kMax};
      Bytes expected(1000 * size_of(dtype));
      reduce_at(level, what, pointers(inputs, 0), expected.data(), 1000);
      for (std::size_t target = 0; target < 3; ++target) {
        std::vector<Bytes> copies = inputs;
        reduce_at(level, what, pointers(copies, 0), copies[target].data(), 1000);
        copies[target].resize(expected.size());
        CHECK(copies[target] == expected);
      }
    }
  }
}

TEST_CASE("kernels: all 65536 halves and bfloat16 values, scaled and rounded to nearest even") {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<std::uint16_t> all(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    const Bytes input = bytes_of(all);
    for (const float factor : {0.5F, 1.0F / 3, 1.0009765625F, 3.0F, 0.001F, 40000.0F, -1.0F}) {
      Bytes expected(input.size());
      for (std::size_t i = 0; i < all.size(); ++i) {
        store(dtype, expected.data(), i,
              static_cast<double>(static_cast<float>(load(dtype, input.data(), i)) * factor));
      }
      for (const Level level : kLevels) {
        if (!supported(level)) continue;
        Bytes got(input.size());
        scale_at(level, dtype, static_cast<double>(factor), input.data(), got.data(), all.size());
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < all.size(); ++i) {
          const bool nan = std::isnan(load(dtype, input.data(), i));
          const bool same =
              nan ? std::isnan(load(dtype, got.data(), i)) : std::memcmp(&got[2 * i], &expected[2 * i], 2) == 0;
          if (!same) ++wrong;
        }
        INFO(name_of(level) << " " << name_of(dtype) << " times " << factor);
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("kernels: integers wrap in sums and products, truncate in averages and saturate when scaled") {
  const Reduction sum = {.dtype = DType::kI8, .op = ReduceOp::kSum};
  CHECK(reduced<std::int8_t>(sum, {{127, -128, 100}, {1, -1, 100}}) == std::vector<std::int8_t>{-128, 127, -56});
  const Reduction product = {.dtype = DType::kI32, .op = ReduceOp::kProduct};
  CHECK(reduced<std::int32_t>(product, {{1 << 30, 3}, {4, -5}}) == std::vector<std::int32_t>{0, -15});
  const Reduction average = {.dtype = DType::kI32, .finish = finish_of(ReduceOp::kAverage, 1.0, 2)};
  CHECK(reduced<std::int32_t>(average, {{3, -3, 7}, {0, 0, 7}}) == std::vector<std::int32_t>{1, -1, 7});
  // 49 * (1.0 / 49) is less than 1 in floating point: an average must divide.
  const Reduction of_49 = {.dtype = DType::kI64, .finish = finish_of(ReduceOp::kAverage, 1.0, 49)};
  CHECK(reduced<std::int64_t>(of_49, {{49, (std::int64_t{1} << 60) + 7}})[0] == 1);
  CHECK(reduced<std::int64_t>(of_49, {{49, (std::int64_t{1} << 60) + 7}})[1] == ((std::int64_t{1} << 60) + 7) / 49);

  const Reduction large = {.dtype = DType::kI64, .finish = {.factor = 1e300}};
  constexpr auto kHigh = std::numeric_limits<std::int64_t>::max();
  constexpr auto kLow = std::numeric_limits<std::int64_t>::min();
  CHECK(reduced<std::int64_t>(large, {{1, -1, 0}}) == std::vector<std::int64_t>{kHigh, kLow, 0});
  const Reduction negative = {.dtype = DType::kU8, .finish = {.factor = -2.0}};
  CHECK(reduced<std::uint8_t>(negative, {{1, 0}}) == std::vector<std::uint8_t>{0, 0});
  const Reduction triple = {.dtype = DType::kU8, .finish = {.factor = 3.5}};
  CHECK(reduced<std::uint8_t>(triple, {{1, 72, 73}}) == std::vector<std::uint8_t>{3, 252, 255});
  const Reduction nan = {.dtype = DType::kI16, .finish = {.factor = std::numeric_limits<double>::quiet_NaN()}};
  CHECK(reduced<std::int16_t>(nan, {{5}}) == std::vector<std::int16_t>{0});
}

TEST_CASE("kernels: unsigned integers of all sizes use their whole range") {
  constexpr std::uint64_t kTop = std::numeric_limits<std::uint64_t>::max();
  const Reduction average = {.dtype = DType::kU64, .finish = finish_of(ReduceOp::kAverage, 1.0, 3)};
  CHECK(reduced<std::uint64_t>(average, {{kTop - 1, kTop}}) == std::vector<std::uint64_t>{(kTop - 1) / 3, kTop / 3});
  const Reduction most = {.dtype = DType::kU64, .op = ReduceOp::kMax};
  CHECK(reduced<std::uint64_t>(most, {{kTop, 1}, {1, 2}}) == std::vector<std::uint64_t>{kTop, 2});
  const Reduction half = {.dtype = DType::kU64, .finish = {.factor = 0.5}};
  CHECK(reduced<std::uint64_t>(half, {{std::uint64_t{1} << 63}})[0] == std::uint64_t{1} << 62);
  const Reduction large = {.dtype = DType::kU64, .finish = {.factor = 1e300}};
  CHECK(reduced<std::uint64_t>(large, {{1}})[0] == kTop);
  const Reduction sum = {.dtype = DType::kU16};
  CHECK(reduced<std::uint16_t>(sum, {{65535, 7}, {2, 8}}) == std::vector<std::uint16_t>{1, 15});
  const Reduction third = {.dtype = DType::kU32, .finish = finish_of(ReduceOp::kAverage, 1.0, 3)};
  CHECK(reduced<std::uint32_t>(third, {{4294967295U}})[0] == 1431655765U);
}

TEST_CASE("kernels: complex numbers are added by part and multiplied as complex, at every level") {
  const auto both = [](auto zero) {
    using Complex = std::complex<decltype(zero)>;
    constexpr DType kType = sizeof(zero) == sizeof(float) ? DType::kC64 : DType::kC128;
    const std::vector<std::vector<Complex>> sources = {{{1, 2}, {0, 1}}, {{3, -1}, {0, 1}}, {{-2, 5}, {0, 2}}};
    CHECK(reduced<Complex>({.dtype = kType}, sources) == std::vector<Complex>{{2, 6}, {0, 4}});
    CHECK(reduced<Complex>({.dtype = kType, .op = ReduceOp::kProduct}, sources) ==
          std::vector<Complex>{{-35, 15}, {0, -2}});
    const Reduction average = {.dtype = kType, .finish = finish_of(ReduceOp::kAverage, 3.0, 3)};
    CHECK(reduced<Complex>(average, sources) == std::vector<Complex>{{2, 6}, {0, 4}});
    const Reduction scaled = {.dtype = kType, .op = ReduceOp::kProduct, .finish = {.factor = 0.5}};
    CHECK(reduced<Complex>(scaled, sources) == std::vector<Complex>{{-17.5, 7.5}, {0, -1}});
    for (const Level level : kLevels) {
      if (!supported(level)) continue;
      const std::vector<Complex> many(1300, {1, 1});
      const Bytes input = bytes_of(many);
      Bytes got(input.size());
      reduce_at(level, {.dtype = kType, .op = ReduceOp::kProduct}, pointers({input, input, input}, 0), got.data(),
                many.size());
      INFO(name_of(level));
      CHECK(got == bytes_of(std::vector<Complex>(1300, {-2, 2})));
    }
  };
  both(0.0F);
  both(0.0);
}

TEST_CASE("kernels: a product of complex numbers rounds each step at every level, whatever the order of the factors") {
  const auto check = [](auto zero) {
    using Real = decltype(zero);
    using Complex = std::complex<Real>;
    constexpr DType kType = sizeof(zero) == sizeof(float) ? DType::kC64 : DType::kC128;
    constexpr std::size_t kCount = 1300;
    const test::Sample sample = {.dtype = kType, .op = ReduceOp::kProduct, .values = test::Values::kRough};
    const Bytes inputs[] = {test::input_of(sample, 0, kCount), test::input_of(sample, 1, kCount)};
    std::vector<Complex> factors[2], expected;
    for (int i = 0; i < 2; ++i) {
      factors[i].resize(kCount);
      std::memcpy(factors[i].data(), inputs[i].data(), inputs[i].size());
    }
    const auto times = [](Real a, Real b) {
      const volatile Real product = a * b;  // rounded: a compiler cannot make one step of it and of a sum
      return Real{product};
    };
    for (std::size_t i = 0; i < kCount; ++i) {
      const Complex a = factors[0][i], b = factors[1][i];
      expected.emplace_back(times(a.real(), b.real()) - times(a.imag(), b.imag()),
                            times(a.real(), b.imag()) + times(a.imag(), b.real()));
    }
    for (const Level level : kLevels) {
      if (!supported(level)) continue;
      for (const int first : {0, 1}) {
        Bytes got(inputs[0].size());
        const std::vector<const std::byte*> sources = {inputs[first].data(), inputs[1 - first].data()};
        reduce_at(level, {.dtype = kType, .op = ReduceOp::kProduct}, sources, got.data(), kCount);
        INFO(name_of(level) << " " << name_of(kType) << ", factor " << first << " first");
        CHECK(std::memcmp(got.data(), expected.data(), got.size()) == 0);
      }
    }
  };
  check(0.0F);
  check(0.0);
}

TEST_CASE("kernels: bool is or and and, and ignores scales") {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kAverage}) {
    const Reduction any = {.dtype = DType::kBool, .op = op, .finish = finish_of(op, 0.25, 2)};
    CHECK(reduced<std::uint8_t>(any, {{0, 1, 0, 2}, {0, 0, 1, 255}}) == std::vector<std::uint8_t>{0, 1, 1, 1});
  }
  for (const ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin}) {
    const Reduction all = {.dtype = DType::kBool, .op = op};
    CHECK(reduced<std::uint8_t>(all, {{0, 1, 0, 2}, {0, 0, 1, 255}}) == std::vector<std::uint8_t>{0, 0, 0, 1});
  }
}

TEST_CASE("kernels: a NaN on either side wins, of equal zeros the first stays") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const auto out = reduced<float>({.dtype = DType::kF32, .op = op}, {{nan, 1, 0.0F, -0.0F}, {1, nan, -0.0F, 0.0F}});
    CHECK(std::isnan(out[0]));
    CHECK(std::isnan(out[1]));
    CHECK_FALSE(std::signbit(out[2]));
    CHECK(std::signbit(out[3]));
  }
}

TEST_CASE("kernels: the sources are taken from left to right") {
  const Reduction sum = {.dtype = DType::kF32};
  CHECK(reduced<float>(sum, {{1e30F}, {-1e30F}, {1.0F}}) == std::vector<float>{1.0F});
  CHECK(reduced<float>(sum, {{1.0F}, {1e30F}, {-1e30F}}) == std::vector<float>{0.0F});
}

TEST_CASE("kernels: half precision is rounded once, after the last source") {
  const auto check = [](DType dtype, ReduceOp op, const std::vector<double>& sources, double expected) {
    constexpr std::size_t kCount = 100;
    std::vector<Bytes> inputs(sources.size(), Bytes(kCount * size_of(dtype)));
    for (std::size_t s = 0; s < sources.size(); ++s) {
      for (std::size_t i = 0; i < kCount; ++i) store(dtype, inputs[s].data(), i, sources[s]);
    }
    const Reduction what = {.dtype = dtype, .op = op, .finish = finish_of(op, 1.0, sources.size())};
    for (const Level level : kLevels) {
      if (!supported(level)) continue;
      Bytes got(kCount * size_of(dtype));
      reduce_at(level, what, pointers(inputs, 0), got.data(), kCount);
      INFO(name_of(level) << " " << name_of(dtype) << " " << name_of(op) << " of " << sources.size());
      for (const std::size_t i : {std::size_t{0}, kCount - 1}) CHECK(load(dtype, got.data(), i) == expected);
    }
  };
  // 1 is half a unit in the last place of the sum. A sum that is rounded at each source would not change.
  check(DType::kF16, ReduceOp::kSum, {2048, 1, 1}, 2050);
  check(DType::kF16, ReduceOp::kSum, {2048, 1, 1, 1, 1, 1, 1, 0}, 2054);
  check(DType::kBF16, ReduceOp::kSum, {256, 1, 1}, 258);
  check(DType::kBF16, ReduceOp::kSum, {256, 1, 1, 1, 1, 1, 1, 0}, 262);
  check(DType::kF16, ReduceOp::kAverage, {60000, 60000}, 60000);
  check(DType::kF16, ReduceOp::kAverage, {60000, 60000, 60000}, 60000);
}

#if defined(__x86_64__)
TEST_CASE("kernels: a thread that flushes denormals gets the same bits, and keeps its mode") {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040U);  // flush to zero, denormals are zero
  const auto sum = reduced<float>({.dtype = DType::kF32}, {{tiny}, {tiny}});
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  CHECK(sum[0] == 2 * tiny);
  CHECK((after & 0x8040U) == 0x8040U);
}

TEST_CASE(
    "kernels: a thread that rounds another way, or traps, gets the same averages and scales, and keeps its mode") {
  constexpr double kTenth = 0.1;
  const auto all = [](auto zero) {
    using T = decltype(zero);
    constexpr DType kType = sizeof(T) == sizeof(float) ? DType::kF32 : DType::kF64;
    std::vector<T> results;
    for (const std::size_t members : {std::size_t{3}, std::size_t{6}, std::size_t{11}}) {
      const std::vector<std::vector<T>> sources(members, {T{1}, T{5}});
      const Reduction average = {.dtype = kType, .finish = finish_of(ReduceOp::kAverage, 1.0, members)};
      std::ranges::copy(reduced<T>(average, sources), std::back_inserter(results));
      const std::vector<T> in = {T{1}, T{5}};
      std::vector<T> out(in.size());
      scale(kType, kTenth, reinterpret_cast<const std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data()),
            in.size());
      std::ranges::copy(out, std::back_inserter(results));
    }
    return results;
  };
  const auto singles = all(0.0F);
  const auto doubles = all(0.0);
  const unsigned before = _mm_getcsr();
  for (const unsigned mode : {before | 0x2000U, before | 0x4000U, before & ~0x1000U}) {  // down, up, inexact traps
    _mm_setcsr(mode);
    const auto singles_so = all(0.0F);
    const auto doubles_so = all(0.0);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    INFO("mode " << mode);
    CHECK(singles_so == singles);
    CHECK(doubles_so == doubles);
    CHECK((after & 0xffc0U) == (mode & 0xffc0U));
  }
}
#endif

}  // namespace distrun::backend::kernels
