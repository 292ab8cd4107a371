#include "runtime/net/bytes/link_watches.h"

#include <poll.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "runtime/base/ended_link.h"
#include "runtime/net/bytes/socket.h"

namespace distrun::net {
namespace {

constexpr Duration kPaused = 3 * LinkWatches::kInterval;
// Fewer answers do not show that small packets pass.
constexpr int kEnoughAnswers = 3;

}  // namespace

std::string text_of_end(int fd, LinkEnd end, Duration limit) {
  const std::string seconds = std::to_string(std::chrono::round<std::chrono::seconds>(limit).count()) + " s";
  const std::string here = local_host_of(fd);
  const std::string there = remote_text(fd);
  switch (end) {
    case LinkEnd::kLargeSilent:
      return std::string(kLargeMessagesLost) + " (from " + here + " to " + there + ")";
    case LinkEnd::kUnfinished:
      return "a message from " + there + " began and was not complete after " + seconds +
             ". Does its program write to a descriptor that it has closed?";
    default:
      return there + " has acknowledged nothing that " + here + " sent for " + seconds;
  }
}

// A pause of this process is not counted: the bytes that arrived during it are still in the kernel.
bool BegunRecord::overdue(std::uint64_t record, TimePoint now, Duration limit) {
  const Duration gap = now - std::exchange(looked_, now);
  if (record != std::exchange(record_, record)) since_ = now;
  if (gap > kPaused) since_ = now;
  return record != 0 && now - since_ >= limit;
}

TimePoint BegunRecord::due() const { return looked_ + LinkWatches::kInterval; }

int LinkWatches::look(TimePoint now) {
  looked_ = now;
  bool quiet = true;
  std::vector<std::pair<int, LinkEnd>> ended;
  for (auto& [fd, link] : links_) {
    const LinkEnd end = judge(fd, link, now, quiet);
    if (end != LinkEnd::kUnknown) ended.emplace_back(fd, end);
  }
  quiet_ = quiet;
  for (const auto& [fd, end] : ended) {
    const auto found = links_.find(fd);
    if (found == links_.end()) continue;  // the callback of another connection has removed it
    const LinkWatch watch = std::move(found->second.watch);
    links_.erase(found);
    watch.ended(end, text_of_end(fd, end, watch.limit));
  }
  return static_cast<int>(ended.size());
}

LinkEnd LinkWatches::judge(int fd, Link& link, TimePoint now, bool& quiet) {
  const std::uint64_t record = link.watch.begun ? link.watch.begun() : 0;
  if (link.begun.overdue(record, now, link.watch.limit)) return LinkEnd::kUnfinished;
  if (link.begun.waits()) quiet = false;
  // Connections within a host lose no bytes.
  const auto facts = is_between_hosts(fd) ? ack_facts(fd) : std::nullopt;
  if (!facts) return LinkEnd::kUnknown;
  switch (link.acks.look(*facts, now, link.watch.limit, small_packets(link))) {
    case AckWatch::State::kQuiet:
      break;
    case AckWatch::State::kWaiting:
      link.question.reset();
      link.answered = 0;
      link.lost = 0;
      quiet = false;
      break;
    case AckWatch::State::kDoubtful:
      ask(fd, link);
      quiet = false;
      break;
    case AckWatch::State::kEnded:
      return link.acks.end();
  }
  return LinkEnd::kUnknown;
}

SmallPackets LinkWatches::small_packets(const Link& link) {
  if (link.answered == 0) return SmallPackets::kNoAnswer;
  return link.lost == 0 && link.answered >= kEnoughAnswers ? SmallPackets::kAllPass : SmallPackets::kSomeLost;
}

// Reads the result of the last connection attempt, and starts the next one. A refusal also shows that the host answers.
void LinkWatches::ask(int fd, Link& link) {
  pollfd item{.fd = link.question.get(), .events = POLLOUT, .revents = 0};
  if (link.question.valid()) {
    const int error = ::poll(&item, 1, 0) > 0 ? pending_error(link.question.get()) : ETIMEDOUT;
    const bool answered = error == 0 || error == ECONNREFUSED;
    if (answered) ++link.answered;
    if (!answered || has_retransmitted(link.question.get())) ++link.lost;
    link.question.reset();
  }
  auto question = begin_connect_to_peer_of(fd);
  if (question.ok()) link.question = *std::move(question);
}

}  // namespace distrun::net
