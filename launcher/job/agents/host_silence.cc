#include "launcher/job/agents/host_silence.h"

#include <algorithm>
#include <utility>

namespace distrun::launcher {
namespace {

// Rare enough to cost nothing, and frequent enough to notice a stop of this process.
constexpr Duration kBetweenLooks = std::chrono::seconds(1);

}  // namespace

HostSilence::Changes HostSilence::look(TimePoint now, std::span<SignOfLife* const> signs) {
  Changes out;
  stood_still(now, signs);
  find_back(now, signs, out);
  find_silent(now, signs, out);
  find_lost(now, signs, out);
  return out;
}

void HostSilence::stood_still(TimePoint now, std::span<SignOfLife* const> signs) {
  const Duration unseen = now - std::exchange(looked_, now).value_or(now);
  if (unseen <= kStoodStill) return;
  for (SignOfLife* const sign : signs) {
    const Duration silence = now - sign->heard;
    sign->heard += std::min(unseen, silence);
    if (sign->told) *sign->told += std::min(unseen, silence);
  }
  if (lost_at_) *lost_at_ += unseen;
}

void HostSilence::find_back(TimePoint now, std::span<SignOfLife* const> signs, Changes& out) {
  bool any_back = false;
  bool any_silent = false;
  for (SignOfLife* const sign : signs) {
    if (!sign->expected || !sign->told) continue;
    const bool back = !silent(*sign);
    if (back && sign->away == Duration::zero()) sign->away = sign->heard - *sign->told;
    any_back = any_back || back;
    any_silent = any_silent || !back;
  }
  if (!any_back) return back_by_.reset();
  if (!back_by_) back_by_ = now + kBackTogether;
  if (any_silent && now < *back_by_) return;
  back_by_.reset();
  for (std::size_t i = 0; i < signs.size(); ++i) {
    SignOfLife& sign = *signs[i];
    if (!sign.expected || !sign.told || silent(sign)) continue;
    out.back.push_back(i);
    out.away = std::max(out.away, std::exchange(sign.away, Duration::zero()));
    sign.told.reset();
  }
}

void HostSilence::find_silent(TimePoint now, std::span<SignOfLife* const> signs, Changes& out) {
  const auto since = [&](const SignOfLife& sign, Duration limit) {
    return sign.expected && !sign.told && now - sign.heard >= limit;
  };
  if (std::none_of(signs.begin(), signs.end(), [&](const SignOfLife* sign) { return since(*sign, kTold); })) return;
  for (std::size_t i = 0; i < signs.size(); ++i) {
    if (!since(*signs[i], kMissed)) continue;
    out.silent.push_back(i);
    signs[i]->told = signs[i]->heard;
  }
}

void HostSilence::find_lost(TimePoint now, std::span<SignOfLife* const> signs, Changes& out) {
  const bool any = std::any_of(signs.begin(), signs.end(),
                               [&](const SignOfLife* sign) { return sign->expected && now - sign->heard >= limit_; });
  if (!any) return lost_at_.reset();
  if (!lost_at_) lost_at_ = now + kLookAgain;
  if (now < *lost_at_) return;
  lost_at_.reset();
  out.lost = as_silent(now, signs);
}

std::vector<std::size_t> HostSilence::as_silent(TimePoint now, std::span<SignOfLife* const> signs,
                                                const SignOfLife* ended) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < signs.size(); ++i) {
    if (signs[i] == ended || (signs[i]->expected && now - signs[i]->heard >= kTold)) out.push_back(i);
  }
  return out;
}

std::optional<TimePoint> HostSilence::deadline(std::span<SignOfLife* const> signs) const {
  std::optional<TimePoint> next;
  const auto sooner = [&next](TimePoint when) { next = next ? std::min(*next, when) : when; };
  for (const SignOfLife* const sign : signs) {
    if (!sign->expected) continue;
    if (looked_) sooner(*looked_ + kBetweenLooks);
    if (!sign->told) sooner(sign->heard + kTold);
    if (!lost_at_) sooner(sign->heard + limit_);
  }
  if (next && back_by_) sooner(*back_by_);
  if (next && lost_at_) sooner(*lost_at_);
  return next;
}

}  // namespace distrun::launcher
