// One attempt to make a group, by all members together. It succeeds if all members succeed, and it ends for all when
// one fails. The members communicate through the group's store.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/backend/plugin/include/distrun/distrun_backend.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"

namespace distrun::backend::gloo_plugin {

class Attempt {
 public:
  // The outcome is the same on all members.
  struct Outcome {
    Status status;       // ok: all members succeeded
    bool again = false;  // another attempt may succeed
  };

  // `spec` must outlive this object.
  Attempt(const distrun_backend_group_spec& spec, int number);

  // Step 1: exchanges one value per member. The result is in member order. If one member has an error instead, all
  // members get that error.
  Result<std::vector<std::string>> exchange(const Result<std::string>& mine, TimePoint deadline);

  // Step 2: each member reports its success or failure, on any thread. If several members fail, the first report
  // counts.
  void well();
  void fail(const Status& why, bool again);
  // kTimeout: there is no outcome yet. Any other error of the store is an outcome.
  Outcome wait(TimePoint deadline) const;

 private:
  [[nodiscard]] std::string key(const std::string& of) const { return std::to_string(number_) + "/" + of; }
  // Reads one value of the store, of any size.
  Result<std::string> get(const std::string& of, TimePoint deadline) const;
  Status set(const std::string& of, const std::string& value) const;
  void decide(const std::string& outcome) const;

  const distrun_backend_group_spec& spec_;
  const int number_;
};

}  // namespace distrun::backend::gloo_plugin
