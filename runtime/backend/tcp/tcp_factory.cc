#include "runtime/backend/tcp/tcp_factory.h"

#include <sys/socket.h>

#include <cerrno>

#include "runtime/backend/tcp/tcp_backend.h"
#include "runtime/base/fd.h"

namespace distrun::backend {
namespace {

constexpr int kTcpScore = 50;
constexpr int kTcpScoreAlone = 5;  // `self` is better, but a forced choice must work with any number of ranks

class TcpFactory final : public Factory {
 public:
  [[nodiscard]] std::string_view name() const override { return "tcp"; }

  [[nodiscard]] Offer offer(const GroupSpec& group, const Services&) const override {
    const bool alone = group.members.size() == 1;
    return {.backend = "tcp",
            .available = true,
            .reason = alone ? "one rank: nothing to send" : "TCP works between all hosts",
            .score = alone ? kTcpScoreAlone : kTcpScore,
            .capabilities = tcp::tcp_capabilities()};
  }

  [[nodiscard]] Status usable() const override {
    const Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return probe.valid() ? Status() : errno_status("no TCP sockets", errno);
  }

  [[nodiscard]] bool protects(const Services&) const override { return true; }

  [[nodiscard]] std::string set_up_keys(const std::string& group) const override { return tcp::keys_of(group); }

  [[nodiscard]] Result<std::unique_ptr<Backend>> create(const GroupSpec& group, const Services& services,
                                                        TimePoint deadline) const override {
    auto ring = tcp::make_ring(group, services, deadline);
    if (!ring.ok()) return ring.status();
    return tcp::TcpBackend::create({.ring = *std::move(ring), .group = group, .services = services, .tuning = {}});
  }
};

}  // namespace

std::unique_ptr<Factory> make_tcp_factory() { return std::make_unique<TcpFactory>(); }

}  // namespace distrun::backend
