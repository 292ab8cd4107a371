// The faults that a run has found.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace distrun::sim {

class Findings {
 public:
  void add(std::string what) {
    if (list_.size() < kMost) list_.push_back(std::move(what));
  }
  [[nodiscard]] bool none() const { return list_.empty(); }
  [[nodiscard]] const std::vector<std::string>& list() const { return list_; }

 private:
  static constexpr std::size_t kMost = 8;  // later findings are consequences of the first ones
  std::vector<std::string> list_;
};

}  // namespace distrun::sim
