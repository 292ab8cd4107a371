// How backends are offered, chosen and created. When a group is made, its members exchange their offers. select() works
// on the offers of all members, so all members choose the same backend.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/net/bytes/wait_set.h"
#include "runtime/net/host/host_link.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/store/store.h"

namespace distrun {
struct Settings;
}

namespace distrun::backend {

struct GroupSpec {
  std::string id;            // unique in the job and the same on all members: part of store keys and connection names
  std::vector<int> members;  // world ranks, ascending
  int index = 0;             // position of this process in `members`
  // For create(): the device of the tensors. A backend may be created once for each device under the same id.
  DeviceType device = DeviceType::kCpu;
};

class Factory;
using Factories = std::vector<std::unique_ptr<Factory>>;

// The services that a backend may use. All of them outlive the backend. host_link is null if this rank has none;
// `host_link_error` has the reason.
struct Services {
  const net::World* world = nullptr;
  const net::JobKey* key = nullptr;
  const Settings* settings = nullptr;
  net::Store* store = nullptr;
  std::shared_ptr<net::Store> own_store;  // owns `store` if that was made for one group
  net::WaitSet* wait_set = nullptr;
  net::HostLink* host_link = nullptr;
  std::string host_link_error;
  std::string local_host = "127.0.0.1";  // the address at which other hosts reach this host; backends listen on it
  const Factories* factories = nullptr;  // all factories of this process; null: the built-in ones
  const Log* log = nullptr;              // gets reports about connections that do not belong to the job
};

// Why a backend is not available. No factory offers kSetUpFailed: the members set it after they have tried.
enum class Absence : std::uint8_t { kMissing, kUnmetSetting, kSetUpFailed };

// One rank's offer of one backend for one group, made before anything is set up. Plain data; it travels through the
// store.
struct Offer {
  std::string backend;
  bool available = false;
  Absence absence = Absence::kMissing;  // kUnmetSetting: a setting asks for something that this rank does not have
  std::string reason;                   // why it is not available, or in a few words its purpose; never empty
  // Why the backend has nothing to do in this group, given the placement of the ranks as this member sees it. Empty: it
  // has something to do. If all members set it, the backend is not used. If a setting names that backend, another one
  // is used (select.h).
  std::string nothing_to_do;
  int score = 0;  // 0 to 100, the highest wins
  Capabilities capabilities;
  // Version of the plug-in's library in that library's numbers; 0: unknown. Not sent to other ranks.
  int library_version = 0;
};

class Factory {
 public:
  virtual ~Factory() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual Offer offer(const GroupSpec& group, const Services& services) const = 0;
  // Whether this machine has everything that the backend needs, for any group. For `distrun check --build`.
  [[nodiscard]] virtual Status usable() const { return {}; }
  // Whether its connections to other hosts have the protection that --encrypt and --checksum ask for (protection.h).
  [[nodiscard]] virtual bool protects(const Services& /*services*/) const { return false; }
  // For tensors on devices with streams: records the current end of the caller's `stream`, for Operation::marks. Any
  // thread of the program may call this. kUnsupported if the backend does not know the device.
  [[nodiscard]] virtual Result<std::shared_ptr<void>> mark(Device device, void* stream) const;
  // The prefix of the store keys that create() leaves for the group with this id. The caller may erase them when all
  // members have tried. Empty: no keys.
  [[nodiscard]] virtual std::string set_up_keys(const std::string& /*group*/) const { return {}; }
  // Collective over the group. Returns by the deadline, plus the few seconds that agree() needs for an error. All
  // members get the same outcome. After an error the session keeps the reason and tries the next backend.
  [[nodiscard]] virtual Result<std::unique_ptr<Backend>> create(const GroupSpec& group, const Services& services,
                                                                TimePoint deadline) const = 0;
};

// Null if no factory has this name.
const Factory* find_factory(const Factories& factories, std::string_view name);

}  // namespace distrun::backend
