// What a launcher that started the ranks offers for their first meeting: rank 0 gives a text, all ranks get it. It
// speaks to the launcher's own process on this host, over what the launcher handed down (PMI) or told (PMIx).
// Destroying it tells the launcher that this process ends in good order; so it lives as long as the process.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/launchers/other_launcher.h"

namespace distrun::net {

// PMI's most is 1024, with the end of the string.
inline constexpr std::size_t kMaxSharedText = 1000;

class SpawnerExchange {
 public:
  virtual ~SpawnerExchange() = default;
  // The number of ranks, where the variables do not tell it.
  virtual Result<int> size(TimePoint deadline) = 0;
  // Collective, once. `text` counts on rank 0 only; no spaces, '=' or line ends in it. kTimeout when ranks do not come.
  virtual Result<std::string> share(const std::string& text, TimePoint deadline) = 0;
};

// `launcher` says which exchange there is.
Result<std::unique_ptr<SpawnerExchange>> open_exchange(const OtherLauncher& launcher, TimePoint deadline);

// The kinds.
Result<std::unique_ptr<SpawnerExchange>> open_pmi(int fd, int rank, TimePoint deadline);
Result<std::unique_ptr<SpawnerExchange>> open_pmix(int rank, const std::vector<std::string>& folders);

}  // namespace distrun::net
