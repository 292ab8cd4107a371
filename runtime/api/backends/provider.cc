#include "runtime/api/backends/provider.h"

#include <sstream>
#include <utility>

#include "runtime/backend/absent_backend.h"
#include "runtime/backend/builtin/builtin.h"
#include "runtime/backend/plugin/loader.h"
#include "runtime/base/settings.h"

namespace distrun::api {
namespace {

constexpr DeviceType kHost = Device{}.type;

std::string group_id(int process_set) { return "set" + std::to_string(process_set); }

backend::Services with_factories(backend::Services services, const Factories& factories) {
  services.factories = &factories;
  return services;
}

}  // namespace

Factories load_factories(const Settings& settings, const Log& log) {
  Factories factories = backend::builtin_factories();
  backend::plugin::Plugins plugins = backend::plugin::load_plugins(settings, backend::plugin::default_folder());
  for (const std::string& warning : plugins.warnings) log.warning(warning);
  for (auto& factory : plugins.factories) factories.push_back(std::move(factory));
  return factories;
}

SetBackends::SetBackends(backend::Services services, std::vector<std::string> hosts, Factories factories)
    : factories_(std::move(factories)),
      services_(with_factories(std::move(services), factories_)),
      hosts_(std::move(hosts)) {}

Result<std::vector<std::unique_ptr<backend::Backend>>> SetBackends::make(int process_set,
                                                                         const std::vector<int>& members) {
  backend::GroupSpec group = {.id = group_id(process_set), .members = members, .index = 0};
  std::vector<std::string> hosts;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] == services_.world->rank) group.index = static_cast<int>(i);
    hosts.push_back(hosts_.at(static_cast<std::size_t>(members[i])));
  }
  const TimePoint deadline = deadline_after(services_.settings->start_timeout);
  const std::string set = "process set " + std::to_string(process_set);
  auto offers = exchange_offers(group, factories_, services_, deadline);
  if (!offers.ok()) return offers.status().with_context(set);
  std::vector<std::unique_ptr<backend::Backend>> backends;
  for (const DeviceType device : kDeviceTypes) {
    const bool needed =
        device == kHost || (members.size() > 1 && backend::asks_for(device, *offers, services_.settings->backend));
    auto made = take(device, needed, process_set,
                     choose_backend(device, *offers, group, factories_, services_, hosts, deadline));
    if (!made.ok()) return made.status().with_context(set);
    backends.push_back(*std::move(made));
  }
  return backends;
}

// A job may run without a backend for GPUs, unless it asked for one.
Result<std::unique_ptr<backend::Backend>> SetBackends::take(DeviceType device, bool needed, int process_set,
                                                            Result<ChosenBackend> chosen) {
  if (!chosen.ok() && !needed && chosen.status().code() == Errc::kUnsupported) {
    return std::unique_ptr<backend::Backend>(std::make_unique<backend::AbsentBackend>(device, chosen.status()));
  }
  if (!chosen.ok()) return chosen.status();
  in_use_[static_cast<std::size_t>(device)] = backend::find_factory(factories_, chosen->selection.backend);
  Choice choice{.process_set = process_set, .device = device, .selection = std::move(chosen->selection)};
  std::istringstream lines(to_text(choice));
  for (std::string line; std::getline(lines, line);) services_.log->info(line);
  if (process_set == 0 && services_.world->rank == 0) warn_of_losers(choice);
  const MutexLock lock(mutex_);
  choices_[process_set].push_back(std::move(choice));
  return std::move(chosen->backend);
}

// Warns about a backend that is not used because its set-up failed, or because a setting asks for something that a
// member does not have.
void SetBackends::warn_of_losers(const Choice& choice) const {
  using backend::LoserCode;
  for (const backend::Loser& loser : choice.selection.losers) {
    const bool asked_for = choice.device == kHost && loser.code == LoserCode::kUnmetSetting;
    if (!asked_for && loser.code != LoserCode::kSetUpFailed) continue;
    services_.log->warning("using " + choice.selection.backend + ", not " + loser.backend + ": " + loser.reason);
  }
}

// Erases the keys that the members exchanged to make the set. Plug-ins keep theirs while the group exists, because its
// members may connect only when they first run.
void SetBackends::set_decided(int process_set) {
  if (services_.store == nullptr) return;  // a job of one rank
  const std::string id = group_id(process_set);
  std::vector<std::string> prefixes = set_up_keys(id);
  for (const auto& factory : factories_) {
    if (std::string own = factory->set_up_keys(id); !own.empty()) prefixes.push_back(std::move(own));
  }
  for (const std::string& prefix : prefixes) {
    const Status cleared = services_.store->erase(prefix, 1);
    if (!cleared.ok()) return services_.log->debug("the store was not cleared: " + cleared.message());
  }
}

void SetBackends::gone(int process_set) {
  const MutexLock lock(mutex_);
  choices_.erase(process_set);
}

Result<std::shared_ptr<void>> SetBackends::mark(Device device, void* stream) const {
  const backend::Factory* factory = in_use_[static_cast<std::size_t>(device.type)].load();
  return factory == nullptr ? std::shared_ptr<void>() : factory->mark(device, stream);
}

std::vector<Choice> SetBackends::choices() const {
  const MutexLock lock(mutex_);
  std::vector<Choice> all;
  for (const auto& [process_set, of_set] : choices_) all.insert(all.end(), of_set.begin(), of_set.end());
  return all;
}

}  // namespace distrun::api
