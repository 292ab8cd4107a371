// All-to-all exchanges during set-up, over the store. The first member collects the blobs and publishes all of them. So
// every other member makes two calls, whatever the group's size. Equal blobs are published once.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/store/store.h"

namespace distrun::api {

struct Members {
  std::vector<int> ranks;  // world ranks, ascending
  int index = 0;           // this process in `ranks`
  // Both are for the text about members that do not come.
  double time_limit = 0;  // seconds, the setting start_timeout; 0: not known here
  bool met = false;       // all of them have called init()
};

// Collective over `members`. `topic` must be unique in the job. Returns the members' blobs in member order. kTimeout:
// some members did not come by the deadline; the error names their ranks and the topic.
Result<std::vector<std::string>> exchange(net::Store& store, const Members& members, const std::string& topic,
                                          const std::string& mine, TimePoint deadline);

// The same store with a prefix, one for each init. A second init in one process then sees no keys of the first.
class PrefixStore : public net::Store {
 public:
  PrefixStore(net::Store& store, std::string prefix) : store_(store), prefix_(std::move(prefix)) {}
  Status set(const std::string& key, const std::string& value) override { return store_.set(prefix_ + key, value); }
  Result<std::string> get(const std::string& key, TimePoint deadline) override {
    return store_.get(prefix_ + key, deadline);
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t delta) override {
    return store_.add(prefix_ + key, delta);
  }
  Result<std::optional<std::string>> swap(const std::string& key, const std::optional<std::string>& expected,
                                          const std::optional<std::string>& wanted) override {
    return store_.swap(prefix_ + key, expected, wanted);
  }
  Result<std::int64_t> count(const std::string& prefix) override { return store_.count(prefix_ + prefix); }
  Status erase(const std::string& prefix, int members) override { return store_.erase(prefix_ + prefix, members); }

 private:
  net::Store& store_;  // owned by the session, which outlives this
  std::string prefix_;
};

}  // namespace distrun::api
