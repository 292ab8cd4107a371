#include "runtime/net/host/host_peers.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

namespace distrun::net {
namespace {

std::vector<int> numbers_of(const std::vector<GuardedFd>& fds) {
  std::vector<int> numbers;
  numbers.reserve(fds.size());
  for (const GuardedFd& fd : fds) numbers.push_back(fd.get());
  return numbers;
}

}  // namespace

HostPeers::HostPeers(HostParts parts, WaitSet* wait_set)
    : parts_(std::move(parts)),
      wait_set_(wait_set),
      doorbells_(parts_.lines, numbers_of(parts_.event_fds), parts_.self),
      gone_(parts_.ranks.size(), false),
      watched_(parts_.ranks.size(), false) {
  index_by_rank_.assign(static_cast<std::size_t>(parts_.ranks.back()) + 1, -1);
  for (std::size_t i = 0; i < parts_.ranks.size(); ++i)
    index_by_rank_[static_cast<std::size_t>(parts_.ranks[i])] = static_cast<int>(i);
}

Result<std::unique_ptr<HostPeers>> HostPeers::create(HostParts parts, WaitSet* wait_set) {
  const std::size_t size = parts.ranks.size();
  DISTRUN_CHECK(
      size > 0 && parts.lines.size() == size && parts.event_fds.size() == size && parts.mail_boxes.size() == size,
      "one line, doorbell and mail box for each rank");
  std::unique_ptr<HostPeers> peers(new HostPeers(std::move(parts), wait_set));
  if (wait_set != nullptr) DISTRUN_RETURN_IF_ERROR(peers->watch());
  return peers;
}

HostPeers::~HostPeers() {
  if (in_forked_child()) return;  // a child does not have the memory, and the parent owns the descriptors
  doorbells_.disarm();
  if (parts_.inbox.valid()) doorbells_.send_goodbye();
  if (wait_set_ == nullptr) return;
  wait_set_->remove_sleepable(this);
  for (std::size_t i = 0; i < watched_.size(); ++i)
    if (watched_[i]) wait_set_->remove(parts_.mail_boxes[i].get());
  if (bell_watched_) wait_set_->remove(parts_.event_fds[static_cast<std::size_t>(parts_.self)].get());
}

Status HostPeers::watch() {
  wait_set_->add_sleepable(this);
  const int bell = parts_.event_fds[static_cast<std::size_t>(parts_.self)].get();
  DISTRUN_RETURN_IF_ERROR(wait_set_->add(bell, EPOLLIN, [this](std::uint32_t) { doorbells_.drain(); }));
  bell_watched_ = true;
  for (std::size_t i = 0; i < parts_.ranks.size(); ++i) {
    if (static_cast<int>(i) == parts_.self) continue;
    // The owner of an inbox never writes into it, so the only event of an outer end is end of file.
    DISTRUN_RETURN_IF_ERROR(wait_set_->add(parts_.mail_boxes[i].get(), EPOLLIN | EPOLLRDHUP,
                                           [this, i](std::uint32_t) { on_end_of_file(static_cast<int>(i)); }));
    watched_[i] = true;
  }
  return {};
}

int HostPeers::index_of(int world_rank) const {
  if (world_rank < 0 || world_rank >= static_cast<int>(index_by_rank_.size())) return -1;
  return checked_index(world_rank);
}

void HostPeers::on_end_of_file(int index) {
  const auto i = static_cast<std::size_t>(index);
  if (watched_[i]) wait_set_->remove(parts_.mail_boxes[i].get());
  watched_[i] = false;
  gone_[i] = true;
  if (!lost_ && !doorbells_.goodbye_sent(index)) lost_ = parts_.ranks[i];
}

void HostPeers::look_for_deaths() {
  std::vector<pollfd> fds;
  for (std::size_t i = 0; i < gone_.size(); ++i)
    fds.push_back({.fd = gone_[i] ? -1 : parts_.mail_boxes[i].get(), .events = POLLRDHUP, .revents = 0});
  if (::poll(fds.data(), fds.size(), 0) <= 0) return;
  for (std::size_t i = 0; i < fds.size(); ++i)
    if (fds[i].revents != 0) on_end_of_file(static_cast<int>(i));
}

void HostPeers::vanish() { parts_.inbox.reset(); }

}  // namespace distrun::net
