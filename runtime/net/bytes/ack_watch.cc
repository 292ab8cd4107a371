#include "runtime/net/bytes/ack_watch.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace distrun::net {
namespace {

// The caller looks once a second. A longer gap means that this process was stopped, and that it has not yet handled the
// bytes that arrived in the gap.
constexpr Duration kStopped = std::chrono::seconds(3);

// The kernel's struct tcp_info. The C library declares only its beginning. Later kernels append fields.
struct KernelTcpInfo {
  std::uint8_t state, ca_state, retransmits, probes, backoff, options, scales, flags;
  std::uint32_t rto, ato, snd_mss, rcv_mss, unacked, sacked, lost, retrans, fackets;
  std::uint32_t last_data_sent, last_ack_sent, last_data_recv, last_ack_recv;  // milliseconds ago
  std::array<std::uint32_t, 10> other;  // from the path MTU to the space for received bytes
  std::uint32_t total_retrans;
  std::uint64_t pacing_rate, max_pacing_rate, bytes_acked, bytes_received;
  std::uint32_t segs_out, segs_in, notsent_bytes, min_rtt, data_segs_in, data_segs_out;
  std::uint64_t delivery_rate, busy_time, rwnd_limited, sndbuf_limited;
  std::uint32_t delivered, delivered_ce;
  std::uint64_t bytes_sent, bytes_retrans;
  std::uint32_t dsack_dups, reord_seen, rcv_ooopack, snd_wnd;
};
static_assert(offsetof(KernelTcpInfo, pacing_rate) == 104 && offsetof(KernelTcpInfo, snd_wnd) == 228);

}  // namespace

std::optional<AckFacts> ack_facts(int fd) {
  KernelTcpInfo info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  int unacknowledged = 0;  // includes bytes that are not sent yet
  if (::ioctl(fd, SIOCOUTQ, &unacknowledged) != 0) return std::nullopt;
  const auto all = static_cast<std::size_t>(std::max(unacknowledged, 0));
  const std::size_t unsent = std::min<std::size_t>(info.notsent_bytes, all);
  const bool knows_window = size >= sizeof(info);
  const bool closed = knows_window && info.snd_wnd == 0;
  // A retransmission into a closed window also is a probe, but the kernel does not count it as one.
  const bool again = closed && info.unacked > 0 && info.last_data_sent < info.last_ack_recv;
  return AckFacts{.acknowledged = info.bytes_acked,
                  .in_flight = info.unacked > 0 ? all - unsent : 0,
                  .queued = unsent,
                  .window_closed = closed,
                  .asked = info.probes > 0 || again,
                  .since_last_message = std::chrono::milliseconds(info.last_ack_recv)};
}

bool has_retransmitted(int fd) {
  KernelTcpInfo info{};
  socklen_t size = sizeof(info);
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.total_retrans > 0;
}

AckWatch::State AckWatch::look(const AckFacts& facts, TimePoint now, Duration limit, SmallPackets small) {
  if (end_ != LinkEnd::kUnknown) return State::kEnded;
  const bool open = facts.in_flight > 0 && !facts.window_closed;
  const Missing missing = open ? Missing::kAcknowledgement : facts.asked ? Missing::kAnswer : Missing::kNothing;
  // The count of acknowledged bytes shows progress even if one packet is lost again and again. With a full window, any
  // answer of the peer shows progress.
  const bool moved = missing == Missing::kAcknowledgement ? facts.acknowledged != acknowledged_
                                                          : now - facts.since_last_message > since_;
  const Duration gap = now - looked_;
  looked_ = now;
  acknowledged_ = facts.acknowledged;
  if (missing != missing_ || moved) since_ = now;
  missing_ = missing;
  if (missing == Missing::kNothing) return facts.in_flight + facts.queued > 0 ? State::kWaiting : State::kQuiet;
  if (gap > kStopped) since_ = std::min(now, since_ + gap);
  const Duration waited = now - since_;
  if (waited < limit / 2) return State::kWaiting;
  if (waited < (small == SmallPackets::kNoAnswer ? limit : std::max(limit, kTimeLimit))) return State::kDoubtful;
  const bool large =
      small == SmallPackets::kAllPass && missing == Missing::kAcknowledgement && facts.in_flight > kSmall;
  end_ = large ? LinkEnd::kLargeSilent : LinkEnd::kSilent;
  return State::kEnded;
}

}  // namespace distrun::net
