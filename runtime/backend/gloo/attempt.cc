#include "runtime/backend/gloo/attempt.h"

#include <algorithm>
#include <chrono>
#include <string_view>

namespace distrun::backend::gloo_plugin {
namespace {

// The first byte of a value that members exchange.
constexpr char kHas = '+';
constexpr char kHasNot = '-';
// The first byte of an outcome.
constexpr char kWell = 'w';
constexpr char kAgain = 'a';
constexpr char kEnd = 'e';

constexpr std::size_t kUsualBytes = 4096;

Status store_failed(std::int32_t code) {
  return {static_cast<Errc>(code), "the store of the job does not answer (code " + std::to_string(code) + ")"};
}

}  // namespace

Attempt::Attempt(const distrun_backend_group_spec& spec, int number) : spec_(spec), number_(number) {}

Result<std::vector<std::string>> Attempt::exchange(const Result<std::string>& mine, TimePoint deadline) {
  const std::string own = std::to_string(spec_.index);
  DISTRUN_RETURN_IF_ERROR(set(own, mine.ok() ? kHas + *mine : kHasNot + mine.status().message()));
  if (!mine.ok()) return mine.status();
  std::vector<std::string> all(spec_.num_members);
  for (std::size_t member = 0; member < all.size(); ++member) {
    const std::string rank = "rank " + std::to_string(spec_.members[member]);
    auto value = get(std::to_string(member), deadline);
    if (!value.ok()) {
      const bool late = value.status().code() == Errc::kTimeout;
      return late ? Status(Errc::kTimeout, rank + " has not sent its addresses in time") : value.status();
    }
    if (value->empty() || value->front() != kHas) {
      return Status(Errc::kSystem, rank + ": " + value->substr(std::min<std::size_t>(1, value->size())));
    }
    all[member] = value->substr(1);
  }
  return all;
}

void Attempt::well() {
  std::int64_t sum = 0;
  const std::string counter = key("well");
  const std::int32_t code = spec_.store->add(spec_.store->context, counter.c_str(), 1, &sum);
  if (code == DISTRUN_BACKEND_OK && sum == static_cast<std::int64_t>(spec_.num_members)) decide({kWell});
}

void Attempt::fail(const Status& why, bool again) { decide((again ? kAgain : kEnd) + why.message()); }

// Only the first decision counts. A member that has timed out may decide at the same time as the last member succeeds.
void Attempt::decide(const std::string& outcome) const {
  std::int64_t sum = 0;
  const std::string counter = key("decided");
  const std::int32_t code = spec_.store->add(spec_.store->context, counter.c_str(), 1, &sum);
  // Members that wait for the outcome get the store's error too.
  if (code == DISTRUN_BACKEND_OK && sum == 1) (void)set("verdict", outcome);
}

Attempt::Outcome Attempt::wait(TimePoint deadline) const {
  const auto outcome = get("verdict", deadline);
  if (!outcome.ok()) return {.status = outcome.status()};
  if (outcome->starts_with(kWell)) return {};
  return {.status = Status(Errc::kSystem, outcome->substr(1)), .again = outcome->starts_with(kAgain)};
}

Status Attempt::set(const std::string& of, const std::string& value) const {
  const std::string name = key(of);
  const std::int32_t code = spec_.store->set(spec_.store->context, name.c_str(), value.data(), value.size());
  return code == DISTRUN_BACKEND_OK ? Status() : store_failed(code);
}

Result<std::string> Attempt::get(const std::string& of, TimePoint deadline) const {
  const std::string name = key(of);
  std::string value(kUsualBytes, '\0');
  for (;;) {
    const double seconds = std::max(0.0, std::chrono::duration<double>(deadline - Clock::now()).count());
    std::uint64_t size = 0;
    const std::int32_t code =
        spec_.store->get(spec_.store->context, name.c_str(), seconds, value.data(), value.size(), &size);
    if (code == DISTRUN_BACKEND_TIMEOUT) return Status(Errc::kTimeout, "no rank has set " + name + " in time");
    if (code != DISTRUN_BACKEND_OK) return store_failed(code);
    const bool whole = size <= value.size();
    value.resize(size);
    if (whole) return value;
  }
}

}  // namespace distrun::backend::gloo_plugin
