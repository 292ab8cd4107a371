// A store whose waits end when a member of a step cannot go on. Such a member may lack what it needs to take part at
// all, a thread or a descriptor, and the others would wait for it until their time is over.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "runtime/net/store/store.h"

namespace distrun::net {

class WatchedStore final : public Store {
 public:
  // `step` names the step among all that use the store. `store` must outlive this.
  WatchedStore(Store& store, std::string step) : store_(store), step_(std::move(step)) {}

  // What ended a wait of this member: the failure of another one. Once no other thread uses this.
  [[nodiscard]] const Status& told() const { return told_; }
  // This member, of that rank and host, cannot go on. The first one that says so is the one that the others hear of.
  // False, and nothing is said, if it has waited for others in vain: that follows from what they do.
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
  // Ok: no member has failed.
  Status failure();

  Store& store_;
  const std::string step_;
  Status told_;
};

}  // namespace distrun::net
