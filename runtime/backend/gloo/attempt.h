// One of several tries to make a group, in which all members go together: it has succeeded when all are well, and it
// ends for all when one of them is not. They hear of each other through the group's store.
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
  // The same on all members.
  struct Outcome {
    Status status;       // ok: all were well
    bool again = false;  // another try may do better
  };

  // `spec` outlives it.
  Attempt(const distrun_backend_group_spec& spec, int number);

  // First: what each member has for the others, in member order. Where one has an error instead, that is everybody's.
  Result<std::vector<std::string>> exchange(const Result<std::string>& mine, TimePoint deadline);

  // Then each member says how it fared, on any thread. Of several that are not well the first one is heard.
  void well();
  void fail(const Status& why, bool again);
  // kTimeout: there is no outcome yet. Any other error of the store's is one.
  Outcome wait(TimePoint deadline) const;

 private:
  [[nodiscard]] std::string key(const std::string& of) const { return std::to_string(number_) + "/" + of; }
  // One value of the store, whatever its size.
  Result<std::string> get(const std::string& of, TimePoint deadline) const;
  Status set(const std::string& of, const std::string& value) const;
  void decide(const std::string& outcome) const;

  const distrun_backend_group_spec& spec_;
  const int number_;
};

}  // namespace distrun::backend::gloo_plugin
