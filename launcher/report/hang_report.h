// Where the ranks are that wait, or that others wait for: their answers, and the text for the screen. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/net/store/program_state.h"

namespace distrun::launcher {

// The answer of one rank to the launcher's question, or the reason why there is none.
struct RankView {
  int rank = 0;
  std::string host;
  bool missed = false;                     // others wait for it
  std::optional<net::ProgramState> state;  // none: no answer, and `note` has the reason
  std::string note;                        // such as "stopped (T)", after "it is"
};

// The facts about long waits.
struct HangFacts {
  std::vector<net::RankWait> waits;
  std::vector<RankView> views;
  [[nodiscard]] bool empty() const { return waits.empty() && views.empty(); }
};

// "ValueError: bad (train.py:3)", as ranks name their own errors.
std::string exception_with_place(const std::string& exception, const net::CodePlace& raised_at);

// Ranks whose text is the same.
struct ViewGroup {
  std::vector<int> ranks;
  RankView view;  // of the first
};
// The groups, in the order of their first ranks.
std::vector<ViewGroup> fold(const std::vector<RankView>& views);

// For the screen: equal ranks share their lines, and at most this many lines are shown.
inline constexpr std::size_t kMostStackLines = 15;
std::string stacks_text(const std::vector<RankView>& views);
// One line for each exception that ranks were handling while they waited, except for rank `but`. Empty if there was
// none.
std::string exceptions_text(const HangFacts& facts, int but = -1);

}  // namespace distrun::launcher
