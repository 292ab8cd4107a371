// The leader's side of stopping at the same call. Once a rank asks to stop, all ranks hold and report how many calls
// they have answered. They stop at the first call that no rank has answered. Pure: no clock, no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace distrun::engine {

class StopAgreement {
 public:
  explicit StopAgreement(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  // True for the first request: all ranks must hold now.
  bool asked(const std::string& cause);
  void counted(int rank, std::uint64_t calls);
  // The rank makes no more calls.
  void left(int rank);
  // The first call that returns true. Returned once, when it is known.
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
