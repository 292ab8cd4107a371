#include "runtime/api/join/job_connection.h"

#include <chrono>
#include <utility>

#include "runtime/api/join/exchange.h"
#include "runtime/api/join/places.h"
#include "runtime/api/join/spawned_job.h"
#include "runtime/net/launchers/platform_tasks.h"

namespace distrun::api {
namespace {

// How long a rank that keeps the store stays for the last messages of the others. Also how long a rank whose init() was
// refused waits until the others know.
constexpr Duration kGoodbyes = std::chrono::seconds(2);

}  // namespace

Status JobConnection::find_world(const Environment& environment, net::World& world, TimePoint deadline) {
  if (environment.contains("DISTRUN_RANK")) return {};
  auto other = net::other_launcher(environment);
  if (!other.ok()) return other.status();
  if (!*other) return net::not_one_of_several(environment);
  const auto size = spawned_size(**other, deadline);
  if (!size.ok()) return size.status();
  world.rank = (*other)->rank;
  world.size = *size;
  if (world.size > 1) spawner_ = **other;
  return {};
}

Status JobConnection::take_key(const Result<net::JobKey>& key) {
  if (spawner_) return {};
  if (!key.ok()) return key.status();
  key_ = std::make_unique<net::JobKey>(*key);
  return {};
}

Status JobConnection::connect(net::World& world, TimePoint deadline, const Log& log) {
  if (spawner_) {
    auto job = join_spawned_job(world, *spawner_, deadline, &log);
    if (!job.ok()) return job.status();
    key_ = std::make_unique<net::JobKey>(job->key);
    channel_ = std::move(job->channel);
    store_host_ = job->store_host;
    reached_ = job->reached;
    return {};
  }
  auto channel = net::StoreClient::connect(world, *key_, deadline);
  if (!channel.ok()) return channel.status();
  channel_ = *std::move(channel);
  return {};
}

Status JobConnection::open(net::World& world, TimePoint deadline, const Log& log) {
  DISTRUN_RETURN_IF_ERROR(connect(world, deadline, log));
  // All ranks call init equally often, so each rank's own count gives the same round.
  auto round = channel_->add("init/" + std::to_string(world.rank), 1);
  if (!round.ok()) return round.status();
  store_ = std::make_unique<PrefixStore>(*channel_, "init" + std::to_string(*round) + "/");
  watched_ = std::make_unique<net::WatchedStore>(*store_, "start");
  return spawner_ ? exchange_places(world, *store_, own_place(world.rank, reached_), deadline) : Status();
}

net::Mac JobConnection::mac(const std::string& purpose, std::span<const std::byte> data) const {
  return key_ != nullptr ? net::MacKey(*key_, std::string("distrun data\0", 13) + purpose).mac(data) : net::Mac{};
}

// For ranks that another launcher started. If init() fails on all ranks, the first one that ends may take the store
// with it. The others may also see it as lost before they see the error, and that launcher ends them. So all stay until
// each has the error. If init() was not refused on some ranks, they get this rank's reason.
void JobConnection::refused(const Status& why, const net::World& world) {
  if (!store_ || !watched_->fail(world.rank, world.host, why) || !spawner_) return;
  const auto refused = store_->add("refused", 1);
  bool by_all = refused.ok() && *refused == world.size;
  if (by_all) (void)store_->set("refused by all", "");
  if (!by_all) by_all = store_->get("refused by all", Clock::now() + kGoodbyes).ok();
  (void)(by_all ? channel_->leave() : channel_->report_failure({.cause = why.message()}));
  if (store_host_ == nullptr) return;
  const TimePoint until = Clock::now() + kGoodbyes;
  by_all ? store_host_->wait_until_empty(until) : store_host_->wait_until_published(until);
}

Status JobConnection::leave(bool first_rank) {
  // The log has ended, so no rank reads these keys any more. Another init has its own keys.
  if (first_rank) (void)store_->erase("", 1);
  const Status left = channel_->leave();
  // The other ranks' messages that they leave are on their way.
  if (store_host_ != nullptr) store_host_->wait_until_empty(Clock::now() + kGoodbyes);
  return left;
}

Status JobConnection::report_failure(const net::RankFailure& failure) {
  if (!channel_) return {};
  const Status reported = channel_->report_failure(failure);
  if (reported.ok() && store_host_ != nullptr) store_host_->wait_until_published(Clock::now() + kGoodbyes);
  return reported;
}

}  // namespace distrun::api
