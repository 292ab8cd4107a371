#include "runtime/backend/gloo/verify.h"

#include <gloo/transport/unbound_buffer.h>
#include <sys/random.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/backend/gloo/mesh.h"

namespace distrun::backend::gloo_plugin {
namespace {

constexpr std::size_t kBytes = DISTRUN_BACKEND_MAC_SIZE;
constexpr std::uint64_t kSlot = 0x6469737472756eULL;  // not used by Gloo's collectives
using Block = std::array<unsigned char, kBytes>;

// Sends blocks[i] to member i, and replaces it with the block that member i sent.
void exchange(const std::shared_ptr<::gloo::Context>& context, std::vector<Block>& blocks, std::uint64_t slot,
              std::atomic<int>& busy_with) {
  std::vector<Block> received = blocks;
  std::vector<std::unique_ptr<::gloo::transport::UnboundBuffer>> sends(blocks.size());
  std::vector<std::unique_ptr<::gloo::transport::UnboundBuffer>> receives(blocks.size());
  const auto for_each_other = [&](auto&& body) {
    for (int member = 0; member < context->size; ++member) {
      if (member == context->rank) continue;
      busy_with = member;
      body(member, static_cast<std::size_t>(member));
    }
  };
  for_each_other([&](int member, std::size_t i) {
    receives[i] = context->createUnboundBuffer(received[i].data(), kBytes);
    receives[i]->recv(member, slot);
    sends[i] = context->createUnboundBuffer(blocks[i].data(), kBytes);
    sends[i]->send(member, slot);
  });
  for_each_other([&](int, std::size_t i) { receives[i]->waitRecv(kForever); });
  for_each_other([&](int, std::size_t i) { sends[i]->waitSend(kForever); });
  blocks = received;
}

// The proof that `from` sends to `to`: it knows the key, and it answers the random number that `to` has just drawn.
Status proof(const plugin::Host& host, std::size_t from, std::size_t to, const Block& drawn_by_from,
             const Block& drawn_by_to, Block& mac) {
  std::array<unsigned char, 2 * kBytes + 2 * sizeof(std::uint64_t)> text{};
  const std::array<std::uint64_t, 2> ends = {from, to};
  std::memcpy(text.data(), ends.data(), sizeof(ends));
  std::memcpy(text.data() + sizeof(ends), drawn_by_from.data(), kBytes);
  std::memcpy(text.data() + sizeof(ends) + kBytes, drawn_by_to.data(), kBytes);
  return host.mac(text.data(), text.size(), mac.data());
}

// Takes the same time wherever the blocks differ.
bool equal(const Block& a, const Block& b) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < kBytes; ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

Status verify_pairs(const std::shared_ptr<::gloo::Context>& context, const plugin::Host& host,
                    std::atomic<int>& busy_with) {
  const auto size = static_cast<std::size_t>(context->size);
  const auto self = static_cast<std::size_t>(context->rank);
  std::vector<Block> drawn(size);
  for (Block& block : drawn) {
    if (::getrandom(block.data(), block.size(), 0) != static_cast<ssize_t>(block.size())) {
      return {Errc::kSystem, "the kernel gave no random bytes"};
    }
  }
  std::vector<Block> theirs = drawn;
  exchange(context, theirs, kSlot, busy_with);
  std::vector<Block> proofs(size);
  for (std::size_t member = 0; member < size; ++member) {
    DISTRUN_RETURN_IF_ERROR(proof(host, self, member, drawn[member], theirs[member], proofs[member]));
  }
  exchange(context, proofs, kSlot + 1, busy_with);
  for (std::size_t member = 0; member < size; ++member) {
    if (member == self) continue;
    busy_with = static_cast<int>(member);
    Block expected{};
    DISTRUN_RETURN_IF_ERROR(proof(host, member, self, theirs[member], drawn[member], expected));
    if (!equal(expected, proofs[member])) {
      return {Errc::kProtocol, "the other end does not belong to this job"};
    }
  }
  return {};
}

}  // namespace distrun::backend::gloo_plugin
