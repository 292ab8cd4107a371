// The work on a host before its ranks start. It checks that the program exists, finds free ports, and probes whether
// this host reaches the others.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "launcher/agent/preflight/preflight.h"
#include "launcher/agent/preflight/probe.h"
#include "launcher/protocol/messages.h"
#include "launcher/spawn/poller.h"
#include "runtime/base/environment.h"

namespace distrun::launcher {

class Preparation {
 public:
  using Answer = std::variant<Prepared, Refused>;

  // `own`: this host's environment. `given`: variables that MPI's launcher gives to the ranks.
  Answer prepare(const Prepare& order, const Environment& own, const Environment& given);
  // Starts to probe the other hosts. Fails for an order that comes at the wrong time.
  Status probe(const Probe& order);
  // Returns the results once, when all probes have ended.
  std::optional<Probed> progress(TimePoint now);
  // Called just before ranks start: no more probes are answered. Adds the variables of the order to the ranks'
  // environment.
  void begin(const Start& order);
  // Called while ranks run, when a rank has lost another one and paths are probed again. True: opens a listener for
  // probes and returns its new port. False, or no port is free: closes the listener and returns 0.
  std::uint16_t listen_again(bool listen);

  void watch_probes(Poller& poller);
  [[nodiscard]] std::optional<TimePoint> deadline() const { return prober_ ? prober_->deadline() : std::nullopt; }

  [[nodiscard]] bool known() const { return job_.has_value(); }  // an order has come
  [[nodiscard]] bool ready() const { return ready_; }            // the last order was carried out
  [[nodiscard]] const Prepare& job() const { return *job_; }
  [[nodiscard]] const std::string& program() const { return program_.path; }
  [[nodiscard]] const std::string& server() const { return server_.path; }  // the program of ranks that serve

 private:
  [[nodiscard]] std::optional<Refused> find_programs();
  [[nodiscard]] Refused unusable(const Status& why) const;

  std::optional<Prepare> job_;
  bool ready_ = false;
  Program program_;
  Program server_;
  HeldPorts ports_;
  std::optional<ProbeListener> listener_;
  std::unique_ptr<Prober> prober_;
};

}  // namespace distrun::launcher
