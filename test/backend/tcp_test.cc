// The conformance suite on the backend `tcp`. With TEST_ENCRYPT or TEST_CHECKSUM, each rank is on a different host.
#include "runtime/backend/tcp/ring.h"
#include "runtime/backend/tcp/tcp_backend.h"
#include "runtime/base/settings.h"
#include "test/backend/group_fixtures.h"
#include "test/backend/tcp_making.h"

namespace distrun::test {
namespace {

// Small chunks, so that small tensors take the paths of large ones, and tests with sanitizers are fast. Forked ranks
// use the default tuning.
constexpr backend::tcp::Tuning kTuning{.chunk_bytes = 4096, .window = 3, .gather_bytes = 2048};

#if defined(TEST_ENCRYPT)
const Settings* protecting() {
  static const Settings settings{.encrypt = true};
  return &settings;
}
#elif defined(TEST_CHECKSUM)
const Settings* protecting() {
  static const Settings settings{.checksum = true};
  return &settings;
}
#else
const Settings* protecting() { return nullptr; }
#endif

Result<std::unique_ptr<backend::Backend>> make_small(const backend::GroupSpec& group, const backend::Services& services,
                                                     TimePoint deadline) {
  auto ring = backend::tcp::make_ring(group, services, deadline);
  if (!ring.ok()) return ring.status();
  // A run without protection would not test protection.
  const bool protects = ring->right_records != nullptr;
  if (protects != (protecting() != nullptr && group.members.size() > 1)) return Status(Errc::kInternal, "protection");
  return backend::tcp::TcpBackend::create(
      {.ring = *std::move(ring), .group = group, .services = services, .tuning = kTuning});
}

}  // namespace

const Subject& subject() {
  static const Subject tcp = {
      .name = "tcp",
      .sizes = {1, 2, 3, 4, 5, 8},
      .make = [](int size) { return std::make_unique<ThreadGroup>(size, make_small, protecting()); },
      .forked = [](int size) { return std::make_unique<ProcessGroup>(size, make_tcp); },
      // Sizes that 8, 4 and 2 ranks gather; a chunk; a window of chunks of two and of four ranks.
      .boundaries = {256, 512, 1024, 4096, 24576, 49152}};
  return tcp;
}

}  // namespace distrun::test
