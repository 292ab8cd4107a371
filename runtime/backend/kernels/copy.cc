#include "runtime/backend/kernels/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/backend/kernels/table.h"

namespace distrun::backend::kernels {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLikelyByString = 1024;  // from this size on, memcpy() may use `rep movsb`

// Bytes before the first whole cache line of the destination, at most `bytes`.
std::size_t head_of(const std::byte* to, std::size_t bytes) {
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(to) % kLine;
  return std::min(misaligned == 0 ? 0 : kLine - misaligned, bytes);
}

// Whether the page offset of `to` is a few bytes greater than that of `from`. Processors compare page offsets to guess
// whether a load depends on an earlier store.
bool follows_closely(const std::byte* to, const std::byte* from) {
  const std::size_t behind = (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % kPage;
  return behind > 0 && behind < kLine;
}

}  // namespace

void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t head = head_of(to, bytes);
  if (head > 0) std::memcpy(to, from, head);
  std::size_t at = head;
  if (bytes - head >= kLikelyByString && follows_closely(to, from)) {
    const std::size_t blocks = (bytes - head) / kCopyBlock * kCopyBlock;
    best_table().copy(to + head, from + head, blocks);
    at += blocks;
  }
  if (bytes > at) std::memcpy(to + at, from + at, bytes - at);
}

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
#if defined(__x86_64__)
  // Only whole lines: a partly written line needs a read of its rest from memory. The fence waits until the lines are
  // written, so it does not pay for a few lines.
  constexpr std::size_t kMinBytes = 1024;
  if (bytes < kMinBytes) return copy(to, from, bytes);
  const std::size_t head = head_of(to, bytes);
  if (head > 0) std::memcpy(to, from, head);
  std::size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    __m128i parts[4];
    for (std::size_t i = 0; i < 4; ++i) parts[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at) + i);
    for (std::size_t i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to + at) + i, parts[i]);
  }
  if (at < bytes) std::memcpy(to + at, from + at, bytes - at);
  _mm_sfence();
#else
  copy(to, from, bytes);
#endif
}

}  // namespace distrun::backend::kernels
