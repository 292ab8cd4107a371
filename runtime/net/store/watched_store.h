// A store whose waits end if a member of a step cannot continue. Such a member may lack a thread or a descriptor that
// it needs to take part. Without this, the other members would wait for it until their deadline.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "runtime/net/store/store.h"

namespace distrun::net {

class WatchedStore final : public Store {
 public:
  // `step` names this step among all users of the store. `store` must outlive this.
  WatchedStore(Store& store, std::string step) : store_(store), step_(std::move(step)) {}

  // The failure of another member that ended a wait of this one. Call it when no other thread uses this object any
  // more.
  [[nodiscard]] const Status& reported_failure() const { return reported_; }
  // Reports that this member, which is `rank` on `host`, cannot continue. The other members get the first report. If
  // `why` is a timeout or the loss of a rank, reports nothing and returns false: that is a consequence of another
  // failure.
  bool fail(int rank, const std::string& host, const Status& why);

  Status set(const std::string& key, const std::string& value) override { return store_.set(key, value); }
  Result<std::string> get(const std::string& key, TimePoint deadline) override;
  Result<std::int64_t> add(const std::string& key, std::int64_t delta) override { return store_.add(key, delta); }
  Result<std::optional<std::string>> swap(const std::string& key, const std::optional<std::string>& expected,
                                          const std::optional<std::string>& wanted) override {
    return store_.swap(key, expected, wanted);
  }
  Result<std::int64_t> count(const std::string& prefix) override { return store_.count(prefix); }
  Status erase(const std::string& prefix, int members) override { return store_.erase(prefix, members); }

 private:
  // Ok if no member has failed.
  Status failure();

  Store& store_;
  const std::string step_;
  Status reported_;
};

}  // namespace distrun::net
