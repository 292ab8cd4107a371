// The state of the fake of fake_gpus.h: streams, events and communicators. One lock guards all of it.
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

using Work = std::function<bool()>;  // returns false if it cannot complete yet
inline constexpr const char* kTooEarly = " while NCCL's work is on the GPU";

struct Device;
struct Stream {
  Device* device = nullptr;
  int number = 0;
  bool gone = false;
  int collectives = 0;  // collectives of NCCL that are on it and not complete
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

// The state that the members of one communicator share.
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
  int on_device = 0;  // collectives that are on the device and not complete
  bool aborted = false;
  bool finalized = false;
  int pending = 0;  // how many more times it answers "in progress"
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
  std::map<std::string, std::deque<int>> failures;  // 0: this call succeeds
  std::vector<std::string> calls;
  std::vector<std::string> faults;
  std::map<int, std::unique_ptr<Device>> devices;
  std::deque<std::unique_ptr<Stream>> streams;
  std::deque<std::unique_ptr<Event>> events;
  std::deque<std::unique_ptr<Comm>> comms;
  std::map<std::string, std::unique_ptr<Fabric>> fabrics;
  std::uint64_t next_id = 1;

  // Records the call. Returns the code with which it must fail, or 0.
  int note(const std::string& symbol, const std::string& details);
  void pump();  // runs the work of every stream as far as possible
  void moved() {
    if (!held) pump();
  }
  void put(Stream* stream, Work work);
  Stream* stream_of(void* stream);  // null gives the default stream of the current GPU
  bool has_collectives(const Device* device) const;
  bool stands_still(const Device* device) const;  // a collective that was not aborted is still on the device
  void fault(const std::string& text) { faults.push_back(text); }
};
World& world();

using Lock = std::lock_guard<std::recursive_mutex>;

void fill_cuda(backend::nccl_plugin::CudaApi& api);
void fill_nccl(backend::nccl_plugin::NcclApi& api);

}  // namespace distrun::test::fake_gpus
