// Which names are in flight in this process, and who waits for one to be free. Pure but for its mutex; any thread.
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

  // kMine: until free(). kLater: `waiter` was taken and will come out of free(); `before` is called with it first, as
  // another thread may have it at once. `run`: in which no name may be in flight twice; 0: not known.
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

  // Who has the name now; null if nobody waits for it.
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
    std::int64_t run = 0;  // of who has it
    std::deque<std::pair<std::int64_t, std::unique_ptr<Waiter>>> waiting;
  };
  std::mutex mutex_;
  std::map<std::string, Queue> busy_;
};

}  // namespace distrun::jax
