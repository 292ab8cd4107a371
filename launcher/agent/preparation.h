// What happens on a host before its ranks start: is the program there, which ports are free, does this host reach the
// others.
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

  // `own`: this host's environment. `given`: variables that ranks have from MPI's launcher.
  Answer prepare(const Prepare& order, const Environment& own, const Environment& given);
  // Begins to look for the other hosts. Fails for an order at the wrong time.
  Status probe(const Probe& order);
  // Once, when it is known which of them this host reaches.
  std::optional<Probed> progress(TimePoint now);
  // Ranks are about to start: probes are answered no more. The order's part of their environment is added.
  void begin(const Start& order);
  // While ranks run, paths are tried again where a rank misses another one: answers probes at a new port, and returns
  // that. False: no more; 0.
  std::uint16_t listen_again(bool listen);

  void watch_probes(Poller& poller);
  [[nodiscard]] std::optional<TimePoint> deadline() const { return prober_ ? prober_->deadline() : std::nullopt; }

  [[nodiscard]] bool known() const { return job_.has_value(); }  // an order has come
  [[nodiscard]] const Prepare& job() const { return *job_; }
  [[nodiscard]] const std::string& program() const { return program_.path; }
  [[nodiscard]] const std::string& server() const { return server_.path; }  // what ranks run that serve the others

 private:
  [[nodiscard]] std::optional<Refused> find_programs();
  [[nodiscard]] Refused unusable(const Status& why) const;

  std::optional<Prepare> job_;
  Program program_;
  Program server_;
  HeldPorts ports_;
  std::optional<ProbeListener> listener_;
  std::unique_ptr<Prober> prober_;
};

}  // namespace distrun::launcher
