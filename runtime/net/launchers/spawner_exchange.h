// The exchange that another launcher offers to the ranks it started: rank 0 provides a text, and all ranks get it. It
// talks to the launcher's process on this host, over an inherited descriptor (PMI) or an address from variables (PMIx).
// The destructor tells the launcher that this process ends in good order, so the object must live as long as the
// process.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/launchers/other_launcher.h"

namespace distrun::net {

// The limit of PMI is 1024 bytes, with the terminating zero.
inline constexpr std::size_t kMaxSharedText = 1000;

class SpawnerExchange {
 public:
  virtual ~SpawnerExchange() = default;
  // The number of ranks, if the variables do not contain it.
  virtual Result<int> size(TimePoint deadline) = 0;
  // Collective, once. Only rank 0's `text` is used; it has no spaces, '=' or line ends. kTimeout if some ranks do not
  // come.
  virtual Result<std::string> share(const std::string& text, TimePoint deadline) = 0;
};

// Opens the exchange that `launcher` names.
Result<std::unique_ptr<SpawnerExchange>> open_exchange(const OtherLauncher& launcher, TimePoint deadline);

// The implementations.
Result<std::unique_ptr<SpawnerExchange>> open_pmi(int fd, int rank, TimePoint deadline);
Result<std::unique_ptr<SpawnerExchange>> open_pmix(int rank, const std::vector<std::string>& folders);

}  // namespace distrun::net
