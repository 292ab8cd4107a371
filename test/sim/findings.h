// What a run has found to be wrong.
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
  static constexpr std::size_t kMost = 8;  // what follows the first ones follows from them
  std::vector<std::string> list_;
};

}  // namespace distrun::sim
