#include "runtime/api/join/spawned_job.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/net/bytes/interfaces.h"
#include "runtime/net/launchers/spawner_exchange.h"

namespace distrun::api {
namespace {

// First time limit for one address. It is short because the next address may be better than a dead route.
constexpr Duration kOneAddress = std::chrono::seconds(3);
constexpr const char* kLoopback = "127.0.0.1";

struct Kept {
  std::mutex mutex;
  std::unique_ptr<net::SpawnerExchange> exchange;
  std::optional<Result<net::StoreContact>> contact;
};

// Disconnects from the launcher when the process exits. If a thread is in the exchange then, it runs until the process
// ends, so the exchange stays.
void send_goodbye();

// Never destroyed, for the same reason.
Kept& kept_job() {
  static auto* const one = [] {
    std::atexit(send_goodbye);
    return new Kept;
  }();
  return *one;
}

void send_goodbye() {
  const std::unique_lock lock(kept_job().mutex, std::try_to_lock);
  if (lock.owns_lock()) kept_job().exchange.reset();
}

// Never destroyed: its thread serves the other ranks until the process ends.
net::StoreHost*& kept_store() {
  static net::StoreHost* one = nullptr;
  return one;
}

Status open(Kept& kept, const net::OtherLauncher& launcher, TimePoint deadline) {
  if (kept.exchange) return {};
  auto exchange = net::open_exchange(launcher, deadline);
  if (!exchange.ok()) return exchange.status();
  kept.exchange = *std::move(exchange);
  return {};
}

// IPv4 first. Loopback is last: without a network it is the only address that ranks of one host share.
std::vector<std::string> own_addresses() {
  std::vector<std::string> out;
  for (const bool v6 : {false, true}) {
    for (const net::InterfaceAddress& one : net::scan_addresses()) {
      const bool local = one.address.starts_with("127.") || one.address == "::1" || one.address.starts_with("fe80:") ||
                         one.address.starts_with("169.254.");
      if (local || (one.address.find(':') != std::string::npos) != v6) continue;
      if (out.size() + 1 < net::kMaxContactAddresses) out.push_back(one.address);
    }
  }
  out.emplace_back(kLoopback);
  return out;
}

Result<std::string> begin(const net::World& world, const net::OtherLauncher& launcher, const Log* session_log) {
  if (world.rank != 0) return std::string();
  net::StoreContact contact{.job_id = launcher.job.empty() ? "job" : launcher.job,
                            .key = net::JobKey::generate(),
                            .addresses = own_addresses(),
                            .port = 0};
  // As the others will read it, without the characters of the name that the exchange cannot carry.
  const auto plain = net::parse_store_contact(net::to_word(contact));
  contact.job_id = plain.ok() ? plain->job_id : "job";
  // lives as long as the store
  static const auto* const log = session_log != nullptr ? new Log(*session_log) : nullptr;
  auto host = net::StoreHost::start(contact.key, contact.job_id, world.size, world.host_timeout, log);
  if (!host.ok()) return host.status();
  contact.port = (*host)->port();
  kept_store() = host->release();
  return net::to_word(contact);
}

Result<net::StoreContact> exchange_contact(Kept& kept, const net::World& world, const net::OtherLauncher& launcher,
                                           TimePoint deadline, const Log* log) {
  DISTRUN_RETURN_IF_ERROR(open(kept, launcher, deadline));
  const auto mine = begin(world, launcher, log);
  if (!mine.ok()) return mine.status();
  const auto word = kept.exchange->share(*mine, deadline);
  if (!word.ok()) return word.status();
  return net::parse_store_contact(*word);
}

}  // namespace

Result<int> spawned_size(const net::OtherLauncher& launcher, TimePoint deadline) {
  if (launcher.size > 0) return launcher.size;
  const std::lock_guard lock(kept_job().mutex);
  DISTRUN_RETURN_IF_ERROR(open(kept_job(), launcher, deadline));
  return kept_job().exchange->size(deadline);
}

Result<SpawnedJob> reach_store(net::World& world, const net::StoreContact& contact, TimePoint deadline,
                               const Log* log) {
  world.job_id = contact.job_id;
  std::string tried;
  bool silent = true;
  // The time limit grows: a store that is slow because of many ranks must have time for one handshake.
  for (Duration each = kOneAddress; silent; each *= 2) {
    silent = false;
    tried.clear();
    for (const std::string& address : contact.addresses) {
      world.store = net::with_port(address, contact.port);
      auto channel = net::StoreClient::connect(world, contact.key, std::min(deadline, Clock::now() + each), 0);
      if (channel.ok()) return SpawnedJob{.key = contact.key, .channel = *std::move(channel), .reached = address};
      silent = silent || channel.status().code() == Errc::kTimeout;
      tried += "\n  " + world.store + ": " + channel.status().message();
    }
    if (Clock::now() >= deadline) break;
    if (silent && each == kOneAddress && log != nullptr) {
      log->warning("rank 0 does not answer yet. distrun tries it until --start-timeout is over:" + tried);
    }
  }
  return Status(ErrorInfo{
      .code = Errc::kRankLost,
      .message = "rank 0 cannot be reached at any address of its host. Check the network between the hosts, and "
                 "its firewall" +
                 tried,
      .ranks = {0},
      .usable = false});
}

Result<SpawnedJob> join_spawned_job(net::World& world, const net::OtherLauncher& launcher, TimePoint deadline,
                                    const Log* log) {
  const std::lock_guard lock(kept_job().mutex);
  auto& contact = kept_job().contact;
  // Other ranks would be at a different step of the exchange in a second try, so the first result stays.
  if (!contact) contact = exchange_contact(kept_job(), world, launcher, deadline, log);
  if (!contact->ok()) return contact->status();
  auto job = reach_store(world, **contact, deadline, log);
  if (job.ok()) job->store_host = kept_store();
  return job;
}

}  // namespace distrun::api
