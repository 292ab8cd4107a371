#include "runtime/api/backends/choose.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <string_view>

#include "runtime/api/join/exchange.h"
#include "runtime/backend/agree.h"
#include "runtime/backend/limited_backend.h"
#include "runtime/backend/protection.h"
#include "runtime/base/setting_values.h"
#include "runtime/base/settings.h"
#include "runtime/net/bytes/wire.h"
#include "runtime/net/store/watched_store.h"

namespace distrun::api {
namespace {

constexpr std::size_t kMaxOffers = 64;
constexpr std::size_t kMaxOfferText = 4096;
// How far create() may exceed its deadline while members exchange their errors.
constexpr Duration kAgreeing = std::chrono::seconds(5);

// Each has one flag in the message; kDescriptors has none. If several flags are set, the last one is used.
constexpr std::array kFlagged = {backend::MovedBy::kOwnThread, backend::MovedBy::kMemory, backend::MovedBy::kCalls};

enum class Availability : std::uint8_t { kNo, kYes, kUnmetSetting };
constexpr int kNumAvailabilities = 3;

Availability availability_of(const backend::Offer& offer) {
  if (offer.available) return Availability::kYes;
  return offer.absence == backend::Absence::kUnmetSetting ? Availability::kUnmetSetting : Availability::kNo;
}

template <class V>
void fields(V& v, net::Ref<V, backend::Offer> offer) {
  Availability availability = availability_of(offer);
  v.text(offer.backend, kMaxOfferText).one_of(availability, kNumAvailabilities).cut_text(offer.reason, kMaxOfferText);
  v.cut_text(offer.nothing_to_do, kMaxOfferText)(offer.score);
  auto& can = offer.capabilities;
  v(can.ops, can.dtypes, can.devices, can.scatter_gather, can.revocable);
  for (const backend::MovedBy one : kFlagged) {
    bool flag = can.moved_by == one;
    v(flag);
    if constexpr (V::kReads) can.moved_by = flag ? one : can.moved_by;
  }
  v(can.exclusive);
  if constexpr (V::kReads) {
    offer.available = availability == Availability::kYes;
    if (availability == Availability::kUnmetSetting) offer.absence = backend::Absence::kUnmetSetting;
  }
}

template <class V, class Offers>
void list_of_offers(V& v, Offers& offers) {
  v.list(offers, kMaxOffers, [](auto& w, auto& offer) { fields(w, offer); });
}

// If protection was requested, withdraws the offer of a backend that cannot protect a group on several hosts.
void withdraw_plain(backend::Offer& offer, const backend::Factory& factory, const backend::GroupSpec& group,
                    const backend::Services& services) {
  const std::string asked = backend::asked_protection(services);
  if (asked.empty() || !offer.available || factory.protects(services)) return;
  if (backend::ranks_here(group, services).size() == group.members.size()) return;
  offer.available = false;
  offer.reason = "it cannot protect tensors between hosts, as " + asked + " demands";
}

// Marks the backend as failed in the offers of the members where its set-up failed. The next select() then gives that
// reason.
bool drop_failed(Offers& offers, const std::vector<std::string>& outcomes, const std::string& name) {
  bool dropped = false;
  for (std::size_t member = 0; member < outcomes.size(); ++member) {
    const Status outcome = backend::status_of(outcomes[member]);
    if (outcome.ok()) continue;
    for (backend::Offer& offer : offers[member]) {
      if (offer.backend != name) continue;
      offer.available = false;
      offer.absence = backend::Absence::kSetUpFailed;
      offer.reason = outcome.message();
      dropped = true;
    }
  }
  return dropped;
}

// Limits the backend to what it can do on all members.
std::unique_ptr<backend::Backend> limited(std::unique_ptr<backend::Backend> made,
                                          const std::vector<backend::Offer>& offers,
                                          const backend::Selection& selection) {
  const auto mine = std::ranges::find(offers, selection.backend, &backend::Offer::backend);
  DISTRUN_CHECK(mine != offers.end(), "every member offers what is chosen");
  const backend::Capabilities& all = selection.capabilities;
  if (mine->capabilities.ops == all.ops && mine->capabilities.dtypes == all.dtypes) return made;
  return std::make_unique<backend::LimitedBackend>(std::move(made), mine->capabilities, all);
}

// The setting names a backend that no member knows. All members have the same offers, so all get the same answer.
Status check_between_hosts(const Offers& offers, const std::string& name) {
  std::vector<std::string> known;
  for (const auto& of_member : offers) {
    for (const backend::Offer& offer : of_member) known.push_back(offer.backend);
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  const auto has = [&](const std::string& one) { return std::binary_search(known.begin(), known.end(), one); };
  if (!has("hierarchical") || has(name)) return {};
  return {Errc::kUnsupported, no_such_backend_between_hosts(name, std::move(known))};
}

// If this member cannot take part, it tells the others, because they may wait for it inside the same call.
Result<std::unique_ptr<backend::Backend>> create_watched(const backend::Factory& factory,
                                                         const backend::GroupSpec& group,
                                                         const backend::Services& services, const std::string& step,
                                                         TimePoint deadline) {
  if (services.store == nullptr || group.members.size() == 1) return factory.create(group, services, deadline);
  const auto store = std::make_shared<net::WatchedStore>(*services.store, step);
  backend::Services watched = services;
  watched.store = store.get();
  watched.own_store = store;
  auto made = factory.create(group, watched, deadline);
  if (made.ok()) return made;
  // The first error of another member. A plug-in has only a code for it.
  if (!store->reported_failure().ok()) return store->reported_failure();
  store->fail(services.world->rank, services.world->host, made.status());
  return made;
}

Members members_of(const backend::GroupSpec& group, const backend::Services& services) {
  return {.ranks = group.members, .index = group.index, .time_limit = services.settings->start_timeout, .met = true};
}

std::string offers_topic(const std::string& group) { return "offers/" + group; }
std::string setup_topic(const std::string& group) { return "setup/" + group; }

}  // namespace

std::vector<std::string> set_up_keys(const std::string& group) {
  return {offers_topic(group) + "/", setup_topic(group) + "/"};
}

std::string encode_offers(const std::vector<backend::Offer>& offers) {
  net::WireWriter writer;
  list_of_offers(writer, offers);
  return net::as_string(writer);
}

Result<std::vector<backend::Offer>> decode_offers(const std::string& bytes) {
  net::WireReader reader(net::as_bytes(bytes));
  std::vector<backend::Offer> offers;
  list_of_offers(reader, offers);
  DISTRUN_RETURN_IF_ERROR(reader.finish("a rank's backend offers"));
  return offers;
}

Result<Offers> exchange_offers(const backend::GroupSpec& group, const Factories& factories,
                               const backend::Services& services, TimePoint deadline) {
  std::vector<backend::Offer> mine;
  mine.reserve(factories.size());
  for (const auto& factory : factories) {
    mine.push_back(factory->offer(group, services));
    withdraw_plain(mine.back(), *factory, group, services);
  }
  auto blobs =
      exchange(*services.store, members_of(group, services), offers_topic(group.id), encode_offers(mine), deadline);
  if (!blobs.ok()) return blobs.status();
  Offers all;
  for (const std::string& blob : *blobs) {
    auto offers = decode_offers(blob);
    if (!offers.ok()) return offers.status();
    all.push_back(*std::move(offers));
  }
  return all;
}

Result<ChosenBackend> choose_backend(DeviceType device, Offers offers, const backend::GroupSpec& group,
                                     const Factories& factories, const backend::Services& services,
                                     const std::vector<std::string>& hosts, TimePoint deadline) {
  DISTRUN_RETURN_IF_ERROR(check_between_hosts(offers, services.settings->between_hosts));
  backend::GroupSpec made_for = group;
  made_for.device = device;
  const std::string topic = setup_topic(group.id) + "/" + std::string(name_of(device)) + "/";
  const bool whole_job = group.members.size() == static_cast<std::size_t>(services.world->size);
  for (std::size_t attempt = 0; attempt <= factories.size(); ++attempt) {
    auto selection = backend::select(device, offers, group.members, hosts, services.settings->backend, whole_job);
    if (!selection.ok()) return selection.status();
    const backend::Factory* factory = backend::find_factory(factories, selection->backend);
    DISTRUN_CHECK(factory != nullptr, "select() chose a backend that nobody offered");
    const TimePoint until = std::max(deadline, deadline_after(services.settings->start_timeout));
    const std::string step = topic + std::to_string(attempt);
    auto made = create_watched(*factory, made_for, services, step, until);
    auto outcomes = exchange(*services.store, members_of(group, services), step, backend::outcome_of(made.status()),
                             until + kAgreeing);
    if (!outcomes.ok()) return outcomes.status();
    if (!drop_failed(offers, *outcomes, selection->backend)) {
      auto backend = limited(*std::move(made), offers[static_cast<std::size_t>(group.index)], *selection);
      return ChosenBackend{std::move(backend), *std::move(selection)};
    }
  }
  return Status(Errc::kInternal, "a bug in distrun: select() chose a backend although all had failed");
}

}  // namespace distrun::api
