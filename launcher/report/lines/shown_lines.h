// The last lines on the screen, to find out whether the user has just seen the last lines of a rank. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distrun::launcher {

class ShownLines {
 public:
  static constexpr std::size_t kVisible = 20;

  // A line, or a part of it, that these ranks have written. `begins`: it begins the line.
  void add(const std::vector<int>& ranks, std::string_view text, bool begins) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (!begins && !lines_.empty() && lines_.back().ranks == ranks) {
      lines_.back().text += line;
      return;
    }
    lines_.push_back({.ranks = ranks, .text = std::string(line)});
    if (lines_.size() > kVisible) lines_.pop_front();
  }
  // True if all of these lines of this rank are visible, in this order.
  [[nodiscard]] bool show(int rank, const std::vector<std::string>& lines) const {
    auto at = lines_.begin();
    for (const std::string& line : lines) {
      at = std::find_if(at, lines_.end(), [&](const Line& one) {
        return one.text == line && std::find(one.ranks.begin(), one.ranks.end(), rank) != one.ranks.end();
      });
      if (at == lines_.end()) return false;
      ++at;
    }
    return true;
  }

 private:
  struct Line {
    std::vector<int> ranks;
    std::string text;
  };
  std::deque<Line> lines_;
};

}  // namespace distrun::launcher
