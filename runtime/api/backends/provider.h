// The backends of all process sets of one session. It chooses them with the other members, keeps the reasons, and
// cleans up afterwards. The engine calls make(), set_decided() and gone() with the token held. Everything else may be
// called from any thread.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/api/backends/choose.h"
#include "runtime/api/backends/why.h"
#include "runtime/backend/factory.h"
#include "runtime/base/annotations.h"
#include "runtime/engine/engine.h"

namespace distrun::api {

// Returns the built-in backends and the plug-ins. Warns in `log` about plug-ins that cannot be loaded.
Factories load_factories(const Settings& settings, const Log& log);

class SetBackends final : public engine::BackendProvider {
 public:
  // `services` has no factories yet; this adds its own. `hosts`: by world rank. The objects in `services` outlive this.
  SetBackends(backend::Services services, std::vector<std::string> hosts, Factories factories);

  Result<std::vector<std::unique_ptr<backend::Backend>>> make(int process_set,
                                                              const std::vector<int>& members) override;
  void set_decided(int process_set) override;
  void gone(int process_set) override;

  // Marks the work on `stream` that makes a tensor on `device` ready. Null: the job has no backend for such tensors.
  Result<std::shared_ptr<void>> mark(Device device, void* stream) const;
  // By process set and kind of device.
  [[nodiscard]] std::vector<Choice> choices() const;

 private:
  Result<std::unique_ptr<backend::Backend>> take(DeviceType device, bool needed, int process_set,
                                                 Result<ChosenBackend> chosen);
  void warn_of_losers(const Choice& choice) const;

  const Factories factories_;
  const backend::Services services_;
  const std::vector<std::string> hosts_;
  std::array<std::atomic<const backend::Factory*>, kDeviceTypes.size()> in_use_ = {};  // by kind of device
  mutable Mutex mutex_;
  std::map<int, std::vector<Choice>> choices_ DISTRUN_GUARDED_BY(mutex_);  // by process set
};

}  // namespace distrun::api
