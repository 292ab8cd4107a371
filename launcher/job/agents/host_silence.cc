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
  skip_suspension(now, signs);
  find_back(now, signs, out);
  find_silent(now, signs, out);
  find_lost(now, signs, out);
  return out;
}

void HostSilence::skip_suspension(TimePoint now, std::span<SignOfLife* const> signs) {
  const Duration not_polled = now - std::exchange(looked_, now).value_or(now);
  if (not_polled <= kSuspended) return;
  for (SignOfLife* const sign : signs) {
    const Duration silence = now - sign->received_at;
    sign->received_at += std::min(not_polled, silence);
    if (sign->reported_since) *sign->reported_since += std::min(not_polled, silence);
  }
  if (lost_at_) *lost_at_ += not_polled;
}

void HostSilence::find_back(TimePoint now, std::span<SignOfLife* const> signs, Changes& out) {
  bool any_back = false;
  bool any_silent = false;
  for (SignOfLife* const sign : signs) {
    if (!sign->expected || !sign->reported_since) continue;
    const bool back = !silent(*sign);
    if (back && sign->silent_for == Duration::zero()) sign->silent_for = sign->received_at - *sign->reported_since;
    any_back = any_back || back;
    any_silent = any_silent || !back;
  }
  if (!any_back) return back_by_.reset();
  if (!back_by_) back_by_ = now + kBackTogether;
  if (any_silent && now < *back_by_) return;
  back_by_.reset();
  for (std::size_t i = 0; i < signs.size(); ++i) {
    SignOfLife& sign = *signs[i];
    if (!sign.expected || !sign.reported_since || silent(sign)) continue;
    out.back.push_back(i);
    out.silent_for = std::max(out.silent_for, std::exchange(sign.silent_for, Duration::zero()));
    sign.reported_since.reset();
  }
}

void HostSilence::find_silent(TimePoint now, std::span<SignOfLife* const> signs, Changes& out) {
  const auto since = [&](const SignOfLife& sign, Duration limit) {
    return sign.expected && !sign.reported_since && now - sign.received_at >= limit;
  };
  if (std::none_of(signs.begin(), signs.end(), [&](const SignOfLife* sign) { return since(*sign, kReportAfter); }))
    return;
  for (std::size_t i = 0; i < signs.size(); ++i) {
    if (!since(*signs[i], kMissed)) continue;
    out.silent.push_back(i);
    signs[i]->reported_since = signs[i]->received_at;
  }
}

void HostSilence::find_lost(TimePoint now, std::span<SignOfLife* const> signs, Changes& out) {
  const bool any = std::any_of(signs.begin(), signs.end(), [&](const SignOfLife* sign) {
    return sign->expected && now - sign->received_at >= limit_;
  });
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
    if (signs[i] == ended || (signs[i]->expected && now - signs[i]->received_at >= kReportAfter)) out.push_back(i);
  }
  return out;
}

std::optional<TimePoint> HostSilence::deadline(std::span<SignOfLife* const> signs) const {
  std::optional<TimePoint> next;
  const auto sooner = [&next](TimePoint when) { next = next ? std::min(*next, when) : when; };
  for (const SignOfLife* const sign : signs) {
    if (!sign->expected) continue;
    if (looked_) sooner(*looked_ + kBetweenLooks);
    if (!sign->reported_since) sooner(sign->received_at + kReportAfter);
    if (!lost_at_) sooner(sign->received_at + limit_);
  }
  if (next && back_by_) sooner(*back_by_);
  if (next && lost_at_) sooner(*lost_at_);
  return next;
}

}  // namespace distrun::launcher
