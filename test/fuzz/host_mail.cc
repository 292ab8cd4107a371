// runtime/net/host/host_mail.h: a packet from a rank of this host.
#include "runtime/net/host/host_mail.h"

#include <sys/socket.h>

#include <array>

#include "test/fuzz/targets.h"

namespace distrun::fuzz {
namespace {

using net::HostMail;
using net::Packet;

struct Ends {
  Fd inbox;
  Fd outer;
};

Ends make_ends() {
  std::array<int, 2> ends{};
  require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0, "there is a socket pair");
  return {Fd(ends[0]), Fd(ends[1])};
}

// The bytes of a packet on the socket.
Bytes written(const Packet& packet) {
  const Ends ends = make_ends();
  const Status sent = HostMail::send({.rank = 0, .mail_box = ends.outer.get()}, packet, {}, deadline_after(1));
  require(sent.ok(), "a packet that was read can be written");
  const auto got = net::receive_with_fds(ends.inbox.get(), 64 << 10, deadline_after(1));
  require(got.ok(), "it arrives");
  return got->bytes;
}

}  // namespace

// Takes the input as one packet, once for each kind that a rank may wait for.
int host_mail(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = as_span(data, size);
  for (int kind = 0; kind <= static_cast<int>(Packet::Kind::kVerdict); ++kind) {
    Ends ends = make_ends();
    if (!net::send_with_fds(ends.outer.get(), bytes, {}, deadline_after(1)).ok()) return 0;  // too long for a socket
    ends.outer.reset();
    HostMail mail(ends.inbox.get());
    const auto packet =
        mail.receive_even_error({.kind = static_cast<Packet::Kind>(kind), .from = 1, .tag = "tag"}, {}, TimePoint{});
    if (!packet.ok()) continue;
    require(packet->from == 1 && packet->tag == "tag" && packet->fds.empty(), "what is given was waited for");
    // A long error text is shortened when it is written.
    if (packet->error.ok())
      require(written(*packet) == Bytes(bytes.begin(), bytes.end()), "there is one way to write it");
  }
  return 0;
}

std::vector<Bytes> host_mail_seeds() {
  Packet memory{.kind = Packet::Kind::kMemory, .from = 1, .tag = "tag", .error = {}, .body = {}, .fds = {}};
  memory.body = Bytes(40, std::byte{9});
  Packet failed{.kind = Packet::Kind::kVerdict, .from = 1, .tag = "tag", .error = {}, .body = {}, .fds = {}};
  failed.error = Status(ErrorInfo{.code = Errc::kSystem, .message = "no memory", .ranks = {1, 2}, .host = "h"});
  return {written(memory), written(failed)};
}

}  // namespace distrun::fuzz
