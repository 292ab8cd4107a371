#include "launcher/report/errors/repeated_errors.h"

#include <algorithm>

#include "launcher/report/lines/last_exception.h"
#include "launcher/spawn/poller.h"

namespace distrun::launcher {
namespace {

std::string_view line_of(const Piece& piece) {
  std::string_view line = std::string_view(piece.text).substr(0, piece.text.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return without_rank_tag(line);
}

bool whole_line(const Piece& piece) { return piece.begins && piece.ends && !piece.redrawn; }

// An error of syntax has no heading.
bool begins_error(std::string_view line) { return begins_traceback(line) || line.starts_with("  File \""); }

// The lines between the heading and the exception are indented, or empty.
bool ends_error(std::string_view line) { return !line.empty() && !line.starts_with(' ') && !begins_error(line); }

}  // namespace

std::vector<RepeatedErrors::Candidate> RepeatedErrors::places_of(int rank, std::string_view line) const {
  std::vector<Candidate> out;
  for (const auto& [other, shown] : shown_) {
    for (std::size_t i = 0; other != rank && i < shown.lines.size(); ++i) {
      if (shown.lines[i] == line) out.push_back({.rank = other, .from = shown.oldest + i});
    }
  }
  return out;
}

// False if the held lines are no other rank's. The other rank may not have written all of its lines yet.
bool RepeatedErrors::compare(Held& held) const {
  std::erase_if(held.candidates, [&](Candidate& place) {
    const Shown& other = shown_.at(place.rank);
    if (place.from < other.oldest) return true;
    for (; place.equal < held.lines.size(); ++place.equal) {
      const auto at = static_cast<std::size_t>(place.from - other.oldest) + place.equal;
      if (at >= other.lines.size()) return false;
      if (other.lines[at] != held.lines[place.equal]) return true;
    }
    return false;
  });
  return !held.candidates.empty();
}

void RepeatedErrors::note_shown(int rank, const std::deque<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    if (!whole_line(piece)) continue;
    Shown& own = shown_[rank];
    own.lines.emplace_back(line_of(piece));
    if (own.lines.size() <= kMostLines) continue;
    own.lines.pop_front();
    ++own.oldest;
  }
}

// False if the piece shows that the held lines are this rank's own.
bool RepeatedErrors::add(Held& held, const Piece& piece, TimePoint now) const {
  const std::string_view line = line_of(piece);
  const bool begins = whole_line(piece) && begins_error(line);
  held.bytes += piece.text.size();
  if (held.bytes > kMostBytes) return false;
  if (held.error && held.whole && !begins) return true;
  if (!whole_line(piece)) return false;
  held.lines.emplace_back(line);
  held.error = held.error || begins;
  held.whole = !held.error || ends_error(line);
  if (held.error) held.until = now + kWait;
  return compare(held);
}

std::deque<Piece> RepeatedErrors::pass(int rank, Piece piece, bool first, TimePoint now) {
  std::deque<Piece> out;
  if (const auto at = held_.find(rank); at != held_.end()) {
    if (add(at->second, piece, now)) {
      at->second.pieces.push_back(std::move(piece));
      return out;
    }
    out = take(rank).pieces;
    note_shown(rank, out);
  }
  const std::string_view line = line_of(piece);
  Held held{.until = now + kWaitOfFirst};
  if (whole_line(piece) && !line.empty() && (begins_error(line) || (first && !shown_.contains(rank)))) {
    held.candidates = places_of(rank, line);
  }
  if (!held.candidates.empty() && add(held, piece, now)) {
    held.pieces.push_back(std::move(piece));
    held_.emplace(rank, std::move(held));
    return out;
  }
  std::deque<Piece> own;
  own.push_back(std::move(piece));
  note_shown(rank, own);
  out.push_back(std::move(own.front()));
  return out;
}

std::vector<RepeatedErrors::Release> RepeatedErrors::due(TimePoint now) {
  std::vector<Release> out;
  for (const int rank : holding()) {
    Held& held = held_.at(rank);
    if (compare(held) && now < held.until) continue;
    out.push_back(take(rank));
    note_shown(rank, out.back().pieces);
  }
  return out;
}

std::optional<TimePoint> RepeatedErrors::deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [rank, held] : held_) next = earlier(next, held.until);
  return next;
}

RepeatedErrors::Release RepeatedErrors::take(int rank) {
  const auto at = held_.find(rank);
  if (at == held_.end()) return {.rank = rank};
  Held held = std::move(at->second);
  held_.erase(at);
  const bool repeated = compare(held) && held.whole &&
                        std::any_of(held.candidates.begin(), held.candidates.end(),
                                    [&](const Candidate& place) { return place.equal == held.lines.size(); });
  return {.rank = rank, .pieces = std::move(held.pieces), .repeated = repeated ? held.lines.size() : 0};
}

std::vector<int> RepeatedErrors::holding() const {
  std::vector<int> out;
  for (const auto& [rank, held] : held_) out.push_back(rank);
  return out;
}

}  // namespace distrun::launcher
