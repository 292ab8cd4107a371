#include "runtime/backend/select.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "runtime/base/setting_values.h"

namespace distrun::backend {
namespace {

// Why a backend cannot be used. Names the member that is the reason, unless the reason is the same for all.
struct Obstacle {
  LoserCode code = LoserCode::kMissing;
  std::string text;
  int rank = -1;
  std::string host;
};

// One backend, judged for the whole group.
struct Candidate {
  std::string name;
  std::optional<Obstacle> obstacle;  // none: it is available
  std::string reason;                // its purpose, or the obstacle's text
  std::string own_reason;            // the reason in its offer, if it lacks this device type
  int score = 0;
  Capabilities all;  // what all members have in common
};

std::string who(int rank, const std::string& host) { return "rank " + std::to_string(rank) + " (" + host + ")"; }

const Offer* find_offer(const std::vector<Offer>& offers, std::string_view name) {
  const auto found = std::find_if(offers.begin(), offers.end(), [&](const Offer& o) { return o.backend == name; });
  return found == offers.end() ? nullptr : &*found;
}

// The device types that the bare name of a backend stands for: those that the backend supports on all members that have
// it. If it is available on no member, the device types that any member lists.
std::uint32_t devices_of(const std::vector<std::vector<Offer>>& offers, std::string_view name) {
  std::uint32_t of_all = ~0U;
  std::uint32_t of_any = 0;
  bool available = false;
  for (const std::vector<Offer>& member : offers) {
    const Offer* offer = find_offer(member, name);
    if (offer == nullptr) continue;
    of_any |= offer->capabilities.devices;
    if (offer->available) of_all &= offer->capabilities.devices;
    available = available || offer->available;
  }
  return available ? of_all : of_any;
}

bool has(std::uint32_t devices, DeviceType device) { return ((devices >> static_cast<unsigned>(device)) & 1U) != 0; }

struct View {
  DeviceType device;
  const std::vector<std::vector<Offer>>& offers;
  const std::vector<int>& members;
  const std::vector<std::string>& hosts;
};

// `text` is appended to the member's name.
Obstacle of_member(const View& view, std::size_t i, LoserCode code, const std::string& text) {
  return {
      .code = code, .text = who(view.members[i], view.hosts[i]) + text, .rank = view.members[i], .host = view.hosts[i]};
}

LoserCode code_of(Absence absence) {
  switch (absence) {
    case Absence::kUnmetSetting:
      return LoserCode::kUnmetSetting;
    case Absence::kSetUpFailed:
      return LoserCode::kSetUpFailed;
    case Absence::kMissing:
      break;
  }
  return LoserCode::kMissing;
}

// The obstacle if member `i` has another version than the first member and would act differently; otherwise none.
std::optional<Obstacle> other_way(const View& view, std::size_t i, const Offer& offer) {
  const Offer* first = find_offer(view.offers.front(), offer.backend);
  if (first == nullptr) return std::nullopt;
  const auto differs = [&](bool here, bool there, const std::string& what) {
    return of_member(view, i, LoserCode::kOtherVersion,
                     " has another version of it, which " + std::string(here ? "does " : "does not ") + what +
                         ", but that of " + who(view.members[0], view.hosts[0]) + (there ? " does" : " does not") +
                         ". Install the same version on all hosts");
  };
  const Capabilities& mine = offer.capabilities;
  const Capabilities& theirs = first->capabilities;
  if (mine.scatter_gather != theirs.scatter_gather) {
    return differs(mine.scatter_gather, theirs.scatter_gather, "scale by itself (scatter_gather)");
  }
  if (mine.exclusive != theirs.exclusive) {
    return differs(mine.exclusive, theirs.exclusive, "need operations one after the other (needs_total_order)");
  }
  return std::nullopt;
}

bool lacks_device(const View& view, const Offer* offer) {
  return offer != nullptr && offer->available && !has(offer->capabilities.devices, view.device);
}

// Why member `i` cannot use backend `name` for the device; none if it can.
std::optional<Obstacle> obstacle(const View& view, std::size_t i, std::string_view name) {
  const Offer* offer = find_offer(view.offers[i], name);
  if (offer == nullptr) return of_member(view, i, LoserCode::kNotOffered, ": it is not installed");
  if (!offer->available) {
    return of_member(view, i, code_of(offer->absence), ": not available: " + offer->reason);
  }
  if (lacks_device(view, offer)) {
    return Obstacle{.code = LoserCode::kNoDevice,
                    .text = "does not support " + std::string(name_of(view.device)) + " tensors"};
  }
  return other_way(view, i, *offer);
}

// Why the backend has nothing to do in the group. Empty unless all members report this.
std::string nothing_to_do(const View& view, std::string_view name) {
  for (const std::vector<Offer>& member : view.offers) {
    const Offer* offer = find_offer(member, name);
    if (offer == nullptr || offer->nothing_to_do.empty()) return {};
  }
  return find_offer(view.offers.front(), name)->nothing_to_do;
}

// The backend is available if all members can use it. Its score is the lowest score of any member.
Candidate judge(const View& view, const std::string& name) {
  Candidate candidate = {.name = name};
  for (std::size_t i = 0; i < view.offers.size(); ++i) {
    const Offer* offer = find_offer(view.offers[i], name);
    auto why_not = obstacle(view, i, name);
    if (why_not && !candidate.obstacle) {
      candidate.reason = why_not->text;
      candidate.obstacle = std::move(why_not);
      if (lacks_device(view, offer)) candidate.own_reason = " (" + offer->reason + ")";
      continue;
    }
    if (why_not) continue;
    candidate.score = i == 0 ? offer->score : std::min(candidate.score, offer->score);
    if (i == 0) candidate.reason = offer->reason;
    if (i == 0) candidate.all = offer->capabilities;
    candidate.all.ops &= offer->capabilities.ops;
    candidate.all.dtypes &= offer->capabilities.dtypes;
    candidate.all.devices &= offer->capabilities.devices;
  }
  if (const std::string why = nothing_to_do(view, name); !why.empty()) {
    candidate.reason = "has nothing to do: " + why;
    candidate.obstacle = {.code = LoserCode::kNothingToDo, .text = candidate.reason};
  }
  return candidate;
}

bool is_idle(const Candidate& candidate) {
  return candidate.obstacle && candidate.obstacle->code == LoserCode::kNothingToDo;
}

// Sorted by name, so that the result does not depend on the order of the offers.
std::map<std::string, Candidate> judge_all(const View& view) {
  std::map<std::string, Candidate> candidates;
  for (const std::vector<Offer>& member : view.offers) {
    for (const Offer& offer : member) {
      if (!candidates.contains(offer.backend)) candidates.emplace(offer.backend, judge(view, offer.backend));
    }
  }
  return candidates;
}

struct Choice {
  std::string backend;  // empty: select by score
  bool named_for_device = false;
};

// The part of the setting that applies to `device`. A bare name applies to every device.
Choice choice_for(DeviceType device, std::string_view forced) {
  Choice choice;
  while (!forced.empty()) {
    const std::size_t comma = std::min(forced.find(','), forced.size());
    const std::string_view item = forced.substr(0, comma);
    forced.remove_prefix(std::min(comma + 1, forced.size()));
    const std::size_t colon = item.find(':');
    if (colon == std::string_view::npos) {
      if (!choice.named_for_device) choice.backend = item;
    } else if (item.substr(0, colon) == name_of(device)) {
      choice = {.backend = std::string(item.substr(colon + 1)), .named_for_device = true};
    }
  }
  if (choice.backend == "auto") choice.backend.clear();
  return choice;
}

std::string listed(const std::map<std::string, Candidate>& candidates) {
  std::string text;
  for (const auto& [name, candidate] : candidates) {
    if (!text.empty()) text += "; ";
    text += name + ": " + (candidate.obstacle ? candidate.reason : "available");
  }
  return text.empty() ? "no backend is offered" : text;
}

Loser loser_of(const Candidate& candidate, const Candidate& winner, bool forced, const std::string& setting) {
  if (candidate.obstacle) {
    const Obstacle& why = *candidate.obstacle;
    return {.backend = candidate.name, .code = why.code, .reason = why.text, .rank = why.rank, .host = why.host};
  }
  Loser loser{.backend = candidate.name, .reason = {}, .host = {}, .score = candidate.score};
  if (forced) {
    loser.code = LoserCode::kNotTheOneSet;
    loser.reason = "--backend " + setting + " chooses another one";
    return loser;
  }
  const bool tie = candidate.score == winner.score;
  loser.code = tie ? LoserCode::kSameScore : LoserCode::kLowerScore;
  loser.reason = (tie ? "same score, but later in the alphabet (" : "lower score (") + std::to_string(candidate.score) +
                 (tie ? " = " : " < ") + std::to_string(winner.score) + ")";
  return loser;
}

Selection won(const std::map<std::string, Candidate>& candidates, const Candidate& winner, bool forced,
              const std::string& setting) {
  Selection selection = {.backend = winner.name,
                         .reason = forced ? "chosen by --backend " + setting : winner.reason,
                         .set = forced,
                         .score = winner.score,
                         .capabilities = winner.all,
                         .losers = {}};
  for (const auto& [name, candidate] : candidates) {
    if (name != winner.name) selection.losers.push_back(loser_of(candidate, winner, forced, setting));
  }
  return selection;
}

std::vector<std::string> possible(const std::map<std::string, Candidate>& candidates) {
  std::vector<std::string> out;
  for (const auto& [name, candidate] : candidates) {
    if (!candidate.obstacle) out.push_back(name);
  }
  return out;
}

Status impossible(const std::map<std::string, Candidate>& candidates, const std::string& setting,
                  const std::string& backend, const std::string& reason) {
  std::string others;
  for (const std::string& name : possible(candidates)) others += (others.empty() ? "" : ", ") + name;
  return {Errc::kUnsupported,
          "--backend " + setting + " (DISTRUN_BACKEND) is not possible for these ranks (" + backend + ": " + reason +
              "). " +
              (others.empty() ? "Repair this, because no other backend is possible (" + listed(candidates) + ")."
                              : "Leave it out, or choose one of: " + others + ".")};
}

}  // namespace

std::string_view name_of(LoserCode code) {
  switch (code) {
    case LoserCode::kNotOffered:
      return "not_offered";
    case LoserCode::kMissing:
      return "missing";
    case LoserCode::kUnmetSetting:
      return "unmet_setting";
    case LoserCode::kSetUpFailed:
      return "set_up_failed";
    case LoserCode::kNoDevice:
      return "no_device";
    case LoserCode::kOtherVersion:
      return "other_version";
    case LoserCode::kNothingToDo:
      return "nothing_to_do";
    case LoserCode::kLowerScore:
      return "lower_score";
    case LoserCode::kSameScore:
      return "same_score";
    case LoserCode::kNotTheOneSet:
      return "not_the_one_set";
  }
  return "missing";
}

Result<Selection> select(DeviceType device, const std::vector<std::vector<Offer>>& offers,
                         const std::vector<int>& members, const std::vector<std::string>& hosts,
                         const std::string& forced, bool whole_job) {
  DISTRUN_CHECK(!offers.empty() && offers.size() == members.size() && offers.size() == hosts.size(),
                "one list of offers, one rank and one host per member");
  const auto candidates = judge_all({.device = device, .offers = offers, .members = members, .hosts = hosts});
  const Choice choice = choice_for(device, forced);
  if (!choice.backend.empty()) {
    const auto found = candidates.find(choice.backend);
    if (found == candidates.end())
      return Status(Errc::kUnsupported, no_such_backend(choice.backend, possible(candidates)));
    if (!found->second.obstacle) return won(candidates, found->second, true, forced);
    // A bare name applies only to the device types that the backend supports. The others are selected by score.
    const std::uint32_t devices = devices_of(offers, choice.backend);
    const bool other_device = !has(devices, device);
    // A group of one rank needs no communication, so the setting applies only to larger groups.
    const bool alone = members.size() == 1 && !other_device;
    const bool idle = is_idle(found->second) && !whole_job;
    if (!alone && !idle && (choice.named_for_device || !other_device || devices == 0)) {
      return impossible(candidates, forced, choice.backend, found->second.reason + found->second.own_reason);
    }
  }
  const Candidate* best = nullptr;
  for (const auto& [name, candidate] : candidates) {
    if (!candidate.obstacle && (best == nullptr || candidate.score > best->score)) best = &candidate;
  }
  if (best == nullptr) {
    return Status(Errc::kUnsupported, "No backend can move " + std::string(name_of(device)) +
                                          " tensors between these ranks (" + listed(candidates) +
                                          "). Repair one of these causes. `distrun check --build` shows more.");
  }
  Selection selection = won(candidates, *best, false, forced);
  if (const auto asked = candidates.find(choice.backend); asked != candidates.end() && is_idle(asked->second)) {
    selection.reason += "; " + choice.backend + " (--backend " + forced + ") " + asked->second.reason;
  }
  return selection;
}

bool asks_for(DeviceType device, const std::vector<std::vector<Offer>>& offers, const std::string& forced) {
  const Choice choice = choice_for(device, forced);
  if (choice.backend.empty()) return false;
  if (choice.named_for_device) return true;
  return has(devices_of(offers, choice.backend), device);
}

}  // namespace distrun::backend
