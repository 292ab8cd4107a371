#include "runtime/api/session.h"

#include <signal.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <utility>

#include "runtime/api/describe.h"
#include "runtime/api/exchange.h"
#include "runtime/api/membership.h"
#include "runtime/api/places.h"
#include "runtime/api/process_key.h"
#include "runtime/api/spawned_job.h"
#include "runtime/backend/absent_backend.h"
#include "runtime/backend/builtin/builtin.h"
#include "runtime/backend/plugin/loader.h"
#include "runtime/base/fork_guard.h"
#include "runtime/net/control/shm_control.h"
#include "runtime/net/control/tcp_control.h"
#include "runtime/net/launchers/platform_tasks.h"

namespace distrun::api {
namespace {

// How long a rank that keeps the store stays for the sake of the others' last words, and a rank whose init() was
// refused for the others to hear that too.
constexpr Duration kGoodbyes = std::chrono::seconds(2);

std::vector<int> all_ranks(const net::World& world) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::string group_id(int process_set) { return "set" + std::to_string(process_set); }

// Why a rank may want no shared memory where nothing is wrong with it.
constexpr const char* kTcpWasSet = "control=tcp was set";
constexpr const char* kSeveralHosts = "not all ranks are on one host";

// The first reason of any rank against shared memory, or empty. All ranks see the same answers and choose alike.
std::string refusal_of_any(const std::vector<std::string>& answers) {
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    if (!answers[rank].empty()) return "rank " + std::to_string(rank) + ": " + answers[rank];
  }
  return {};
}

std::string name_of(int process_set) { return "process set " + std::to_string(process_set); }

// Of an init() that failed: after a time limit the others wait for this rank in vain. Whoever was turned away, as a
// second process of a rank is, has ended nothing.
Status ended_by(const Status& failure) {
  if (failure.code() != Errc::kTimeout) return failure;
  ErrorInfo info = failure.info();
  info.usable = false;
  return Status(std::move(info));
}

}  // namespace

Result<std::unique_ptr<Session>> Session::open(const Environment& environment,
                                               const std::vector<std::string>& overrides,
                                               std::atomic<int>* next_process_set) {
  arm_fork_guard();
  std::unique_ptr<Session> session(new Session());
  session->next_process_set_ = next_process_set;
  auto settings = read_settings(environment, overrides);
  if (!settings.ok()) return settings.status();
  session->settings_ = *std::move(settings);
  const TimePoint deadline = deadline_after(session->settings().start_timeout);
  if (const Status found = session->find_world(environment, deadline); !found.ok()) return ended_by(found);
  session->log_ = std::make_unique<Log>(session->settings_.settings.log_level, session->world_.rank);
  // Of what its environment had the launcher has warned. What a script sets itself is the same on all ranks mostly.
  const bool warns = !environment.contains("DISTRUN_RANK") || session->world_.rank == 0;
  for (const std::string& warning : session->settings_.warnings)
    if (warns) session->log_->warning(warning);

  const Status started = session->start(environment, deadline);
  if (started.ok()) return session;
  const std::vector<int>& missing = started.info().ranks;
  if (started.code() == Errc::kTimeout && session->channel_ && !missing.empty()) {
    const Status told = session->channel_->report_stall(missing.front(), started.message());
    if (!told.ok()) session->log_->debug("the launcher could not be told: " + told.message());
  }
  session->part_refused(started);
  return ended_by(started);
}

// Where another launcher started the ranks, the first one that ends after an error of them all takes the store with it,
// or is lost to those that are about to hear that error, and that launcher ends them. So all stay until each has heard
// it; where some have not been refused, they hear why this one goes.
void Session::part_refused(const Status& why) {
  const bool of_others = why.code() == Errc::kTimeout || why.code() == Errc::kRankLost || why.code() == Errc::kRankLeft;
  if (!spawner_ || !store_ || of_others) return;
  const auto heard = store_->add("refused", 1);
  bool by_all = heard.ok() && *heard == world_.size;
  if (by_all) (void)store_->set("refused by all", "");
  if (!by_all) by_all = store_->get("refused by all", Clock::now() + kGoodbyes).ok();
  (void)(by_all ? channel_->leave() : channel_->report_failure(why.message()));
  if (keeper_ == nullptr) return;
  by_all ? keeper_->wait_until_empty(Clock::now() + kGoodbyes) : keeper_->wait_until_told(Clock::now() + kGoodbyes);
}

Status Session::find_world(const Environment& environment, TimePoint deadline) {
  auto world = net::world_from_environment(environment);
  if (!world.ok()) return world.status();
  world_ = *std::move(world);
  world_.host_timeout = settings().host_timeout;
  if (environment.contains("DISTRUN_RANK")) return {};
  auto other = net::other_launcher(environment);
  if (!other.ok()) return other.status();
  if (!*other) return net::not_one_of_several(environment);
  const auto size = spawned_size(**other, deadline);
  if (!size.ok()) return size.status();
  world_.rank = (*other)->rank;
  world_.size = *size;
  if (world_.size > 1) spawner_ = **other;
  return {};
}

Status Session::start(const Environment& environment, TimePoint deadline) {
  // Before anything that opens a descriptor, which would get the number of the key's where something has closed that.
  if (world_.size > 1 && !spawner_) {
    auto key = process_key(environment);
    if (!key.ok()) return key.status();
    key_ = std::make_unique<net::JobKey>(*std::move(key));
  }
  auto wait_set = net::WaitSet::create();
  if (!wait_set.ok()) return wait_set.status();
  wait_set_ = *std::move(wait_set);
  hosts_ = {world_.host};
  if (world_.size > 1) {
    {
      const MutexLock lock(leaving_mutex_);
      in_job_.emplace();
    }
    DISTRUN_RETURN_IF_ERROR(join_job(deadline));
  }
  log_->info("settings " + start_up_line(settings_));
  find_backends();
  return watch_signals();
}

Session::~Session() = default;

void Session::find_backends() {
  factories_ = backend::builtin_factories();
  backend::plugin::Plugins plugins = backend::plugin::load_plugins(settings(), backend::plugin::default_folder());
  for (const std::string& warning : plugins.warnings) log_->warning(warning);
  for (auto& factory : plugins.factories) factories_.push_back(std::move(factory));
}

// To the store: the launcher's, or rank 0's where another launcher started the ranks.
Status Session::connect(TimePoint deadline) {
  if (spawner_) {
    auto job = join_spawned_job(world_, *spawner_, deadline, log_.get());
    if (!job.ok()) return job.status();
    key_ = std::make_unique<net::JobKey>(job->key);
    channel_ = std::move(job->channel);
    keeper_ = job->keeper;
    reached_ = job->reached;
    return {};
  }
  auto channel = net::StoreClient::connect(world_, *key_, deadline);
  if (!channel.ok()) return channel.status();
  channel_ = *std::move(channel);
  return {};
}

Status Session::join_job(TimePoint deadline) {
  DISTRUN_RETURN_IF_ERROR(connect(deadline));
  // All ranks init equally often, so each one's own count names the same round.
  auto round = channel_->add("init/" + std::to_string(world_.rank), 1);
  if (!round.ok()) return round.status();
  store_ = std::make_unique<PrefixStore>(*channel_, "init" + std::to_string(*round) + "/");

  if (spawner_) {
    DISTRUN_RETURN_IF_ERROR(exchange_places(world_, *store_, own_place(world_.rank, reached_), deadline));
  }
  auto membership = agree_on_membership(*store_, world_, settings_.settings, deadline);
  if (!membership.ok()) return membership.status();
  for (const std::string& warning : membership->warnings) log_->warning(warning);
  hosts_ = std::move(membership->hosts);
  world_.host_timeout = settings().host_timeout;  // rank 0's by now

  auto link = net::connect_host({.world = &world_,
                                 .key = key_.get(),
                                 .store = store_.get(),
                                 .wait_set = wait_set_.get(),
                                 .deadline = deadline,
                                 .log = log_.get()});
  if (link.ok()) {
    host_link_ = *std::move(link);
  } else {
    host_link_error_ = link.status().message();
    log_->info("no shared memory between the ranks of this host: " + host_link_error_);
  }
  return choose_control(deadline);
}

Result<std::vector<std::string>> Session::answers_of_all(const std::string& topic, const std::string& mine,
                                                         TimePoint deadline) {
  return exchange(*store_, {all_ranks(world_), world_.rank}, topic, mine, deadline);
}

// `reasons` of all ranks against a control plane in shared memory.
void Session::warn_of_unshared(std::vector<std::string> reasons) {
  for (std::string& reason : reasons) {
    if (reason == kTcpWasSet || reason == kSeveralHosts) reason.clear();
  }
  const std::string warning = unshared_hosts(hosts_, reasons);
  if (!warning.empty()) log_->warning(warning);
}

Status Session::choose_control(TimePoint deadline) {
  std::string mine;
  if (settings().control == "tcp") {
    mine = kTcpWasSet;
  } else if (!host_link_) {
    mine = host_link_error_;
  } else if (host_link_->ranks().size() != static_cast<std::size_t>(world_.size)) {
    mine = kSeveralHosts;
  }
  auto answers = answers_of_all("control", mine, deadline);
  if (!answers.ok()) return answers.status();
  if (world_.rank == 0) warn_of_unshared(*answers);
  std::string refusal = refusal_of_any(*answers);
  if (refusal.empty()) {
    auto plane = net::connect_shm_control(*host_link_, world_, deadline);
    answers = answers_of_all("control made", plane.ok() ? "" : plane.status().message(), deadline);
    if (!answers.ok()) return answers.status();
    refusal = refusal_of_any(*answers);
    if (refusal.empty()) control_plane_ = *std::move(plane);
  }
  if (control_plane_) {
    control_reason_ = "shm: all ranks share one host's memory";
  } else {
    if (settings().control == "shm") {
      return {Errc::kUnsupported, "control=shm was set, but shared memory is not to be had: " + refusal};
    }
    control_reason_ = "tcp: " + refusal;
    auto plane = net::connect_tcp_control({.world = &world_,
                                           .key = key_.get(),
                                           .store = store_.get(),
                                           .wait_set = wait_set_.get(),
                                           .deadline = deadline,
                                           .members = {},
                                           .log = log_.get()});
    if (!plane.ok()) return plane.status();
    control_plane_ = *std::move(plane);
  }
  log_->info("control plane: " + control_reason_);
  return {};
}

Status Session::start_engine() {
  engine::EngineOptions options;
  options.world = world_;
  options.settings = settings();
  options.hosts = hosts_;
  options.wait_set = wait_set_.get();
  options.control_plane = control_plane_.get();
  options.job_channel = channel_.get();
  options.log = log_.get();
  options.spin = host_link_ != nullptr && !host_link_->oversubscribed();
  options.next_process_set = next_process_set_;
  options.make_backends = [this](int process_set, const std::vector<int>& members) {
    return make_backends(process_set, members);
  };
  options.set_gone = [this](int process_set) { forget_choices(process_set); };
  options.set_settled = [this](int process_set) { clear_store(process_set); };
  auto engine = engine::Engine::create(std::move(options));
  if (!engine.ok()) return engine.status();
  engine_ = *std::move(engine);
  // Rank 0's value by now, so all ranks start it or none does.
  if (!settings().timeline.empty()) return engine_->start_timeline(settings().timeline);
  return {};
}

// Before the engine's thread, which then owns the wait set; the handlers after it, which need the engine.
Status Session::watch_signals() {
  auto signals = StopSignals::create(*wait_set_, [this](int number) {
    engine_->request_stop("rank " + std::to_string(world_.rank) + " on " + world_.host + " got SIG" +
                          ::sigabbrev_np(number));
  });
  if (!signals.ok()) return signals.status();
  stop_signals_ = *std::move(signals);
  DISTRUN_RETURN_IF_ERROR(start_engine());
  stop_signals_->begin();
  if (settings().preempt_signal == "TERM") StopSignals::take_over({SIGTERM});
  if (settings().preempt_signal == "USR1") StopSignals::take_over({SIGUSR1});
  if (settings().preempt_signal == "USR2") StopSignals::take_over({SIGUSR2});
  return {};
}

Result<bool> Session::should_stop(bool request) {
  if (!watches_all_.exchange(true, std::memory_order_relaxed)) StopSignals::take_over(kStopSignals);
  Result<bool> stop = engine_->should_stop(request);
  if (stop.ok() && *stop) stop_signals_->outlive();
  return stop;
}

std::string Session::own_address() const {
  if (!world_.address.empty()) return world_.address;
  return channel_ ? channel_->local_host() : std::string();
}

Result<std::vector<std::unique_ptr<backend::Backend>>> Session::make_backends(int process_set,
                                                                              const std::vector<int>& members) {
  backend::GroupSpec group = {.id = group_id(process_set), .members = members, .index = 0};
  std::vector<std::string> hosts;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] == world_.rank) group.index = static_cast<int>(i);
    hosts.push_back(hosts_.at(static_cast<std::size_t>(members[i])));
  }
  const backend::Services services = {.world = &world_,
                                      .key = key_.get(),
                                      .settings = &settings_.settings,
                                      .store = store_.get(),
                                      .wait_set = wait_set_.get(),
                                      .host_link = host_link_.get(),
                                      .host_link_error = host_link_error_,
                                      .local_host = own_address(),
                                      .factories = &factories_,
                                      .log = log_.get()};
  const TimePoint deadline = deadline_after(settings().start_timeout);
  const std::string set = name_of(process_set);
  auto offers = exchange_offers(group, factories_, services, deadline);
  if (!offers.ok()) return offers.status().with_context(set);
  std::vector<std::unique_ptr<backend::Backend>> backends;
  for (const DeviceType device : {DeviceType::kCpu, DeviceType::kCuda}) {
    const bool needed =
        device == DeviceType::kCpu || (members.size() > 1 && backend::asks_for(device, *offers, settings().backend));
    auto made = make_backend(device, needed, process_set,
                             choose_backend(device, *offers, group, factories_, services, hosts, deadline));
    if (!made.ok()) return made.status().with_context(set);
    backends.push_back(*std::move(made));
  }
  return backends;
}

// A job may do without GPUs, unless it was asked for a backend for them.
Result<std::unique_ptr<backend::Backend>> Session::make_backend(DeviceType device, bool needed, int process_set,
                                                                Result<ChosenBackend> chosen) {
  if (!chosen.ok() && !needed && chosen.status().code() == Errc::kUnsupported) {
    return std::unique_ptr<backend::Backend>(std::make_unique<backend::AbsentBackend>(device, chosen.status()));
  }
  if (!chosen.ok()) return chosen.status();
  for (const auto& factory : factories_) {
    if (device == DeviceType::kCuda && factory->name() == chosen->selection.backend) gpu_factory_ = factory.get();
  }
  const std::string line = name_of(process_set) + ": " + to_text(device, chosen->selection);
  log_->info(line);
  if (process_set == 0 && world_.rank == 0) warn_of_losers(device, *chosen);
  const MutexLock lock(mutex_);
  choices_[process_set] += line + "\n";
  return std::move(chosen->backend);
}

// What would have been used here: it could not be set up, or somebody asked for it by --between-hosts, and the reason
// that select() gives begins with the setting's name.
void Session::warn_of_losers(DeviceType device, const ChosenBackend& chosen) {
  const bool asked = device == DeviceType::kCpu && settings().between_hosts != Settings().between_hosts;
  const std::string& instead = chosen.selection.backend;
  for (const backend::Loser& loser : chosen.selection.losers) {
    const bool asked_for = asked && loser.reason.find("between_hosts=") != std::string::npos;
    if (!asked_for && !chosen.failed.contains(loser.backend)) continue;
    log_->warning(loser.backend + " is not used, " + loser.reason + "; " + instead + " is used instead");
  }
}

void Session::forget_choices(int process_set) {
  const MutexLock lock(mutex_);
  choices_.erase(process_set);
}

// What the members have told each other to make the set. Plug-ins keep theirs while the group is there: its members may
// meet when they first run.
void Session::clear_store(int process_set) {
  if (!store_) return;  // a world of one
  for (const char* topic : {"offers/", "setup/", "tcp/", "hierarchical/"}) {
    const Status cleared = store_->erase(topic + group_id(process_set) + "/", 1);
    if (!cleared.ok()) return log_->debug("the store was not cleared: " + cleared.message());
  }
}

Result<std::shared_ptr<void>> Session::mark(Device device, void* stream) {
  const backend::Factory* factory = gpu_factory_.load();
  if (factory == nullptr || device.type != DeviceType::kCuda) return std::shared_ptr<void>();
  return factory->mark(device, stream);
}

std::string Session::describe(const std::string& what) const {
  if (what == "settings") return start_up_line(settings_);
  if (what == "control") return control_plane_ ? control_reason_ : "none: a world of one rank";
  if (what != "why") return describe_without_session(what);
  const MutexLock lock(mutex_);
  std::string text;
  for (const auto& [process_set, lines] : choices_) text += lines;
  return text;
}

net::Mac Session::mac(const std::string& purpose, std::span<const std::byte> data) const {
  return key_ ? net::MacKey(*key_, std::string("distrun data\0", 13) + purpose).mac(data) : net::Mac{};
}

Status Session::shutdown() {
  TimePoint deadline;
  {
    const MutexLock lock(mutex_);
    if (!leave_by_) leave_by_ = deadline_after(settings().shutdown_timeout);
    deadline = *leave_by_;
  }
  const Status drained = engine_->shutdown(deadline);
  if (drained.code() == Errc::kTimeout) {
    const MutexLock lock(mutex_);
    leave_by_.reset();  // whoever calls again has as long again
  }
  if (!channel_ || !drained.ok()) return drained;
  const MutexLock leaving(leaving_mutex_);
  in_job_.reset();
  if (left_) return {};  // the channel has ended with that, which is no loss
  // The log has ended, so nobody reads these keys any more; another init has its own.
  if (world_.rank == 0) (void)store_->erase("", 1);
  const Status left = channel_->leave();
  left_ = left.ok();
  // All have drained, and their goodbyes are under way.
  if (keeper_ != nullptr) keeper_->wait_until_empty(Clock::now() + kGoodbyes);
  return left;
}

void Session::abort(const std::string& cause) {
  if (channel_) {
    const Status told = channel_->report_failure(cause);
    if (!told.ok()) log_->debug("the launcher could not be told: " + told.message());
    if (told.ok() && keeper_ != nullptr) keeper_->wait_until_told(Clock::now() + kGoodbyes);
  }
  engine_->abort(Status(
      ErrorInfo{.code = Errc::kAborted,
                .message = "rank " + std::to_string(world_.rank) + " on " + world_.host + " aborted the job: " + cause,
                .tensor = {},
                .ranks = {world_.rank},
                .host = world_.host,
                .cause = cause,
                .usable = false}));
}

}  // namespace distrun::api
