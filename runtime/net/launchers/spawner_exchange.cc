#include "runtime/net/launchers/spawner_exchange.h"

namespace distrun::net {

Result<std::unique_ptr<SpawnerExchange>> open_exchange(const OtherLauncher& launcher, TimePoint deadline) {
  if (launcher.exchange == OtherLauncher::Exchange::kPmi) return open_pmi(launcher.pmi_fd, launcher.rank, deadline);
  return open_pmix(launcher.rank, launcher.pmix_folders);
}

}  // namespace distrun::net
