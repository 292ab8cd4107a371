#include "runtime/engine/readiness/stall.h"

#include <algorithm>
#include <cstdio>
#include <unordered_map>
#include <utility>

#include "runtime/engine/protocol/tensor_key.h"
#include "runtime/engine/readiness/mismatch.h"

namespace distrun::engine {
namespace {

constexpr std::size_t kNamesShown = 6;
constexpr Duration kLongestSilence = std::chrono::minutes(10);
// How long ranks may wait for one another if warnings are off.
constexpr Duration kTimeLimit = std::chrono::seconds(10);

struct Wait {
  int set;
  std::vector<int> missing;
  std::vector<const PendingTensor*> tensors;
};

std::string name_text(const PendingTensor& tensor) {
  return std::string(name_of(tensor.signature.kind)) + " '" + tensor.name + "'";
}

std::string names_text(const std::vector<const PendingTensor*>& tensors) {
  std::string text;
  for (std::size_t i = 0; i < std::min(tensors.size(), kNamesShown); ++i) {
    text += (i > 0 ? ", " : "") + name_text(*tensors[i]);
  }
  if (tensors.size() > kNamesShown) text += " and " + std::to_string(tensors.size() - kNamesShown) + " more";
  return text;
}

// Names the process set, because the missing rank may have submitted the same name to another set.
std::string set_text(const PendingTensor& tensor, const std::vector<std::string>& hosts) {
  if (tensor.set == 0) return "";
  return " on process set " + std::to_string(tensor.set) + " (" + describe_ranks(*tensor.members, hosts) + ")";
}

// The name that the user gave. Front ends put the operation before it, and the position in a group after it.
std::string_view users_name(std::string_view name) {
  const std::size_t dot = name.find('.');
  for (int kind = 0; dot != std::string_view::npos && kind < kNumOpKinds; ++kind) {
    if (name.substr(0, dot) != name_of(static_cast<OpKind>(kind))) continue;
    name.remove_prefix(dot + 1);
    break;
  }
  constexpr std::string_view kDigits = "0123456789";
  const std::size_t count = name.find_last_not_of(kDigits);
  if (count == std::string_view::npos || count + 1 == name.size() || !name.substr(0, count + 1).ends_with("of")) {
    return name;
  }
  const std::string_view before = name.substr(0, count - 1);
  const std::size_t place = before.find_last_not_of(kDigits);
  if (place == std::string_view::npos || place + 1 == before.size() || before[place] != '_') return name;
  return before.substr(0, place);
}

// True if each member has submitted one of the two tensors only. Excused members are ignored, because they have joined
// instead.
bool waiting_for_each_other(const PendingTensor& one, const PendingTensor& other) {
  for (std::size_t i = 0; i < one.when.size(); ++i) {
    if (one.has(i) == other.has(i) && !one.joined_instead(i) && !other.joined_instead(i)) return false;
  }
  return true;
}

bool of_same_members(const PendingTensor& one, const PendingTensor& other) {
  for (std::size_t i = 0; i < one.when.size(); ++i) {
    if (one.has(i) != other.has(i)) return false;
  }
  return one.joined_ranks == other.joined_ranks;
}

}  // namespace

std::vector<Rivals> rivals_among(const std::vector<PendingTensor*>& waiting, Duration wait_limit, TimePoint now) {
  // By set and user's name: the oldest tensor for each group of submitting members. There may be very many tensors, but
  // hardly more than two such groups for one name.
  std::unordered_map<TensorKey, std::vector<const PendingTensor*>, TensorKeyHash> by_name;
  const auto key_of = [](const PendingTensor& tensor) {
    return TensorKey{.set = tensor.set, .name = users_name(tensor.name)};
  };
  for (const PendingTensor* tensor : waiting) {
    const TensorKey key = key_of(*tensor);
    if (key.name.starts_with("noname.")) continue;
    auto& of_name = by_name[key];
    const auto same = [&](const PendingTensor* other) { return of_same_members(*tensor, *other); };
    if (std::none_of(of_name.begin(), of_name.end(), same)) of_name.push_back(tensor);
  }
  std::vector<Rivals> found;
  for (PendingTensor* tensor : waiting) {
    const auto of_name = by_name.find(key_of(*tensor));
    if (of_name == by_name.end()) continue;
    const auto is_rival = [&](const PendingTensor* other) {
      const auto [first, second] = std::minmax(tensor->first, other->first);
      return now - first >= wait_limit && now - second >= wait_limit / 2 && waiting_for_each_other(*tensor, *other);
    };
    const auto rival = std::find_if(of_name->second.begin(), of_name->second.end(), is_rival);
    if (rival != of_name->second.end()) found.push_back({.tensor = tensor, .rival = *rival});
  }
  return found;
}

Status rival_error(const PendingTensor& tensor, const PendingTensor& rival, const std::vector<std::string>& hosts) {
  const auto submission_of = [&hosts](const PendingTensor& of) {
    const std::vector<int> ranks = of.submitted_ranks();
    const std::uint32_t group = of.signature.group.size;
    return describe_ranks(ranks, hosts) + " submitted " + std::string(name_of(of.signature.kind)) + " '" + of.name +
           "'" + (group > 0 ? " in a group of " + std::to_string(group) : "");
  };
  std::vector<int> ranks = tensor.submitted_ranks();
  const std::vector<int> others = rival.submitted_ranks();
  ErrorInfo error{.code = Errc::kMismatch, .tensor = tensor.name};
  // As for other mismatches, the minority is the odd one.
  if (ranks.size() <= others.size()) error.ranks.insert(error.ranks.end(), ranks.begin(), ranks.end());
  if (others.size() <= ranks.size()) error.ranks.insert(error.ranks.end(), others.begin(), others.end());
  std::sort(error.ranks.begin(), error.ranks.end());
  error.host = hosts.at(static_cast<std::size_t>(error.ranks.front()));
  error.message = "tensor '" + tensor.name + "': " + submission_of(tensor) + ", but " + submission_of(rival) +
                  ". Call the same operation with the same name, on the same number of tensors, on every rank";
  return Status(std::move(error));
}

TimePoint next_warning(TimePoint since, TimePoint reported, Duration warning) {
  return reported + std::clamp(reported - since, warning, std::max(warning, kLongestSilence));
}

Duration StallLimits::wait_limit() const { return warning == Duration::zero() ? kTimeLimit : warning; }

TimePoint StallLimits::next_report(TimePoint since, TimePoint reported) const {
  return warning == Duration::zero() ? TimePoint::max() : next_warning(since, reported, warning);
}

bool StallLimits::passed(TimePoint since, TimePoint now) const {
  return shutdown > Duration::zero() && now - since >= shutdown;
}

void NextLook::consider(TimePoint since, TimePoint report) {
  waits_ = true;
  when_ = std::min(when_, report);
  if (limits_.shutdown > Duration::zero()) when_ = std::min(when_, since + limits_.shutdown);
}

std::string seconds_text(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

std::string stall_text(const std::vector<const PendingTensor*>& waiting, const std::vector<std::string>& hosts,
                       TimePoint now) {
  std::vector<Wait> waits;  // one per process set and its missing ranks, in order of the oldest tensor
  for (const PendingTensor* tensor : waiting) {
    auto missing = tensor->missing_ranks();
    const auto same = [&](const Wait& wait) { return wait.set == tensor->set && wait.missing == missing; };
    auto found = std::find_if(waits.begin(), waits.end(), same);
    if (found == waits.end()) found = waits.insert(found, Wait{.set = tensor->set, .missing = std::move(missing)});
    found->tensors.push_back(tensor);
  }
  std::string text;
  for (const Wait& wait : waits) {
    if (!text.empty()) text += "; ";
    const PendingTensor& oldest = *wait.tensors.front();
    text += "waiting for " + describe_ranks(wait.missing, hosts) + " to submit " + names_text(wait.tensors) +
            set_text(oldest, hosts) + ", " + seconds_text(now - oldest.first) + " after " +
            describe_ranks(oldest.submitted_ranks(), hosts);
  }
  return text;
}

std::vector<net::RankWait> waits_of(const std::vector<const PendingTensor*>& waiting) {
  std::vector<net::RankWait> waits;
  std::vector<std::vector<const PendingTensor*>> tensors;  // of each wait
  for (const PendingTensor* tensor : waiting) {
    net::RankWait wait{.what = {}, .waiting = tensor->submitted_ranks(), .missing = tensor->missing_ranks()};
    const auto same = [&](const net::RankWait& other) {
      return other.waiting == wait.waiting && other.missing == wait.missing;
    };
    const auto found = std::find_if(waits.begin(), waits.end(), same);
    const auto index = static_cast<std::size_t>(found - waits.begin());
    if (found == waits.end()) {
      waits.push_back(std::move(wait));
      tensors.emplace_back();
    }
    tensors[index].push_back(tensor);
  }
  for (std::size_t i = 0; i < waits.size(); ++i) waits[i].what = names_text(tensors[i]);
  return waits;
}

void Resumed::add(const PendingTensor& tensor, TimePoint now) {
  if (count_ < kNamesShown) names_ += (count_ > 0 ? ", " : "") + name_text(tensor);
  ++count_;
  longest_ = std::max(longest_, now - tensor.first);
}

std::string Resumed::take_text() {
  const Resumed taken = std::exchange(*this, {});
  const std::string more =
      taken.count_ > kNamesShown ? " and " + std::to_string(taken.count_ - kNamesShown) + " more" : "";
  return taken.names_ + more + " continued after " + seconds_text(taken.longest_);
}

ErrorInfo stall_error(const PendingTensor& tensor, const std::vector<std::string>& hosts, TimePoint now) {
  ErrorInfo error{.code = Errc::kTimeout, .tensor = tensor.name, .ranks = tensor.missing_ranks(), .usable = false};
  if (!error.ranks.empty()) error.host = hosts.at(static_cast<std::size_t>(error.ranks.front()));
  error.cause = "stalled";
  error.message = name_text(tensor) + set_text(tensor, hosts) + " has waited " + seconds_text(now - tensor.first) +
                  " for " + describe_ranks(error.ranks, hosts) + " to submit it, longer than --stall-shutdown-time";
  return error;
}

}  // namespace distrun::engine
