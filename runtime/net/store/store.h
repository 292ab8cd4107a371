// The rendezvous: a key-value table that all ranks of a job share. Keys and values are bytes; a value has at most 1
// MiB. Implementations are safe to call from any thread. Each wait has a deadline. It ends early if the server is lost,
// or says that the job has ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"

namespace distrun::net {

class Store {
 public:
  virtual ~Store() = default;
  virtual Status set(const std::string& key, const std::string& value) = 0;
  // Waits until `key` is set.
  virtual Result<std::string> get(const std::string& key, TimePoint deadline) = 0;
  // Adds to an integer that starts at 0, and returns the new value. get() returns it in decimal digits.
  virtual Result<std::int64_t> add(const std::string& key, std::int64_t delta) = 0;
  // If the key has the value `expected` (none: the key does not exist), sets it to `wanted` (none: erases it). Returns
  // the value before the call, in either case. Does not wait.
  virtual Result<std::optional<std::string>> swap(const std::string& key, const std::optional<std::string>& expected,
                                                  const std::optional<std::string>& wanted) = 0;
  // Returns the number of keys that begin with `prefix`.
  virtual Result<std::int64_t> count(const std::string& prefix) = 0;
  // Erases all keys that begin with `prefix` (not empty) after `members` members have asked for it. No member may wait
  // for such a key then. Does not wait.
  virtual Status erase(const std::string& prefix, int members) = 0;
};

}  // namespace distrun::net
