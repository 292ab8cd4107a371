#include "runtime/engine/agreement/coordinator.h"

#include <utility>

namespace distrun::engine {

Coordinator::Coordinator(CoordinatorOptions options)
    : limits_{.warning = options.stall_warning, .shutdown = options.stall_shutdown},
      members_(options.world_size, std::move(options.hosts), options.next_set),
      tensors_(
          {.fusion_threshold = options.fusion_threshold, .cache_capacity = options.cache_capacity, .limits = limits_},
          members_, decisions_),
      calls_(limits_, members_, tensors_, decisions_) {}

void Coordinator::submitted(int rank, const message::Submitted& request, TimePoint now) {
  if (finished()) return;
  tensors_.submitted(rank, request, now);
  look_for_circles(now);
}

void Coordinator::ready(int rank, TensorId id, TimePoint now) {
  if (finished()) return;
  tensors_.ready(rank, id, now);
  look_for_circles(now);
}

void Coordinator::called(int rank, Call call, TimePoint now, const Status& refused) {
  if (finished()) return;
  calls_.called(rank, std::move(call), now, refused);
  look_for_circles(now);
}

void Coordinator::set_made(int rank, int set, const Status& result) {
  if (!finished()) calls_.set_made(rank, set, result);
}

void Coordinator::leave(int rank) {
  if (finished()) return;
  if (!members_.leave(rank)) return decisions_.protocol_error(rank, members_.hosts(), "two messages that it leaves");
  decisions_.append(entry::Left{.rank = rank});
  tensors_.left();
}

void Coordinator::drained(int rank) {
  if (finished() || members_.drained(rank)) return;
  decisions_.protocol_error(rank, members_.hosts(),
                            "a message that it has no operations any more, twice or before it left");
}

Actions Coordinator::act(std::span<const int> busy, bool hold) {
  if (!finished()) {
    tensors_.append_ready(busy, hold);
    calls_.run();
    tensors_.report_resumed();
    // Checked here: other calls can wait for a rank that has left only once the call that it was in has ended.
    if (members_.any_left()) calls_.tick(TimePoint{});
    if (members_.all_drained()) decisions_.shut_down();
  }
  return decisions_.take();
}

// --- limits of time ---

// The new event may complete a circle of ranks that wait for one another. The oldest wait may be reported already, and
// not be due again for long. So this searches for circles as often as if each report came one warning time after the
// last.
void Coordinator::look_for_circles(TimePoint now) {
  news_at_ = now;
  if (!check_at_) check_at_ = now + limits_.wait_limit();
}

std::optional<TimePoint> Coordinator::next_tick() const {
  if (finished()) return std::nullopt;
  NextLook next(limits_);
  tensors_.look(next);
  calls_.look(next);
  if (next.anything_waits() && check_at_ && next.when() - *check_at_ > limits_.wait_limit()) return *check_at_;
  return next.when() == TimePoint::max() ? std::nullopt : std::optional(next.when());
}

void Coordinator::tick(TimePoint now) {
  if (finished()) return;
  if (check_at_ && *check_at_ <= now) {
    check_at_.reset();
    if (news_at_ + limits_.wait_limit() > now) check_at_ = news_at_ + limits_.wait_limit();
  }
  tensors_.tick(now);
  calls_.tick(now);
}

std::vector<net::RankWait> Coordinator::waits() {
  std::vector<net::RankWait> all = tensors_.waits();
  for (net::RankWait& wait : calls_.waits()) all.push_back(std::move(wait));
  return all;
}

void Coordinator::suspended(const Suspension& gap) {
  tensors_.suspended(gap);
  calls_.suspended(gap);
  news_at_ = gap.moved(news_at_);
  if (check_at_) check_at_ = gap.moved(*check_at_);
}

}  // namespace distrun::engine
