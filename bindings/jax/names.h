// The names in flight in this process, and the calls that wait for a name. Pure except for its mutex. Any thread may
// use it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace distrun::jax {

template <class Waiter>
class Names {
 public:
  enum class Claim { kMine, kLater, kTwiceInOneRun };

  // kMine: the caller has the name until free(). kLater: takes `waiter`, and free() returns it later. Calls `before`
  // with it first, because another thread may get it at once. `run`: in one run a name may not be in flight twice. 0:
  // the run is unknown.
  template <class Before>
  Claim claim(const std::string& name, std::int64_t run, std::unique_ptr<Waiter>& waiter, const Before& before) {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = busy_.try_emplace(name);
    Queue& queue = at->second;
    if (is_new) {
      queue.run = run;
      return Claim::kMine;
    }
    if (run != 0 && (queue.waiting.empty() ? queue.run : queue.waiting.back().first) == run) {
      return Claim::kTwiceInOneRun;
    }
    queue.waiting.emplace_back(run, std::move(waiter));
    before(*queue.waiting.back().second);
    return Claim::kLater;
  }

  // Returns the waiter that has the name now, or null if no waiter is left.
  std::unique_ptr<Waiter> free(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto at = busy_.find(name);
    if (at == busy_.end()) return nullptr;
    Queue& queue = at->second;
    if (queue.waiting.empty()) {
      busy_.erase(at);
      return nullptr;
    }
    auto [run, next] = std::move(queue.waiting.front());
    queue.waiting.pop_front();
    queue.run = run;
    return std::move(next);
  }

 private:
  struct Queue {
    std::int64_t run = 0;  // run of the call that has the name
    std::deque<std::pair<std::int64_t, std::unique_ptr<Waiter>>> waiting;
  };
  std::mutex mutex_;
  std::map<std::string, Queue> busy_;
};

}  // namespace distrun::jax
