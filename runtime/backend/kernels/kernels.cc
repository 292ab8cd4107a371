#include "runtime/backend/kernels/kernels.h"

#include <cstdint>
#include <initializer_list>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "runtime/backend/kernels/copy.h"
#include "runtime/backend/kernels/table.h"
#include "runtime/base/status.h"

namespace distrun::backend::kernels {
namespace {

// Sets the default floating-point mode for its scope. A caller's thread may flush denormals or round differently
// (torch.set_flush_denormal, libraries built with -ffast-math), and its results would then differ from the other ranks'
// results. If the mode is the default, this costs one register read.
class DefaultFloatMode {
 public:
#if defined(__x86_64__)
  DefaultFloatMode() : before_(_mm_getcsr()) {
    if (changed()) _mm_setcsr(kDefault);
  }
  ~DefaultFloatMode() {
    if (changed()) _mm_setcsr(before_);
  }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
  static constexpr unsigned kDefault = 0x1f80;  // round to nearest, no flushing, exceptions masked
  static constexpr unsigned kStatusFlags = 0x3f;
  [[nodiscard]] bool changed() const { return (before_ & ~kStatusFlags) != kDefault; }
  unsigned before_;
#else
  DefaultFloatMode() {}
#endif
};

const Table* table_of(Level level) {
#if defined(__x86_64__)
  if (level == Level::kAvx512) return avx512_table();
  if (level == Level::kAvx2) return avx2_table();
#endif
  return level == Level::kPortable ? &portable_table() : nullptr;
}

#if defined(__x86_64__)
// Reads CPUID directly, because clang 14's __builtin_cpu_supports does not know the name.
bool processor_has_f16c() {
  unsigned int eax = 0;
  unsigned int ebx = 0;
  unsigned int ecx = 0;
  unsigned int edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

bool processor_has(Level level) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && processor_has_f16c();
  if (level == Level::kAvx2) return avx2;
  if (level == Level::kAvx512) {
    return avx2 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  }
#endif
  return level == Level::kPortable;
}

int column_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return 0;
    case ReduceOp::kMin:
      return 1;
    case ReduceOp::kMax:
      return 2;
    case ReduceOp::kProduct:
      return 3;
  }
  DISTRUN_CHECK(false, "unknown reduce operation");
  return 0;
}

// Never inlined: the compiler assumes a fixed rounding mode, so it could move the division before the change of the
// mode.
__attribute__((noinline)) FinishArgs args_of(const Finish& finish) {
  const double both = finish.factor / static_cast<double>(finish.divisor);
  return {.identity = finish.factor == 1.0 && finish.divisor == 1,
          .f32 = static_cast<float>(both),
          .f64 = both,
          .factor = finish.factor,
          .divisor = finish.divisor};
}

void run(const Table& table, const Reduction& what, Sources sources, std::byte* out, std::size_t count,
         bool lines = false) {
  DISTRUN_CHECK(sources.count > 0, "a reduction needs a source");
  const DefaultFloatMode mode;
  FinishArgs finish = args_of(what.finish);
  finish.stream = lines;
  if (sources.count == 1 && finish.identity && what.dtype != DType::kBool) {
    if (out != sources.at[0]) copy(out, sources.at[0], count * size_of(what.dtype));
    return;
  }
  const ReduceFn reduce = table.reduce[static_cast<int>(what.dtype)][column_of(what.op)];
  DISTRUN_CHECK(reduce != nullptr, "a reduction that the dtype does not have");
  reduce(sources, out, count, finish);
}

// Writes the cache lines that `out` covers fully past the caches. The parts before and after them are written normally.
void reduce_with(const Table& table, const Reduction& what, Sources sources, std::byte* out, std::size_t count,
                 bool stream) {
  const std::size_t size = size_of(what.dtype);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(out) % kLine;
  const std::size_t head = misaligned == 0 ? 0 : (kLine - misaligned) / size;
  const std::size_t body = head < count ? (count - head) * size / kLine * kLine / size : 0;
  if (!stream || sources.count != 2 || misaligned % size != 0 || body == 0) {
    run(table, what, sources, out, count);
    return;
  }
  const auto part = [&](std::size_t from, std::size_t elements, bool lines) {
    const std::byte* const moved[] = {sources.at[0] + from * size, sources.at[1] + from * size};
    run(table, what, {.at = moved, .count = 2}, out + from * size, elements, lines);
  };
  part(0, head, false);
  part(head, body, true);
  part(head + body, count - head - body, false);
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace

const Table& best_table() {
  static const Table& table = *table_of(best_level());
  return table;
}

std::string_view name_of(Level level) {
  switch (level) {
    case Level::kPortable:
      return "portable";
    case Level::kAvx2:
      return "avx2";
    case Level::kAvx512:
      return "avx512";
  }
  return "unknown";
}

bool supported(Level level) { return processor_has(level); }

Level best_level() {
  for (const Level level : {Level::kAvx512, Level::kAvx2}) {
    if (supported(level)) return level;
  }
  return Level::kPortable;
}

Finish finish_of(ReduceOp op, double postscale, std::size_t group_size) {
  return {.factor = postscale, .divisor = op == ReduceOp::kAverage ? static_cast<std::int64_t>(group_size) : 1};
}

void reduce(const Reduction& what, std::span<const std::byte* const> sources, std::byte* out, std::size_t count,
            bool stream) {
  reduce_with(best_table(), what, {.at = sources.data(), .count = sources.size()}, out, count, stream);
}

void scale(DType dtype, double factor, const std::byte* in, std::byte* out, std::size_t count) {
  const Reduction what = {.dtype = dtype, .op = ReduceOp::kSum, .finish = {.factor = factor}};
  run(best_table(), what, {.at = &in, .count = 1}, out, count);
}

void reduce_at(Level level, const Reduction& what, std::span<const std::byte* const> sources, std::byte* out,
               std::size_t count, bool stream) {
  DISTRUN_CHECK(supported(level), "this processor lacks the instruction set");
  reduce_with(*table_of(level), what, {.at = sources.data(), .count = sources.size()}, out, count, stream);
}

void scale_at(Level level, DType dtype, double factor, const std::byte* in, std::byte* out, std::size_t count) {
  DISTRUN_CHECK(supported(level), "this processor lacks the instruction set");
  const Reduction what = {.dtype = dtype, .op = ReduceOp::kSum, .finish = {.factor = factor}};
  run(*table_of(level), what, {.at = &in, .count = 1}, out, count);
}

}  // namespace distrun::backend::kernels
