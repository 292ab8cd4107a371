#include "launcher/job/ranks/hang_watch.h"

#include <algorithm>
#include <utility>

#include "launcher/report/failure_report.h"

namespace distrun::launcher {
namespace {

bool same_wait(const net::RankWait& one, const net::RankWait& other) {
  return one.what == other.what && one.missing == other.missing;
}

}  // namespace

void HangWatch::forget(int reporter) {
  for (std::size_t i = facts_.waits.size(); i-- > 0;) {
    if (reporters_[i] != reporter) continue;
    facts_.waits.erase(facts_.waits.begin() + static_cast<std::ptrdiff_t>(i));
    reporters_.erase(reporters_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (!facts_.waits.empty()) return;
  facts_.views.clear();
  missed_.clear();
}

std::vector<int> HangWatch::waits(int reporter, const std::vector<net::RankWait>& waits, TimePoint now) {
  if (waits.empty()) {
    forget(reporter);
    return {};
  }
  std::set<int> wanted;
  for (const net::RankWait& wait : waits) {
    const auto known = [&](const net::RankWait& other) { return same_wait(wait, other); };
    if (std::any_of(facts_.waits.begin(), facts_.waits.end(), known)) continue;
    facts_.waits.push_back(wait);
    reporters_.push_back(reporter);
    missed_.insert(wait.missing.begin(), wait.missing.end());
    wanted.insert(wait.missing.begin(), wait.missing.end());
    // One waiting rank is asked for all that wait.
    if (!wait.waiting.empty()) wanted.insert(wait.waiting.front());
  }
  // A rank that was already asked for another wait is not asked again.
  std::vector<int> ask;
  for (const int rank : wanted) {
    const auto seen = [rank](const RankView& view) { return view.rank == rank; };
    const bool asked = open_.contains(rank) || std::any_of(facts_.views.begin(), facts_.views.end(), seen);
    if (!asked) ask.push_back(rank);
  }
  if (!ask.empty()) begin(ask, now);
  return ask;
}

std::vector<int> HangWatch::look_at(const std::vector<int>& ranks, TimePoint now) {
  const bool again = requested_ && now - *requested_ < kTogether;
  if (again && !looked_last_) return {};
  requested_ = now;
  by_user_ = true;
  begin(ranks, now);
  return ranks;
}

void HangWatch::begin(const std::vector<int>& ranks, TimePoint now) {
  open_.insert(ranks.begin(), ranks.end());
  until_ = now + kAnswerTime;
}

void HangWatch::answered(int rank, const net::ProgramState& state) {
  if (open_.erase(rank) == 0) return;
  views_[rank] = {.rank = rank, .host = {}, .missed = missed_.contains(rank), .state = state, .note = {}};
}

void HangWatch::cannot(int rank, const std::string& why) {
  if (open_.erase(rank) == 0) return;
  views_[rank] = {.rank = rank, .host = {}, .missed = missed_.contains(rank), .state = std::nullopt, .note = why};
}

std::optional<std::vector<RankView>> HangWatch::take(TimePoint now, const std::map<int, char>& states) {
  if (!until_ || (!open_.empty() && now < *until_)) return std::nullopt;
  const std::set<int> silent = open_;
  for (const int rank : silent) {
    const auto state = states.find(rank);
    const std::string why = state == states.end() ? "" : why_it_cannot_run(state->second);
    cannot(rank, why.empty() ? "silent: no answer came within 2 s" : why);
  }
  std::vector<RankView> views;
  for (auto& [rank, view] : views_) views.push_back(std::move(view));
  views_.clear();
  until_.reset();
  const bool by_user = std::exchange(by_user_, false) && !looked_last_;
  if (!by_user || !facts_.waits.empty()) keep(views);
  return views;
}

std::vector<PendingException> HangWatch::exceptions() const {
  std::vector<PendingException> out;
  const auto add = [&](const RankView& view) {
    if (!missed_.contains(view.rank) || !view.state || view.state->exception.empty()) return;
    out.push_back({.rank = view.rank, .text = view.state->exception, .raised_at = view.state->raised_at});
  };
  for (const RankView& view : facts_.views) add(view);
  for (const auto& [rank, view] : views_) add(view);
  return out;
}

void HangWatch::keep(const std::vector<RankView>& views) {
  for (const RankView& view : views) {
    std::erase_if(facts_.views, [&view](const RankView& known) { return known.rank == view.rank; });
    facts_.views.push_back(view);
  }
}

std::optional<TimePoint> HangWatch::deadline() const { return until_; }

}  // namespace distrun::launcher
