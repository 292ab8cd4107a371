// Why a job cannot start: one reason for each host, collected until every host has answered or failed. Pure.
#pragma once

#include <string>
#include <vector>

namespace distrun::launcher {

struct Refusal {
  int code = 0;
  std::string text;
};

class StartFaults {
 public:
  void add(int code, std::string text) { faults_.push_back({.code = code, .text = std::move(text)}); }
  [[nodiscard]] bool any() const { return !faults_.empty(); }
  // Names all of them. `hosts`: of all agents, also those that have answered. A job on one host ends with that host's
  // own exit code.
  [[nodiscard]] Refusal refusal(const std::vector<std::string>& hosts) const;

 private:
  std::vector<Refusal> faults_;
};

}  // namespace distrun::launcher
