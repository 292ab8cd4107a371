// distrun's side of a plug-in's group. It keeps the reports of the plug-in's threads until the holder of the progress
// token takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/backend/plugin/include/distrun/distrun_backend.h"
#include "runtime/base/annotations.h"
#include "runtime/net/bytes/wait_set.h"
#include "runtime/net/identity/mac_key.h"
#include "runtime/net/store/store.h"

namespace distrun::backend::plugin {

// Thread-safe.
class HostGroup {
 public:
  // A group without a key (null) makes no MACs. `waited_for`: the engine may sleep while operations are in flight, so a
  // completion must wake it.
  HostGroup(net::WaitSet* wait_set, bool waited_for, const net::JobKey* key, const std::string& plugin,
            const std::string& group)
      : wait_set_(wait_set), waited_for_(waited_for) {
    if (key != nullptr) secret_.emplace(*key, std::string("distrun plug-in") + '\0' + plugin + '\0' + group);
  }

  void expect(std::uint64_t token);  // call it before the plug-in gets the token
  void forget(std::uint64_t token);  // the operation was not started
  // Ignores a token that is not expected, so that a bug of a plug-in cannot complete another operation.
  void complete(std::uint64_t token, Status status);
  void peer_lost(int world_rank);
  [[nodiscard]] Result<net::Mac> mac(std::span<const std::byte> data) const;

  void take(std::vector<Completed>& out);
  [[nodiscard]] bool any_completed() const;
  [[nodiscard]] bool any_in_flight() const;
  [[nodiscard]] int lost_peer() const;

  distrun_backend_host_group* handle() { return reinterpret_cast<distrun_backend_host_group*>(this); }

 private:
  net::WaitSet* wait_set_;  // not owned; may be null
  const bool waited_for_;
  std::optional<net::MacKey> secret_;
  mutable Mutex mutex_;
  std::set<std::uint64_t> in_flight_ DISTRUN_GUARDED_BY(mutex_);
  std::vector<Completed> completed_ DISTRUN_GUARDED_BY(mutex_);
  int lost_ DISTRUN_GUARDED_BY(mutex_) = -1;
};

// The part of the job's store that belongs to a group, as a plug-in sees it.
class HostStore {
 public:
  HostStore(net::Store& store, std::string prefix);
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;
  [[nodiscard]] const distrun_backend_store& table() const { return table_; }
  // This member no longer needs the group's keys. The keys are deleted when all `members` have called this, because
  // another member may still wait for a key. Does not wait.
  void leave(int members);

 private:
  net::Store& store_;
  std::string prefix_;
  distrun_backend_store table_;
};

// While at least one object exists, other ranks may wait for this process. Plug-ins query this when the process exits.
class InJob {
 public:
  InJob();
  ~InJob();
  InJob(const InJob&) = delete;
  InJob& operator=(const InJob&) = delete;
};

const distrun_backend_host& host_table();

// Makes a Status of a plug-in's code and text. An unknown code becomes kInternal.
Status status_of(int code, const std::string& text);
// The text that a plug-in wrote into a buffer, or `otherwise` if the buffer is empty.
std::string text_of(const char* buffer, std::size_t size, const std::string& otherwise);

}  // namespace distrun::backend::plugin
