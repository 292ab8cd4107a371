#include "test/sim/mutants.h"

#include <algorithm>
#include <array>
#include <functional>

namespace distrun::sim {
namespace {

using engine::Entry;
using engine::Message;
namespace entry = engine::entry;
namespace message = engine::message;

constexpr std::array<std::string_view, kNumMutants> kNames = {
    "dropped",      "said-twice", "said-after-evict", "asleep-member", "asleep-leader",
    "not-appended", "reordered",  "not-failed",       "not-evicted",   "other-cause"};
constexpr int kMostSkips = 12;

// Replaces an entry that is withheld, so that the entries after it keep their numbers.
Entry nothing() { return entry::Evict{}; }

template <class Kind>
bool hide(std::vector<Entry>& entries, const std::function<bool()>& occasion) {
  for (Entry& one : entries) {
    if (!std::holds_alternative<Kind>(one) || !occasion()) continue;
    one = nothing();
    return true;
  }
  return false;
}

bool swap_two(std::vector<Entry>& entries, const std::function<bool()>& occasion) {
  for (std::size_t i = 1; i < entries.size(); ++i) {
    const auto* first = std::get_if<entry::Run>(&entries[i - 1]);
    const auto* second = std::get_if<entry::Run>(&entries[i]);
    if (first == nullptr || second == nullptr || first->set != second->set || !occasion()) continue;
    std::swap(entries[i - 1], entries[i]);
    return true;
  }
  return false;
}

}  // namespace

std::string_view name_of(MutantKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

std::optional<MutantKind> mutant_of(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<MutantKind>(found - kNames.begin());
}

Mutant::Mutant(MutantKind kind, std::uint64_t seed)
    : kind_(kind), random_(seed), skips_(random_.between(0, kMostSkips)) {}

bool Mutant::occasion() {
  if (struck_ || skips_-- > 0) return false;
  struck_ = true;
  return true;
}

void Mutant::touch(Passing& passing, LogWitness& witness) {
  if (struck_) return;
  switch (kind_) {
    case MutantKind::kDropped:
      passing.arrives = !occasion();
      return;
    case MutantKind::kAsleepMember:
      passing.wakes = passing.to == 0 || !occasion();
      return;
    case MutantKind::kAsleepLeader:
      passing.wakes = passing.to != 0 || !occasion();
      return;
    default:
      break;
  }
  auto frame = engine::decode(*passing.bytes);
  if (!frame.ok()) return;
  const bool changed = passing.to == 0 ? change_member(*frame, passing.from, witness) : change_leader(*frame);
  if (changed) passing.bytes = std::make_shared<const std::vector<std::byte>>(engine::encode(*frame));
}

bool Mutant::change_member(engine::Frame& frame, int rank, LogWitness& witness) {
  for (Message& one : frame.messages) {
    auto* ready = std::get_if<message::Ready>(&one);
    if (kind_ == MutantKind::kSaidTwice && ready != nullptr && occasion()) {
      ready->ids.push_back(ready->ids.back());
      return true;
    }
    const auto* submitted = std::get_if<message::Submitted>(&one);
    if (kind_ != MutantKind::kSaidAfterEvict || submitted == nullptr) continue;
    const engine::TensorId id = witness.stale_id(rank, submitted->set, submitted->name);
    if (id == engine::kNoId || !occasion()) continue;
    one = message::Ready{.ids = {id}};
    return true;
  }
  return false;
}

bool Mutant::change_leader(engine::Frame& frame) {
  const std::function<bool()> strikes = [this] { return occasion(); };
  for (Message& one : frame.messages) {
    auto* abort = std::get_if<message::Abort>(&one);
    if (kind_ == MutantKind::kOtherCause && abort != nullptr && !abort->why.info().ranks.empty() && occasion()) {
      ErrorInfo info = abort->why.info();
      for (int& rank : info.ranks) ++rank;
      abort->why = Status(std::move(info));
      return true;
    }
    auto* append = std::get_if<message::Append>(&one);
    if (append == nullptr) continue;
    auto& entries = append->entries;
    if (kind_ == MutantKind::kNotAppended) return hide<entry::Run>(entries, strikes);
    if (kind_ == MutantKind::kNotFailed) return hide<entry::Fail>(entries, strikes);
    if (kind_ == MutantKind::kNotEvicted) return hide<entry::Evict>(entries, strikes);
    if (kind_ == MutantKind::kReordered) return swap_two(entries, strikes);
  }
  return false;
}

}  // namespace distrun::sim
