#include "launcher/agent/join.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "launcher/agent/agent.h"
#include "launcher/agent/dial.h"
#include "launcher/agent/guard.h"
#include "launcher/exit_codes.h"
#include "launcher/protocol/messages.h"
#include "launcher/spawn/poller.h"

namespace distrun::launcher {
namespace {

constexpr double kOrderSeconds = 30;
constexpr double kDialHeadSeconds = 15;

Result<Join> read_order() {
  FramePipe input(Fd(::fcntl(0, F_DUPFD_CLOEXEC, 3)), Fd(::fcntl(1, F_DUPFD_CLOEXEC, 3)));
  input.greet(kAgentGreeting);
  const TimePoint deadline = deadline_after(kOrderSeconds);
  std::vector<Frame> frames;
  Poller poller;
  while (frames.empty()) {
    if (input.closed()) return Status(Errc::kSystem, "standard input ended before it");
    if (Clock::now() >= deadline) return Status(Errc::kTimeout, "nothing came on standard input for 30 s");
    poller.clear();
    poller.watch(input.in(), POLLIN, [&](short) { frames = input.receive(); });
    DISTRUN_RETURN_IF_ERROR(poller.wait(deadline));
  }
  return decode<Join>(frames.front().payload);
}

}  // namespace

int join_main() {
  const auto order = read_order();
  if (!order.ok()) return unusable("the message with the job to join did not come: " + order.status().message());
  const auto key =
      net::JobKey::from_bytes(reinterpret_cast<const unsigned char*>(order->key.data()), order->key.size());
  if (!key.ok()) return unusable(key.status().message());
  ::signal(SIGPIPE, SIG_IGN);
  LeaseEnd lease_end = LeaseEnd::shared();
  if (const std::optional<int> code = stand_guard(OrdersBy::kConnection, lease_end)) return *code;
  auto socket = dial_any(order->addresses, *key,
                         {.purpose = kJoinPurpose + std::to_string(order->index), .job_id = order->job_id},
                         deadline_after(kDialHeadSeconds));
  if (!socket.ok()) return unusable(socket.status().message());
  auto agent = Agent::create(FramePipe(*std::move(socket)), std::move(lease_end));
  if (!agent.ok()) return exit_code::kInternal;
  (*agent)->run();
  return 0;
}

}  // namespace distrun::launcher
