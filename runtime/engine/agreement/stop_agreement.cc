#include "runtime/engine/agreement/stop_agreement.h"

#include <algorithm>
#include <utility>

namespace distrun::engine {

bool StopAgreement::asked(const std::string& cause) {
  if (std::exchange(asked_, true)) return false;
  cause_ = cause;
  return true;
}

void StopAgreement::counted(int rank, std::uint64_t calls) {
  Rank& r = ranks_.at(static_cast<std::size_t>(rank));
  if (!r.calls) r.calls = calls;
}

void StopAgreement::left(int rank) { ranks_.at(static_cast<std::size_t>(rank)).left = true; }

std::optional<std::uint64_t> StopAgreement::take() {
  if (!asked_ || taken_) return std::nullopt;
  std::uint64_t most = 0;
  for (const Rank& rank : ranks_) {
    if (!rank.calls && !rank.left) return std::nullopt;
    most = std::max(most, rank.calls.value_or(0));
  }
  taken_ = true;
  return most + 1;
}

}  // namespace distrun::engine
