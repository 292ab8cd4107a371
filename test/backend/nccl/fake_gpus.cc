#include "test/backend/nccl/fake_gpus.h"

#include <algorithm>

#include "test/backend/nccl/fake_world.h"

namespace distrun::test::fake_gpus {

World& world() {
  static auto* const only = new World();
  return *only;
}

int World::note(const std::string& symbol, const std::string& details) {
  constexpr std::size_t kMostCalls = 1 << 16;  // a whole suite makes more calls, and no test reads them
  if (calls.size() >= kMostCalls) calls.clear();
  calls.push_back(details.empty() ? symbol : symbol + " " + details);
  const auto found = failures.find(symbol);
  if (found == failures.end() || found->second.empty()) return 0;
  const int code = found->second.front();
  found->second.pop_front();
  return code;
}

void World::pump() {
  for (bool any = true; any;) {
    any = false;
    const auto move = [&any](Stream& stream) {
      while (!stream.work.empty() && stream.work.front()()) {
        stream.work.pop_front();
        any = true;
      }
    };
    for (const auto& stream : streams) move(*stream);
    for (const auto& [index, device] : devices) move(device->legacy);
  }
}

void World::put(Stream* stream, Work work) {
  if (stream == nullptr || stream->gone) return fault("work for a stream that is gone");
  stream->work.push_back(std::move(work));
  moved();
}

bool World::has_collectives(const Device* device) const {
  return std::ranges::any_of(
      streams, [device](const auto& stream) { return stream->device == device && stream->collectives > 0; });
}

bool World::stands_still(const Device* device) const {
  return std::ranges::any_of(
      comms, [device](const auto& comm) { return comm->device == device && comm->on_device > 0 && !comm->aborted; });
}

backend::nccl_plugin::Libraries libraries(int nccl_version) {
  backend::nccl_plugin::Libraries made;
  fill_cuda(made.cuda);
  fill_nccl(made.nccl);
  world().nccl_version = made.nccl_version = nccl_version;
  made.nccl_text = "NCCL of the fake";
  return made;
}

void reset() {
  World& it = world();
  const Lock lock(it.mutex);
  it.held = it.capturing = false;
  it.lag = it.broken = 0;
  it.failures.clear();
  it.calls.clear();
  it.faults.clear();
  it.comms.clear();
  it.fabrics.clear();
  it.streams.clear();
  it.events.clear();
  it.devices.clear();
}

void hold(bool held) {
  const Lock lock(world().mutex);
  world().held = held;
  world().moved();
}

void run() {
  const Lock lock(world().mutex);
  world().pump();
}

void lag(int times) {
  const Lock lock(world().mutex);
  world().lag = times;
}

void fail(const std::string& symbol, int code, int skip, int times) {
  const Lock lock(world().mutex);
  auto& codes = world().failures[symbol];
  codes.assign(static_cast<std::size_t>(skip), 0);
  codes.insert(codes.end(), static_cast<std::size_t>(times), code);
}

void break_communicators(int code) {
  const Lock lock(world().mutex);
  world().broken = code;
}

void capture_streams(bool capturing) {
  const Lock lock(world().mutex);
  world().capturing = capturing;
}

std::vector<std::string> calls() {
  const Lock lock(world().mutex);
  return world().calls;
}

std::string calls_of(const std::vector<std::string>& symbols) {
  std::string text;
  for (const std::string& call : calls()) {
    const std::string symbol = call.substr(0, call.find(' '));
    if (std::find(symbols.begin(), symbols.end(), symbol) == symbols.end()) continue;
    text += (text.empty() ? "" : "; ") + call;
  }
  return text;
}

void forget_calls() {
  const Lock lock(world().mutex);
  world().calls.clear();
}

void forget_faults() {
  const Lock lock(world().mutex);
  world().faults.clear();
}

std::vector<std::string> faults() {
  const Lock lock(world().mutex);
  return world().faults;
}

}  // namespace distrun::test::fake_gpus
