// Everything that a group's operation needs from MPI.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/backend/mpi/library/process.h"
#include "runtime/backend/plugin/plugin_side.h"

namespace distrun::backend::mpi_plugin {

#if !defined(DISTRUN_MPI_LARGEST_COUNT)
#define DISTRUN_MPI_LARGEST_COUNT (std::uint64_t{1} << 30)  // smaller in a test
#endif
inline constexpr std::uint64_t kLargestCount = DISTRUN_MPI_LARGEST_COUNT;

// Tags of messages between two members of a communicator.
inline constexpr int kMessageTag = 1;
inline constexpr int kRingTag = 2;  // the first of kRingSlots tags

// Memory for the pieces that a ring receives. It is kept from one operation to the next, because fresh memory from the
// system costs more than the work on it.
inline constexpr std::uint64_t kPieceBytes = 512 << 10;
inline constexpr std::size_t kRingSlots = 4;  // pieces in flight at a time
using RingMemory = std::array<std::unique_ptr<std::byte[]>, kRingSlots>;

// The communicator of a group, with the values that its operations need.
struct Channel {
  Process* process = nullptr;
  RingMemory* memory = nullptr;
  Handle comm = nullptr;
  int index = 0;
  int members = 1;

  [[nodiscard]] const Functions& call() const { return process->library().call; }
  [[nodiscard]] Status check(int code, const char* what) const { return process->check(code, what); }
  [[nodiscard]] Handle type_of(const distrun_backend_operation& operation) const {
    return process->library().is.types[static_cast<std::size_t>(operation.dtype)];
  }
};

// Calls step(first, count) for pieces of at most kLargestCount, until one fails.
template <class Step>
Status in_pieces(std::uint64_t count, Step step) {
  for (std::uint64_t at = 0; at < count; at += kLargestCount) {
    DISTRUN_RETURN_IF_ERROR(step(at, static_cast<int>(std::min(kLargestCount, count - at))));
  }
  return {};
}

}  // namespace distrun::backend::mpi_plugin
