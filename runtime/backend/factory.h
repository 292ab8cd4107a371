// How a backend is offered, chosen and made. Offers of all members are exchanged when a group is made; select() runs on
// the intersection, so all members choose alike.
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
  std::string id;            // unique in the job and the same on all members: names store keys and connections
  std::vector<int> members;  // world ranks, ascending
  int index = 0;             // position of this process in `members`
  DeviceType device = DeviceType::kCpu;  // create(): of the tensors; a name may be made once for each
};

class Factory;
using Factories = std::vector<std::unique_ptr<Factory>>;

// What a backend may use. All outlive the backend. host_link is null where there is none (`host_link_error` says why).
struct Services {
  const net::World* world = nullptr;
  const net::JobKey* key = nullptr;
  const Settings* settings = nullptr;
  net::Store* store = nullptr;
  std::shared_ptr<net::Store> own_store;  // `store`, where it was made for one group
  net::WaitSet* wait_set = nullptr;
  net::HostLink* host_link = nullptr;
  std::string host_link_error;
  std::string local_host = "127.0.0.1";  // this host's address as the others reach it: what to listen on
  const Factories* factories = nullptr;  // all that this process has; null: the built-in ones
  const Log* log = nullptr;              // told about strangers
};

// Why a backend is not available. `kSetUpFailed` is no offer's: members say so once they have tried.
enum class Absence : std::uint8_t { kMissing, kUnmetSetting, kSetUpFailed };

// What one rank says of one backend for one group, before anything is set up. Pure data; travels through the store.
struct Offer {
  std::string backend;
  bool available = false;
  Absence absence = Absence::kMissing;  // kUnmetSetting: a setting names what cannot be had here
  std::string reason;                   // why not, or in a few words what it is good for; always set
  // Why, as far as this member sees, the ranks lie so that the backend has nothing to do in this group; empty: it has.
  // Where all members say so it is not used, and who asked for it by name gets another one (select.h).
  std::string nothing_to_do;
  int score = 0;  // higher wins; 0 to 100
  Capabilities capabilities;
  int library_version = 0;  // of the plug-in's library, in that library's numbers; 0: not known. Not sent to others
};

class Factory {
 public:
  virtual ~Factory() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual Offer offer(const GroupSpec& group, const Services& services) const = 0;
  // Whether this machine has what the backend needs, whatever the group: for `distrun check --build`.
  [[nodiscard]] virtual Status usable() const { return {}; }
  // Whether its connections to other hosts are as --encrypt and --checksum ask for (protection.h).
  [[nodiscard]] virtual bool protects(const Services& /*services*/) const { return false; }
  // For tensors on devices with streams: notes how far the caller's `stream` has been filled, for Operation::marks. Any
  // thread, the caller's. kUnsupported where this backend knows no such device.
  [[nodiscard]] virtual Result<std::shared_ptr<void>> mark(Device device, void* stream) const;
  // How the keys begin that create() leaves in the store for the group of that id, and that may go once all members
  // have tried; empty: none.
  [[nodiscard]] virtual std::string set_up_keys(const std::string& /*group*/) const { return {}; }
  // Collective over the group; returns by the deadline, but for the seconds in which members agree() how they failed.
  // An error is the same event for all members: the session then tries the next backend, with the reason kept.
  [[nodiscard]] virtual Result<std::unique_ptr<Backend>> create(const GroupSpec& group, const Services& services,
                                                                TimePoint deadline) const = 0;
};

// Null if there is none of that name.
const Factory* find_factory(const Factories& factories, std::string_view name);

}  // namespace distrun::backend
