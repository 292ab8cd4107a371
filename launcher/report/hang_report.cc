#include "launcher/report/hang_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <string_view>
#include <utility>

#include "launcher/plan/hosts/text.h"
#include "launcher/report/lines/last_exception.h"

namespace distrun::launcher {
namespace {

constexpr std::size_t kMostGroups = 4;
constexpr std::size_t kColumns = 96;

using View = net::ProgramState::View;

bool same_frames(const net::ThreadStack& one, const net::ThreadStack& other) {
  const auto same = [](const net::CodeFrame& a, const net::CodeFrame& b) {
    return a.place.file == b.place.file && a.place.line == b.place.line && a.function == b.function;
  };
  return one.name == other.name &&
         std::equal(one.frames.begin(), one.frames.end(), other.frames.begin(), other.frames.end(), same);
}

bool same(const RankView& one, const RankView& other) {
  if (one.missed != other.missed || one.note != other.note || one.state.has_value() != other.state.has_value()) {
    return false;
  }
  if (!one.state) return true;
  const net::ProgramState& a = *one.state;
  const net::ProgramState& b = *other.state;
  return a.view == b.view && a.operation == b.operation && a.exception == b.exception &&
         a.raised_at.file == b.raised_at.file && a.raised_at.line == b.raised_at.line &&
         (a.view == View::kSeen || a.kernel == b.kernel) &&
         std::equal(a.threads.begin(), a.threads.end(), b.threads.begin(), b.threads.end(), same_frames);
}

// Shows the file with its folder. A long path keeps its end.
std::string place_text(const net::CodePlace& place) {
  constexpr std::size_t kMostPath = 44;
  const std::size_t slash = place.file.rfind('/');
  const std::size_t folder = slash == std::string::npos || slash == 0 ? slash : place.file.rfind('/', slash - 1);
  const std::string shown = printable(folder == std::string::npos ? place.file : place.file.substr(folder + 1));
  return cut_front(shown, kMostPath) + ":" + std::to_string(place.line);
}

// The end of a long function name tells most: Python gives the classes and functions around it before it.
std::string frame_text(const net::CodeFrame& frame) {
  constexpr std::size_t kMostFunction = 36;
  return place_text(frame.place) + " in " + cut_front(printable(frame.function), kMostFunction);
}

// Cuts a long text so that the place after it stays visible.
std::string exception_text(const net::ProgramState& state) {
  const std::string place = state.raised_at.file.empty() ? "" : " (" + place_text(state.raised_at) + ")";
  return cut_middle(printable(state.exception), kColumns - 16 - std::min<std::size_t>(place.size(), kColumns / 2)) +
         place;
}

std::string operation_text(const net::ProgramState& state) {
  constexpr std::size_t kMostName = 40;
  return cut_middle(printable(state.operation), kMostName);
}

std::string who(const ViewGroup& group) {
  return rank_list(group.ranks) +
         (group.view.host.empty() || group.ranks.size() > 1 ? "" : " (" + group.view.host + ")");
}

std::string where_it_waits(const net::ProgramState& state, bool many) {
  if (state.operation.empty()) return many ? " are in no operation" : " is in no operation";
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f s", state.waited);
  return (many ? " have " : " has ") + operation_text(state) + " in flight for " + seconds;
}

std::string heading(const ViewGroup& group) {
  const RankView& view = group.view;
  const std::string name = who(group) + (view.missed ? ", which others wait for," : "");
  if (!view.state) return name + (group.ranks.size() > 1 ? " are " : " is ") + view.note;
  return name + where_it_waits(*view.state, group.ranks.size() > 1);
}

// At most `room` lines. Half of them are for frames of the user's program, which may be far above the frames of the
// library that waits. "..." marks a gap.
std::vector<std::string> thread_lines(const std::vector<net::CodeFrame>& frames, std::size_t room) {
  std::set<std::size_t> kept;
  for (std::size_t i = 0; i < frames.size() && kept.size() < (room + 1) / 2; ++i) {
    if (!is_library(frames[i].place.file)) kept.insert(i);
  }
  for (std::size_t i = 0; i < frames.size() && kept.size() < room; ++i) kept.insert(i);
  std::vector<std::string> lines;
  std::size_t next = 0;
  for (const std::size_t i : kept) {
    lines.push_back((i == next ? "" : "... ") + frame_text(frames[i]));
    next = i + 1;
  }
  return lines;
}

// The reason if there are no frames. Else the frames of the main thread, then those of other threads that are inside
// distrun.
std::vector<std::string> frame_lines(const net::ProgramState& state, std::size_t most) {
  const std::string main =
      "its main thread " +
      (state.kernel.empty() ? std::string("runs") : "is in the kernel's " + printable(state.kernel));
  if (state.view == View::kNone) return {"it has no Python; " + main};
  if (state.view == View::kBusy) return {"C code holds the interpreter's lock; " + main};
  std::vector<std::string> lines;
  const std::size_t others = state.threads.size() > 1 ? std::min(state.threads.size() - 1, most / 2) : 0;
  for (std::size_t i = 0; i <= others && i < state.threads.size(); ++i) {
    const net::ThreadStack& thread = state.threads[i];
    const std::size_t end = i < others ? lines.size() + std::max<std::size_t>(1, (most - others) / (others + 1)) : most;
    if (i > 0 && lines.size() < most) lines.push_back("thread " + printable(thread.name) + ":");
    const std::size_t room = end - std::min(end, lines.size());
    for (std::string& line : thread_lines(thread.frames, room)) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

std::string exception_with_place(const std::string& exception, const net::CodePlace& raised_at) {
  const std::string file = raised_at.file.substr(raised_at.file.rfind('/') + 1);
  return exception + (file.empty() ? "" : " (" + file + ":" + std::to_string(raised_at.line) + ")");
}

std::vector<ViewGroup> fold(const std::vector<RankView>& views) {
  std::vector<ViewGroup> groups;
  for (const RankView& view : views) {
    const auto found =
        std::find_if(groups.begin(), groups.end(), [&](const ViewGroup& group) { return same(group.view, view); });
    if (found != groups.end()) {
      found->ranks.push_back(view.rank);
    } else {
      groups.push_back({.ranks = {view.rank}, .view = view});
    }
  }
  return groups;
}

std::string stacks_text(const std::vector<RankView>& views) {
  std::vector<ViewGroup> groups = fold(views);
  // Groups with an exception come first, then ranks that others wait for.
  std::stable_sort(groups.begin(), groups.end(), [](const ViewGroup& one, const ViewGroup& other) {
    const auto weight = [](const ViewGroup& group) {
      return (group.view.state && !group.view.state->exception.empty() ? 2 : 0) + (group.view.missed ? 1 : 0);
    };
    return weight(one) > weight(other);
  });
  const std::size_t shown = std::min(groups.size(), kMostGroups);
  std::size_t fixed = 1 + shown + (groups.size() > shown ? 1 : 0);
  for (std::size_t i = 0; i < shown; ++i) {
    if (groups[i].view.state && !groups[i].view.state->exception.empty()) ++fixed;
  }
  const std::size_t frames = shown == 0 ? 0 : (kMostStackLines - fixed) / shown;
  std::string text = "where the ranks are (innermost line first):\n";
  for (std::size_t i = 0; i < shown; ++i) {
    text += cut_middle(heading(groups[i]), kColumns) + "\n";
    if (!groups[i].view.state) continue;
    const net::ProgramState& state = *groups[i].view.state;
    if (!state.exception.empty()) text += "  handling " + exception_text(state) + "\n";
    for (const std::string& line : frame_lines(state, frames)) text += "  " + cut_middle(line, kColumns) + "\n";
  }
  if (groups.size() > shown) {
    std::size_t left = 0;
    for (std::size_t i = shown; i < groups.size(); ++i) left += groups[i].ranks.size();
    text += "and " + counted(left, "rank") + " more (--report FILE has them all)\n";
  }
  return text;
}

std::string exceptions_text(const HangFacts& facts, int but) {
  std::vector<RankView> views = facts.views;
  std::erase_if(views, [but](const RankView& view) { return view.rank == but; });
  std::string text;
  for (const ViewGroup& group : fold(views)) {
    if (!group.view.state || group.view.state->exception.empty()) continue;
    const net::ProgramState& state = *group.view.state;
    text += who(group) + " waited" + (state.operation.empty() ? "" : " in " + operation_text(state)) +
            " while it was handling " + exception_text(state) + "\n";
  }
  return text;
}

}  // namespace distrun::launcher
