#include "runtime/backend/shm/member.h"

#include <atomic>

namespace distrun::backend::shm {
namespace {

std::vector<int> others(const std::vector<int>& members, std::size_t self) {
  std::vector<int> peers = members;
  peers.erase(peers.begin() + static_cast<std::ptrdiff_t>(self));
  return peers;
}

}  // namespace

WindowMember::WindowMember(net::HostLink* link, const std::vector<int>& members, std::size_t self, const Window& window)
    : self_(self),
      next_rank_(self + 1 < members.size() ? members[self + 1] : -1),
      window_(window),
      bells_(link, others(members, self)),
      ready_(window, &MemberLines::ready, self),
      reduced_(window, &MemberLines::reduced, self),
      done_(window, &MemberLines::done, self),
      sources_(members.size(), nullptr) {}

void WindowMember::publish_tiny(std::uint64_t number) {
  std::atomic_ref<std::uint64_t>(window_.tiny(self_, number).number).store(number, std::memory_order_seq_cst);
  if (tiny_arrived(number)) bells_.ring();  // this member was the last one; see Tally::publish
}

}  // namespace distrun::backend::shm
