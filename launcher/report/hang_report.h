// Where ranks are that wait, or that others wait for: what they tell, how it looks. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/net/store/program_state.h"

namespace distrun::launcher {

// One rank, as it answered the launcher's question, or why it did not.
struct RankView {
  int rank = 0;
  std::string host;
  bool missed = false;                     // others wait for it
  std::optional<net::ProgramState> state;  // none: there was no answer, and `note` says why
  std::string note;                        // as "stopped (T)": it is
};

// What is known of waits that last.
struct HangFacts {
  std::vector<net::RankWait> waits;
  std::vector<RankView> views;
  [[nodiscard]] bool empty() const { return waits.empty() && views.empty(); }
};

// Ranks with the same text.
struct ViewGroup {
  std::vector<int> ranks;
  RankView view;  // of the first
};
// In the order of their first ranks.
std::vector<ViewGroup> fold(const std::vector<RankView>& views);

// For the screen: equal ranks are folded, and at most this many lines are shown.
inline constexpr std::size_t kMostStackLines = 15;
std::string stacks_text(const std::vector<RankView>& views);
// One line for each exception that was on its way while its ranks waited; empty: there was none.
std::string exceptions_text(const HangFacts& facts);

}  // namespace distrun::launcher
