#include "runtime/engine/run/outbox.h"

#include <iterator>
#include <utility>

namespace distrun::engine {
namespace {

// A frame is closed when its parts have about this many bytes. The largest single part is a batch of 4096 tensors with
// new names of 1 KiB. It then still fits below the control plane's limit of 16 MiB.
constexpr std::size_t kFrameTarget = 1 << 20;

std::size_t weight(const Status& status) {
  if (status.ok()) return 0;
  const ErrorInfo& info = status.info();
  return info.message.size() + info.tensor.size() + info.host.size() + info.cause.size() + 4 * info.ranks.size();
}

std::size_t weight(const Entry& entry) {
  std::size_t bytes = 64;
  if (const auto* run = std::get_if<entry::Run>(&entry)) {
    for (const TensorRef& ref : run->tensors) bytes += 16 + ref.name.size() + 8 * ref.first_dims.size();
  } else if (const auto* fail = std::get_if<entry::Fail>(&entry)) {
    bytes += fail->name.size() + weight(fail->error) + 4 * fail->ranks.size();
  } else if (const auto* evict = std::get_if<entry::Evict>(&entry)) {
    bytes += 4 * evict->ids.size();
  } else if (const auto* make = std::get_if<entry::MakeSet>(&entry)) {
    bytes += 4 * make->ranks.size();
  } else if (const auto* end = std::get_if<entry::EndCall>(&entry)) {
    bytes += weight(end->result) + 4 * end->ranks.size();
  }
  return bytes;
}

std::size_t weight(const Message& message) {
  if (const auto* ready = std::get_if<message::Ready>(&message)) return 16 + 4 * ready->ids.size();
  if (const auto* events = std::get_if<message::Events>(&message)) return 128 * events->events.size();
  if (const auto* submitted = std::get_if<message::Submitted>(&message))
    return 4096 + submitted->refusal.size() + 8 * submitted->signature.splits.size();
  if (const auto* called = std::get_if<message::Called>(&message))
    return 4096 + weight(called->refused) + 4 * called->call.ranks.size();
  if (const auto* made = std::get_if<message::SetMade>(&message)) return 64 + weight(made->result);
  return 4096;
}

void keep_first(Status& first, Status next) {
  if (first.ok()) first = std::move(next);
}

// A braced list would copy the message.
std::vector<Message> only(Message message) {
  std::vector<Message> one;
  one.push_back(std::move(message));
  return one;
}

}  // namespace

void Outbox::append(std::vector<Entry> entries) {
  if (plane_ == nullptr) return;
  entries_.insert(entries_.end(), std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end()));
}

void Outbox::queue(int to, Message message) {
  if (plane_ != nullptr) messages_.push_back({.to = to, .message = std::move(message)});
}

Status Outbox::send(int to, std::uint64_t index, std::vector<Message> messages) {
  const auto bytes = encode(Frame{.index = index, .messages = std::move(messages)});
  return to < 0 ? plane_->broadcast(bytes) : plane_->send(to, bytes);
}

// A dead peer must not keep messages from the others, and the log must stay numbered. So this sends everything, and
// returns the first error.
Status Outbox::send_in_parts(int to, std::vector<Message> messages) {
  Status first;
  std::vector<Message> part;
  std::size_t bytes = 0;
  for (Message& message : messages) {
    bytes += weight(message);
    part.push_back(std::move(message));
    if (bytes < kFrameTarget) continue;
    keep_first(first, send(to, index_, std::exchange(part, {})));
    bytes = 0;
  }
  if (!part.empty()) keep_first(first, send(to, index_, std::move(part)));
  return first;
}

Status Outbox::send_entries(message::Append append) {
  const std::size_t count = append.entries.size();
  Status sent = send(-1, index_, only(std::move(append)));
  index_ += count;
  return sent;
}

// Every turn calls this, and most turns have nothing to send.
Status Outbox::flush() {
  if (plane_ == nullptr || empty()) return {};
  Status first;
  if (!to_leader_.empty()) {
    keep_first(first, send_in_parts(0, std::exchange(to_leader_, {})));
    index_ = read_;
  }
  message::Append append;
  std::size_t bytes = 0;
  for (Entry& one : std::exchange(entries_, {})) {
    bytes += weight(one);
    append.entries.push_back(std::move(one));
    if (bytes < kFrameTarget) continue;
    keep_first(first, send_entries(std::exchange(append, {})));
    bytes = 0;
  }
  if (!append.entries.empty()) keep_first(first, send_entries(std::move(append)));
  for (Send& one : std::exchange(messages_, {})) keep_first(first, send_in_parts(one.to, only(std::move(one.message))));
  return first;
}

bool Outbox::send() {
  keep_first(failure_, flush());
  return plane_ != nullptr && plane_->progress();
}

}  // namespace distrun::engine
