// The conformance suite on the backend `tcp`; with TEST_ENCRYPT or TEST_CHECKSUM between hosts of one rank each.
#include "runtime/backend/tcp/ring.h"
#include "runtime/backend/tcp/tcp_backend.h"
#include "runtime/base/settings.h"
#include "test/backend/group_fixtures.h"
#include "test/backend/tcp_making.h"

namespace distrun::test {
namespace {

// Small chunks: everything that happens to large tensors happens to small ones, also under sanitizers. The processes
// run with what users run with.
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
  // The suite shows nothing about protection unless there is some.
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
      // Gathered by 8, 4 and 2 ranks; a chunk; a window of two and of four ranks' chunks.
      .boundaries = {256, 512, 1024, 4096, 24576, 49152}};
  return tcp;
}

}  // namespace distrun::test
