// The store as a table in this process. All ranks (threads) share one object, as they would share one server.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/annotations.h"
#include "runtime/net/store/store.h"

namespace distrun::test {

class FakeStore : public net::Store {
 public:
  Status set(const std::string& key, const std::string& value) override {
    if (before_set_) before_set_(key, value);
    const MutexLock lock(mutex_);
    DISTRUN_RETURN_IF_ERROR(lost_);
    if (value.size() > std::size_t{1} << 20)
      return {Errc::kInvalidArgument, "store: the value of " + key + " is over 1 MiB"};
    values_[key] = value;
    changed_.notify_all();
    return {};
  }

  Result<std::string> get(const std::string& key, TimePoint deadline) override {
    const MutexLock lock(mutex_);
    for (;;) {
      if (!lost_.ok()) return lost_;
      if (const auto found = values_.find(key); found != values_.end()) return found->second;
      if (Clock::now() >= deadline) return Status(Errc::kTimeout, "store: nobody set " + key + " in time");
      changed_.wait_until(mutex_, deadline);
    }
  }

  Result<std::int64_t> add(const std::string& key, std::int64_t delta) override {
    const MutexLock lock(mutex_);
    if (!lost_.ok()) return lost_;
    return counters_[key] += delta;
  }

  Result<std::optional<std::string>> swap(const std::string& key, const std::optional<std::string>& expected,
                                          const std::optional<std::string>& wanted) override {
    const MutexLock lock(mutex_);
    if (!lost_.ok()) return lost_;
    const auto found = values_.find(key);
    const auto before = found == values_.end() ? std::optional<std::string>() : std::optional(found->second);
    if (before != expected) return before;
    if (wanted) values_[key] = *wanted;
    if (!wanted && found != values_.end()) values_.erase(found);
    changed_.notify_all();
    return before;
  }

  Result<std::int64_t> count(const std::string& prefix) override {
    const MutexLock lock(mutex_);
    if (!lost_.ok()) return lost_;
    return std::ranges::count_if(values_, [&](const auto& one) { return one.first.starts_with(prefix); });
  }

  Status erase(const std::string& prefix, int members) override {
    const MutexLock lock(mutex_);
    if (members > 1 && ++counters_[prefix + "/erased"] < members) return lost_;
    std::erase_if(values_, [&](const auto& one) { return one.first.starts_with(prefix); });
    std::erase_if(counters_, [&](const auto& one) { return one.first.starts_with(prefix); });
    return lost_;
  }

  // Calls `look` before each set(), on the thread that sets. Install it before a second thread starts.
  void before_set(std::function<void(const std::string& key, const std::string& value)> look) {
    before_set_ = std::move(look);
  }

  std::size_t size() {
    const MutexLock lock(mutex_);
    return values_.size() + counters_.size();
  }

  // The server has ended: every waiting call and every later call returns `why`.
  void fail(const Status& why) {
    const MutexLock lock(mutex_);
    if (lost_.ok()) lost_ = why;
    changed_.notify_all();
  }

 private:
  std::function<void(const std::string&, const std::string&)> before_set_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::string, std::string> values_ DISTRUN_GUARDED_BY(mutex_);
  std::map<std::string, std::int64_t> counters_ DISTRUN_GUARDED_BY(mutex_);
  Status lost_ DISTRUN_GUARDED_BY(mutex_);
};

}  // namespace distrun::test
