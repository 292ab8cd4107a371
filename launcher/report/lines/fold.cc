#include "launcher/report/lines/fold.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace distrun::launcher {
namespace {
// Memory of a line besides its text. Even a million empty lines need memory.
constexpr std::size_t kFoldOverhead = 256;
// How many lines may be reordered to bring two copies together.
constexpr int kReach = 128;

std::string key_of(const Fold::Line& line) { return static_cast<char>('0' + line.stream) + line.text; }

std::size_t size_of(const Fold::Line& line, const std::string& key) {
  return line.text.size() + key.size() + kFoldOverhead;
}
}  // namespace

void Fold::add(Line line) {
  const int rank = line.ranks.front();
  std::string key = key_of(line);
  if (const Place copy = find_copy(rank, key); copy != 0) {
    lines_.at(copy).line.ranks.push_back(rank);
    return join(rank, copy);
  }
  const Place place = next_++;
  copies_[key].insert(place);
  since_.insert(line.since);
  held_bytes_ += size_of(line, key);
  lines_.emplace(place, Held{.line = std::move(line), .key = std::move(key), .missing = live_});
  join(rank, place);
}

void Fold::join(int rank, Place place) {
  Rank& r = at(rank);
  ++r.held;
  r.last = place;
  if (!r.finished) --lines_.at(place).missing;
}

// Finds another rank's copy of the line that this rank's line can join. The copy must be after this rank's last line,
// or be movable to a place after it. Returns 0 if there is none.
Fold::Place Fold::find_copy(int rank, const std::string& key) {
  const auto same = copies_.find(key);
  if (same == copies_.end()) return 0;
  const Place last = at(rank).held > 0 ? at(rank).last : 0;
  const auto behind = same->second.upper_bound(last);
  if (behind != same->second.end()) return *behind;
  const Place before = *std::prev(behind);
  const auto earlier = must_precede(before, last);
  return earlier ? move_before(before, last, *earlier) : 0;
}

// The lines from `line` to `last` that must come before `last` or be `last`, in reverse order. Returns nothing if
// `line` is one of them.
std::optional<std::vector<Fold::Place>> Fold::must_precede(Place line, Place last) const {
  std::vector<Place> out;
  std::vector<bool> concerned(ranks_.size());
  auto at = lines_.find(last);
  for (int i = 0; i < kReach; ++i, --at) {
    const std::vector<int>& ranks = at->second.line.ranks;
    const bool must = at->first == last || std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
                        return concerned[static_cast<std::size_t>(rank)];
                      });
    if (at->first == line) return must ? std::nullopt : std::optional(out);
    if (!must) continue;
    out.push_back(at->first);
    for (const int rank : ranks) concerned[static_cast<std::size_t>(rank)] = true;
  }
  return std::nullopt;
}

// Reorders the lines from `line` to `last`: first those in `earlier`, then the others. Returns the new place of `line`.
Fold::Place Fold::move_before(Place line, Place last, const std::vector<Place>& earlier) {
  std::vector<Place> places;
  std::vector<Place> order(earlier.rbegin(), earlier.rend());
  for (auto at = lines_.find(line); at != lines_.end() && at->first <= last; ++at) {
    places.push_back(at->first);
    if (std::find(earlier.begin(), earlier.end(), at->first) == earlier.end()) order.push_back(at->first);
  }
  std::vector<std::pair<int, Place>> lasts;
  std::vector<std::map<Place, Held>::node_type> nodes;
  for (std::size_t i = 0; i < order.size(); ++i) {
    nodes.push_back(lines_.extract(order[i]));
    for (const int rank : nodes.back().mapped().line.ranks) {
      if (at(rank).last == order[i]) lasts.emplace_back(rank, places[i]);
    }
    copies_.at(nodes.back().mapped().key).erase(order[i]);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    copies_.at(nodes[i].mapped().key).insert(places[i]);
    nodes[i].key() = places[i];
    lines_.insert(std::move(nodes[i]));
  }
  for (const auto& [rank, place] : lasts) at(rank).last = place;
  return places[earlier.size()];
}

void Fold::finished(int rank) {
  if (std::exchange(at(rank).finished, true)) return;
  --live_;
  for (auto& [place, held] : lines_) {
    const std::vector<int>& ranks = held.line.ranks;
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) --held.missing;
  }
}

void Fold::pop(std::vector<Line>& out) {
  auto front = lines_.extract(lines_.begin());
  Held& held = front.mapped();
  held_bytes_ -= size_of(held.line, held.key);
  since_.erase(since_.find(held.line.since));
  const auto same = copies_.find(held.key);
  same->second.erase(front.key());
  if (same->second.empty()) copies_.erase(same);
  for (const int rank : held.line.ranks) --at(rank).held;
  std::sort(held.line.ranks.begin(), held.line.ranks.end());
  out.push_back(std::move(held.line));
}

std::vector<Fold::Line> Fold::take(TimePoint now) {
  std::vector<Line> out;
  while (!lines_.empty() &&
         (lines_.begin()->second.missing == 0 || held_bytes_ > kMostHeld || *since_.begin() + kWait <= now)) {
    pop(out);
  }
  return out;
}

std::vector<Fold::Line> Fold::take_up_to(int rank, TimePoint now) {
  std::vector<Line> out;
  while (holds(rank)) pop(out);
  std::vector<Line> rest = take(now);
  std::move(rest.begin(), rest.end(), std::back_inserter(out));
  return out;
}

std::vector<Fold::Line> Fold::take_all() {
  std::vector<Line> out;
  while (!lines_.empty()) pop(out);
  return out;
}

std::optional<TimePoint> Fold::deadline() const {
  if (lines_.empty()) return std::nullopt;
  return *since_.begin() + kWait;
}

}  // namespace distrun::launcher
