// Rendezvous: a key-value table that all ranks of a job share. Keys and values are bytes; a value is at most 1 MiB.
// Implementations are safe to call from any thread. Every wait has a deadline and ends early when the server is lost,
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
  // Adds to an integer that starts at 0 and returns the new value, which get() gives in decimal digits.
  virtual Result<std::int64_t> add(const std::string& key, std::int64_t delta) = 0;
  // If the key has the value `expected` (none: it is not there), it gets `wanted` (none: it is forgotten). Returns what
  // it had before, whether that was expected or not. Does not wait.
  virtual Result<std::optional<std::string>> swap(const std::string& key, const std::optional<std::string>& expected,
                                                  const std::optional<std::string>& wanted) = 0;
  // How many keys begin with `prefix`.
  virtual Result<std::int64_t> count(const std::string& prefix) = 0;
  // Forgets all keys that begin with `prefix`, which is not empty, when so many `members` have asked for it; nobody may
  // wait for one of them then. Does not wait.
  virtual Status erase(const std::string& prefix, int members) = 0;
};

}  // namespace distrun::net
