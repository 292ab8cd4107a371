// The loop's part that talks: frames in, the leader's decisions out.
#include <utility>

#include "runtime/engine/loop.h"

namespace distrun::engine {
namespace {

// So many batches of a set may be in flight before its ready tensors wait to be fused with the next ones.
constexpr int kBusyFlights = 2;

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
    // Before anybody records: a file that cannot be written is an error of the call, on every rank.
    const bool opens = rank == 0 && called->call.kind == Call::Kind::kStartTimeline;
    const Status refused = opens ? open_timeline(called->call.path) : Status();
    coordinator_->called(rank, std::move(called->call), now, refused);
  } else if (const auto* made = std::get_if<message::SetMade>(&message)) {
    coordinator_->set_made(rank, made->set, made->result);
  } else if (std::holds_alternative<message::Leaving>(message)) {
    coordinator_->leave(rank);
  } else if (const auto* events = std::get_if<message::Events>(&message)) {
    write_events(rank, events->events);
  } else if (const auto* asked = std::get_if<message::StopAsked>(&message)) {
    hear_stop(rank, *asked);
  } else if (const auto* count = std::get_if<message::StopCount>(&message)) {
    stopping_.counted(rank, count->calls);
    decide_stop();
  }
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

// At the leader. The others are told before anything runs here, so that they start no later than this rank.
bool EngineLoop::decide() {
  if (!failed_.ok()) return false;
  std::vector<int> busy;
  for (const auto& [id, set] : sets_.all()) {
    if (executor_.in_flight(id) >= kBusyFlights) busy.push_back(id);
  }
  Actions actions = coordinator_->act(busy);
  for (const std::string& warning : actions.warnings) warn(warning);
  if (!actions.entries.empty()) {
    outbox_.append(actions.entries);
    if (const Status sent = outbox_.flush(); !sent.ok()) {
      detector_.suspect_operation(sent.with_context("the control plane"), Clock::now());
    }
    if (options_.control_plane != nullptr) options_.control_plane->progress();
    for (Entry& entry : actions.entries) read(entry);
  }
  if (actions.abort.code() == Errc::kTimeout) {
    // A rank may miss a tensor only because it waits itself for one that does not answer: that one is the cause.
    watchdog_.end(actions.abort);
  } else if (!actions.abort.ok()) {
    tell_launcher(actions.abort);
    fail(actions.abort, true);
  }
  return !actions.entries.empty() || !actions.warnings.empty();
}

}  // namespace distrun::engine
