#include "runtime/engine/leader_link.h"

#include <string>
#include <utility>

namespace distrun::engine {

LeaderLink::Effects RemoteLeader::submit(Message message) {
  outbox_.to_leader().push_back(std::move(message));
  return {};
}

void RemoteLeader::queue(int /*rank*/, Message message) { outbox_.to_leader().push_back(std::move(message)); }

LeaderLink::Effects RemoteLeader::take_message(int /*from*/, std::uint64_t index, Message& message) {
  if (const auto* abort = std::get_if<message::Abort>(&message)) return {.failure = abort->why};
  if (std::holds_alternative<message::StopHold>(message)) return {.hold_stop = true};
  if (const auto* stop = std::get_if<message::StopAt>(&message)) return {.stop_at = stop->call};
  if (const auto* asked = std::get_if<message::WaitAsked>(&message)) return {.report_wait = asked->round};
  auto* append = std::get_if<message::Append>(&message);
  if (append == nullptr) return {};
  if (index != expected_) {
    return {
        .failure = {Errc::kProtocol, "the decision log continues at entry " + std::to_string(index) + " instead of " +
                                         std::to_string(expected_) + ". This is a bug in distrun, please report it"},
        .report_to_others = true};
  }
  expected_ += append->entries.size();
  entries_ = std::move(append->entries);
  followed_ = 0;
  return {.follow = true};
}

Entry* RemoteLeader::next_entry() {
  if (followed_ < entries_.size()) return &entries_[followed_++];
  if (entries_.empty()) return nullptr;
  // All of them are followed, so this rank's later messages carry this index.
  outbox_.set_index(expected_);
  entries_.clear();
  followed_ = 0;
  return nullptr;
}

}  // namespace distrun::engine
