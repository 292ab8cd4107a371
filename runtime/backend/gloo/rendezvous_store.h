// distrun's store as Gloo's rendezvous: addresses of the pairs, set and read once.
#pragma once

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <string>
#include <vector>

#include "runtime/backend/plugin/include/distrun/distrun_backend.h"
#include "runtime/base/clock.h"

namespace distrun::backend::gloo_plugin {

class RendezvousStore final : public ::gloo::rendezvous::Store {
 public:
  // Waits end by the deadline, whatever Gloo asks for. Failures are exceptions, as in Gloo's own stores.
  RendezvousStore(const distrun_backend_store& store, TimePoint deadline) : store_(store), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  const distrun_backend_store& store_;
  TimePoint deadline_;
};

}  // namespace distrun::backend::gloo_plugin
