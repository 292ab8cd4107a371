#include "test/backend/nccl/fake_remote.h"

#include <thread>

#include "test/backend/nccl/fake_gpus.h"
#include "test/backend/nccl/fake_world.h"

namespace distrun::test::fake_gpus {
namespace {

int context_of(void* stream, void** context) {
  const Lock lock(world().mutex);
  *context = static_cast<Stream*>(stream)->device;
  return world().note("cuStreamGetCtx", "");
}

int current_device(int* device) {
  *device = current_gpu();
  return *device < 0 ? 201 : 0;
}

int synchronize(void* given) {
  const auto* stream = static_cast<const Stream*>(given);
  {
    const Lock lock(world().mutex);
    if (const int code = world().note("cuStreamSynchronize", "s" + std::to_string(stream->number)); code != 0) {
      return code;
    }
  }
  const auto rests = [stream] {
    const Lock lock(world().mutex);
    return stream->work.empty();
  };
  while (!rests()) std::this_thread::yield();
  return 0;
}

std::shared_ptr<bool> close_gate(void* stream) {
  const Lock lock(world().mutex);
  auto gate = std::make_shared<bool>(false);
  world().put(static_cast<Stream*>(stream), [gate] { return *gate; });
  return gate;
}

void open_gate(const std::shared_ptr<bool>& gate) {
  const Lock lock(world().mutex);
  *gate = true;
  world().pump();
}

std::string name_of(void* stream) { return "s" + std::to_string(static_cast<Stream*>(stream)->number); }

}  // namespace
}  // namespace distrun::test::fake_gpus

extern "C" __attribute__((visibility("default"))) const distrun::test::FakeRemote* distrun_fake_remote() {
  using namespace distrun::test::fake_gpus;  // NOLINT(google-build-using-namespace): all of it is that
  static const distrun::backend::nccl_plugin::Libraries fake = libraries();
  static const distrun::test::FakeRemote only = {
      .cuda = &fake.cuda,
      .context_of = context_of,
      .current_device = current_device,
      .synchronize = synchronize,
      .fail = fail,
      .capture_streams = capture_streams,
      .calls_of = calls_of,
      .forget_calls = forget_calls,
      .faults = faults,
      .close_gate = close_gate,
      .open_gate = open_gate,
      .name_of = name_of,
  };
  return &only;
}
