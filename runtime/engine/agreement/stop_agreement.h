// The leader's half of stopping at the same call: once a rank asks, all ranks hold and tell how many calls they have
// answered; they stop at the first one that none of them has. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace distrun::engine {

class StopAgreement {
 public:
  explicit StopAgreement(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  // True the first time: all ranks are to hold now.
  bool asked(const std::string& cause);
  void counted(int rank, std::uint64_t calls);
  // It makes no more calls.
  void left(int rank);
  // The first call that is answered with true, once.
  std::optional<std::uint64_t> take();
  [[nodiscard]] const std::string& cause() const { return cause_; }

 private:
  struct Rank {
    std::optional<std::uint64_t> calls;
    bool left = false;
  };
  std::vector<Rank> ranks_;
  std::string cause_;
  bool asked_ = false;
  bool taken_ = false;
};

}  // namespace distrun::engine
