// Backends that do nothing. Their factories follow the test's plan: they are chosen, fail or are missing.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/backend/factory.h"

namespace distrun::test {

class IdleBackend : public backend::Backend {
 public:
  IdleBackend(std::string name, backend::Capabilities can) : name_(std::move(name)), capabilities_(can) {}
  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] const backend::Capabilities& capabilities() const override { return capabilities_; }
  Status start(const backend::Operation&, std::uint64_t) override { return {Errc::kUnsupported, "idle"}; }
  bool progress() override { return false; }
  void completed(std::vector<backend::Completed>&) override {}
  void abort(const Status&) override {}
  [[nodiscard]] std::optional<EndedLink> lost_peer() const override { return std::nullopt; }

 private:
  std::string name_;
  backend::Capabilities capabilities_;
};

struct PlannedBackend {
  std::string name;
  int score = 0;
  int fails_on = -1;           // member index whose create() fails
  int unavailable_on = -1;     // member index that does not offer this backend
  bool too_slow = false;       // create() fails at its deadline
  int older_on = -1;           // member index whose version has no allgather
  bool unmet_setting = false;  // it is not available because of a setting
  std::string leaves = {};     // prefix of the keys that it leaves in the store
  bool protects = false;       // whether it protects traffic to other hosts
};

class PlannedFactory : public backend::Factory {
 public:
  explicit PlannedFactory(PlannedBackend plan) : plan_(std::move(plan)) {}
  [[nodiscard]] std::string_view name() const override { return plan_.name; }
  [[nodiscard]] backend::Offer offer(const backend::GroupSpec& group, const backend::Services&) const override {
    backend::Offer offer;
    offer.backend = plan_.name;
    offer.available = group.index != plan_.unavailable_on;
    if (plan_.unmet_setting) offer.absence = backend::Absence::kUnmetSetting;
    offer.reason = offer.available ? "planned" : "the library is not there";
    offer.score = plan_.score;
    offer.capabilities = capabilities(group);
    return offer;
  }
  [[nodiscard]] Result<std::unique_ptr<backend::Backend>> create(const backend::GroupSpec& group,
                                                                 const backend::Services& services,
                                                                 TimePoint deadline) const override {
    if (plan_.too_slow) return services.store->get("what nobody sets", deadline).status().with_context(plan_.name);
    if (Clock::now() >= deadline) return Status(Errc::kTimeout, plan_.name + " was given no time");
    if (group.index == plan_.fails_on) return Status(Errc::kSystem, "memory was refused");
    return std::unique_ptr<backend::Backend>(std::make_unique<IdleBackend>(plan_.name, capabilities(group)));
  }
  [[nodiscard]] bool protects(const backend::Services&) const override { return plan_.protects; }
  [[nodiscard]] std::string set_up_keys(const std::string& group) const override {
    return plan_.leaves.empty() ? "" : plan_.leaves + group + "/";
  }

 private:
  [[nodiscard]] backend::Capabilities capabilities(const backend::GroupSpec& group) const {
    constexpr std::uint32_t kAllgather = 1U << static_cast<unsigned>(OpKind::kAllgather);
    const std::uint32_t lacks = group.index == plan_.older_on ? kAllgather : 0;
    return {.ops = 15 & ~lacks, .dtypes = 1023, .devices = 1};
  }

  PlannedBackend plan_;
};

}  // namespace distrun::test
