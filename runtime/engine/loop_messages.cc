// The loop's part that talks: frames in, the leader's decisions out.
#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/engine/loop.h"

namespace distrun::engine {
namespace {

// So many batches of a set may be in flight before its ready tensors wait to be fused with the next ones.
constexpr int kBusyFlights = 2;
// Nothing more runs while the log is so far ahead of a member that does not read it (bytes): a stopped one, while sets
// without it go on, would take all memory here. And for all members together, for they may be very many.
constexpr std::size_t kMostQueued = std::size_t{64} << 20;
constexpr std::size_t kMostQueuedInAll = std::size_t{1} << 30;

}  // namespace

bool EngineLoop::receive() {
  if (options_.control_plane == nullptr) return false;
  bool moved = false;
  while (options_.control_plane->receive(received_)) {
    moved = true;
    auto frame = decode(received_.bytes);
    if (!frame.ok()) {
      fail(frame.status().with_context("rank " + std::to_string(received_.from)), true);
      continue;
    }
    if (coordinator_) coordinator_->has_read(received_.from, frame->index);
    for (Message& message : frame->messages) hear(received_.from, frame->index, message);
  }
  return moved;
}

void EngineLoop::hear(int from, std::uint64_t index, Message& message) {
  if (const auto* abort = std::get_if<message::Abort>(&message)) return fail(abort->why, leader_);
  if (!failed_.ok()) return;
  if (const auto* ping = std::get_if<message::Ping>(&message)) return answer(from, *ping);
  if (const auto* pong = std::get_if<message::Pong>(&message)) return hear_answer(from, *pong);
  if (leader_) {
    coordinator_->has_read(from, index);
    hear_member(from, message, Clock::now());
  } else {
    hear_leader(index, message);
  }
}

void EngineLoop::hear_member(int rank, Message& message, TimePoint now) {
  if (const auto* ready = std::get_if<message::Ready>(&message)) {
    for (const TensorId id : ready->ids) coordinator_->ready(rank, id, now);
  } else if (const auto* submitted = std::get_if<message::Submitted>(&message)) {
    coordinator_->submitted(rank, *submitted, now);
  } else if (auto* called = std::get_if<message::Called>(&message)) {
    coordinator_->called(rank, std::move(called->call), now, called->refused);
  } else if (const auto* made = std::get_if<message::SetMade>(&message)) {
    coordinator_->set_made(rank, made->set, made->result);
  } else if (std::holds_alternative<message::Leaving>(message)) {
    coordinator_->leave(rank);
  } else if (std::holds_alternative<message::Drained>(message)) {
    hear_drained(rank);
  } else if (auto* events = std::get_if<message::Events>(&message)) {
    write_events(rank, std::move(events->events));
  } else if (const auto* asked = std::get_if<message::StopAsked>(&message)) {
    hear_stop(rank, *asked);
  } else if (const auto* count = std::get_if<message::StopCount>(&message)) {
    stopping_.counted(rank, count->calls);
    decide_stop();
  }
}

// It may go before the log has ended.
void EngineLoop::hear_drained(int rank) {
  coordinator_->drained(rank);
  watchdog_.left(rank);
  if (rank == 0) return;
  options_.control_plane->may_go(rank);
  detector_.forgive(rank);
}

void EngineLoop::hear_leader(std::uint64_t index, Message& message) {
  if (std::holds_alternative<message::StopHold>(message)) {
    if (!stopping_since_) stopping_since_ = Clock::now();
    return say(0, message::StopCount{.calls = shared_.stop.hold()});
  }
  if (const auto* stop = std::get_if<message::StopAt>(&message)) return stop_at(stop->call);
  auto* append = std::get_if<message::Append>(&message);
  if (append == nullptr) return;
  if (index != read_) {
    return fail({Errc::kProtocol, "the decision log continues at entry " + std::to_string(index) + " instead of " +
                                      std::to_string(read_) + "; this is a bug in distrun"},
                true);
  }
  for (Entry& entry : append->entries) read(entry);
  outbox_.set_index(read_);
}

// At the leader.
bool EngineLoop::decide() {
  if (!failed_.ok()) return false;
  std::vector<int> busy;
  for (const ProcessSet* set : executor_.active()) {
    if (set->in_flight >= kBusyFlights) busy.push_back(set->id);
  }
  const net::Queued queued = options_.control_plane == nullptr ? net::Queued() : options_.control_plane->queued();
  const bool hold = queued.most > kMostQueued || queued.all > kMostQueuedInAll;
  // What the log has for the timeline and is not followed yet decides first.
  if (log_.empty() && std::exchange(recording_in_vain_, false)) coordinator_->end_timeline();
  Actions actions = coordinator_->act(busy, hold);
  for (const std::string& warning : actions.warnings) warn(warning);
  for (Entry& entry : actions.entries) log_.push_back(std::move(entry));
  const bool followed = follow_log();
  if (actions.abort.code() == Errc::kTimeout) {
    // A rank may miss a tensor only because it waits itself for one that does not answer: that one is the cause.
    watchdog_.end(actions.abort);
  } else if (!actions.abort.ok()) {
    tell_launcher(actions.abort);
    fail(actions.abort, true);
  }
  return followed || !actions.warnings.empty();
}

// The others are told before anything runs here, so that they start no later than this rank. While this rank makes a
// set nothing is sent, and who makes one with it does not listen: so all that they need for it, and for the sets that
// they make before it, has reached them when it begins, and nothing is on its way behind it.
bool EngineLoop::follow_log() {
  bool followed = false;
  while (!log_.empty() && failed_.ok()) {
    if (told_ == 0) tell_log();
    if (makes_here(log_.front()) && options_.control_plane->pending()) break;
    Entry entry = std::move(log_.front());
    log_.pop_front();
    --told_;
    read(entry);
    followed = true;
  }
  return followed;
}

// Up to the next set that this rank makes with others.
void EngineLoop::tell_log() {
  const auto makes = std::find_if(log_.begin(), log_.end(), [this](const Entry& entry) { return makes_here(entry); });
  const auto end = makes == log_.end() ? makes : std::next(makes);
  told_ = static_cast<std::size_t>(end - log_.begin());
  outbox_.append({log_.begin(), end});
  send();
}

bool EngineLoop::makes_here(const Entry& entry) const {
  const auto* make = std::get_if<entry::MakeSet>(&entry);
  return make != nullptr && make->ranks.size() > 1 &&
         std::binary_search(make->ranks.begin(), make->ranks.end(), options_.world.rank);
}

// What there is to say goes out as far as the control plane takes it; true if anything moved.
bool EngineLoop::send() {
  if (const Status sent = outbox_.flush(); !sent.ok()) {
    detector_.suspect_operation(sent.with_context("the control plane"), Clock::now());
  }
  return options_.control_plane != nullptr && options_.control_plane->progress();
}

}  // namespace distrun::engine
