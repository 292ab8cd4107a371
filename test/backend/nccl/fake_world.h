// The state behind fake_gpus.h: streams, events and communicators. All under one lock.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/backend/nccl/nccl_api.h"

namespace distrun::test::fake_gpus {

using Work = std::function<bool()>;  // false: not yet
inline constexpr const char* kTooEarly = " while NCCL's work is on the GPU";

struct Device;
struct Stream {
  Device* device = nullptr;
  int number = 0;
  bool gone = false;
  int collectives = 0;  // of NCCL's that are on it and not over
  std::deque<Work> work;
};
struct Event {
  std::uint64_t recorded = 0;
  std::uint64_t reached = 0;
  bool gone = false;
};
struct Device {
  int index = 0;
  Stream legacy;
};

// What the members of one communicator share.
struct Fabric {
  struct Part {
    const void* in = nullptr;
    void* out = nullptr;
  };
  struct Round {
    std::map<int, Part> parts;  // by member
    int left = 0;               // members that have seen its end
    bool done = false;
  };
  int members = 0;
  int joined = 0;
  int closed = 0;
  std::map<std::uint64_t, Round> rounds;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> sent;  // from, to
};
struct Comm {
  Fabric* fabric = nullptr;
  int index = 0;
  Device* device = nullptr;
  int on_device = 0;  // collectives that are on it and not over
  bool aborted = false;
  bool finalized = false;
  int pending = 0;  // questions to be answered with "in progress"
  std::uint64_t next_round = 0;
  std::vector<std::pair<Stream*, Work>> untaken;
};

struct World {
  std::recursive_mutex mutex;
  bool held = false;
  int lag = 0;
  int broken = 0;
  int nccl_version = 0;
  bool capturing = false;
  std::map<std::string, std::deque<int>> failures;  // 0: this one succeeds
  std::vector<std::string> calls;
  std::vector<std::string> faults;
  std::map<int, std::unique_ptr<Device>> devices;
  std::deque<std::unique_ptr<Stream>> streams;
  std::deque<std::unique_ptr<Event>> events;
  std::deque<std::unique_ptr<Comm>> comms;
  std::map<std::string, std::unique_ptr<Fabric>> fabrics;
  std::uint64_t next_id = 1;

  // Notes the call; the code that it is to fail with, 0 for none.
  int note(const std::string& symbol, const std::string& details);
  void pump();  // moves every stream as far as it can
  void moved() {
    if (!held) pump();
  }
  void put(Stream* stream, Work work);
  Stream* stream_of(void* stream);  // the current GPU's own for null
  bool has_collectives(const Device* device) const;
  bool stands_still(const Device* device) const;  // for a collective that no abort has reached
  void fault(const std::string& text) { faults.push_back(text); }
};
World& world();

using Lock = std::lock_guard<std::recursive_mutex>;

void fill_cuda(backend::nccl_plugin::CudaApi& api);
void fill_nccl(backend::nccl_plugin::NcclApi& api);

}  // namespace distrun::test::fake_gpus
