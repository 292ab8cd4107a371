// Tensors between ranks over authenticated TCP connections. Most operations go around a ring (ring_exchange.h). Only
// all-to-alls go directly from each member to each other one (exchange.h); the first all-to-all makes these
// connections. Only the holder of the progress token calls this, except abort(). If an operation needs a member that is
// gone, lost_peer() names it, and the operations make no progress until abort() gives the cause. The backend itself
// fails operations only for errors that no other member sees: a protocol error, a member that cannot be reached, or
// missing memory or descriptors.
#pragma once

#include <memory>
#include <vector>

#include "runtime/backend/abort_state.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/tcp/exchange.h"
#include "runtime/backend/tcp/mesh.h"
#include "runtime/backend/tcp/ring.h"
#include "runtime/backend/tcp/ring_exchange.h"

namespace distrun::backend::tcp {

const Capabilities& tcp_capabilities();

struct TcpOptions {
  Ring ring;
  GroupSpec group;
  Services services;
  Tuning tuning;
};

class TcpBackend final : public Backend {
 public:
  // Fails if the wait set rejects the sockets.
  static Result<std::unique_ptr<Backend>> create(TcpOptions options);
  ~TcpBackend() override;
  TcpBackend(const TcpBackend&) = delete;
  TcpBackend& operator=(const TcpBackend&) = delete;

  [[nodiscard]] std::string_view name() const override { return "tcp"; }
  [[nodiscard]] const Capabilities& capabilities() const override { return tcp_capabilities(); }
  Status start(const Operation& operation, std::uint64_t token) override;
  bool progress() override;
  void completed(std::vector<Completed>& out) override;
  void abort(const Status& why) override;
  [[nodiscard]] std::optional<EndedLink> lost_peer() const override { return lost_; }

 private:
  explicit TcpBackend(TcpOptions options);
  Status start_exchange(const Operation& operation, std::uint64_t token);
  Status make_mesh();
  bool take_own();
  void find_lost_peer();
  void fail(const Status& why);

  const GroupSpec group_;
  const Services services_;
  const std::size_t chunk_bytes_;
  const Protection protection_;
  RingExchange ring_;
  std::uint64_t next_sequence_ = 0;
  std::unique_ptr<Exchange> exchange_;  // null until the first all-to-all, and so is mesh_
  std::unique_ptr<Mesh> mesh_;
  bool gathers_addresses_ = false;  // the all-gather of the members' addresses is running
  std::vector<Completed> completed_;
  Status failed_;
  std::optional<EndedLink> lost_;
  AbortState abort_;
};

}  // namespace distrun::backend::tcp
