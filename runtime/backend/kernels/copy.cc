#include "runtime/backend/kernels/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace distrun::backend::kernels {
namespace {

// Bytes in front of the first whole line of the destination, at most `bytes`.
std::size_t head_of(const std::byte* to, std::size_t bytes) {
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(to) % kLine;
  return std::min(misaligned == 0 ? 0 : kLine - misaligned, bytes);
}

}  // namespace

void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t head = head_of(to, bytes);
  if (head > 0) std::memcpy(to, from, head);
  if (bytes > head) std::memcpy(to + head, from + head, bytes - head);
}

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
#if defined(__x86_64__)
  // Whole lines only: a partly written line costs a read of the rest from memory. The fence waits for the lines to
  // leave, so a few of them are not worth it.
  constexpr std::size_t kWorthIt = 1024;
  if (bytes < kWorthIt) return copy(to, from, bytes);
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
