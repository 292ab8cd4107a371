#include "runtime/api/session.h"

#include <signal.h>

#include <cstring>
#include <utility>

#include "runtime/api/describe.h"
#include "runtime/api/join/membership.h"
#include "runtime/api/join/process_key.h"
#include "runtime/base/system/fork_guard.h"

namespace distrun::api {
namespace {

// The error of a failed init(). After a time limit the others would wait for this rank without end, so the job is over.
// Other refusals do not end the job, for instance that of a second process of a rank.
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
  // Comes first, even in a job of one rank. Processes that the program starts must not inherit the key, even if this
  // init() fails.
  const auto key = process_key(environment);
  std::unique_ptr<Session> session(new Session());
  session->next_process_set_ = next_process_set;
  auto settings = read_settings(environment, overrides);
  if (!settings.ok()) return settings.status();
  session->settings_ = *std::move(settings);
  const TimePoint deadline = deadline_after(session->settings().start_timeout);
  if (const Status found = session->find_world(environment, deadline); !found.ok()) return ended_by(found);
  session->log_ = std::make_unique<Log>(session->settings_.settings.log_level, session->world_.rank);
  // The launcher has already warned about its own environment. A script's own settings are mostly equal on all ranks,
  // so rank 0 alone warns about them.
  const bool warns = !environment.contains("DISTRUN_RANK") || session->world_.rank == 0;
  for (const std::string& warning : session->settings_.warnings)
    if (warns) session->log_->warning(warning);

  const Status started = session->start(key, deadline);
  if (started.ok()) return session;
  const std::vector<int>& missing = started.info().ranks;
  if (started.code() == Errc::kTimeout && session->job_.channel() != nullptr && !missing.empty()) {
    const Status reported = session->job_.channel()->report_stall({.ranks = missing}, {.cause = started.message()});
    if (!reported.ok()) session->log_->debug("cannot report to the launcher: " + reported.message());
  }
  session->job_.refused(started, session->world_);
  return ended_by(started);
}

Status Session::find_world(const Environment& environment, TimePoint deadline) {
  auto world = net::world_from_environment(environment);
  if (!world.ok()) return world.status();
  world_ = *std::move(world);
  world_.host_timeout = settings().host_timeout;
  return job_.find_world(environment, world_, deadline);
}

Status Session::start(const Result<net::JobKey>& key, TimePoint deadline) {
  // Opened before anything else that needs descriptors. A rank that has none left reports that over this channel.
  if (world_.size > 1) {
    DISTRUN_RETURN_IF_ERROR(job_.take_key(key));
    DISTRUN_RETURN_IF_ERROR(job_.open(world_, deadline, *log_));
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
  backends_ = std::make_unique<SetBackends>(backend::Services{.world = &world_,
                                                              .key = job_.key(),
                                                              .settings = &settings_.settings,
                                                              .store = job_.store(),
                                                              .wait_set = wait_set_.get(),
                                                              .host_link = host_link_.get(),
                                                              .host_link_error = host_link_error_,
                                                              .local_host = own_address(),
                                                              .log = log_.get()},
                                            hosts_, load_factories(settings(), *log_));
  return watch_signals();
}

Session::~Session() = default;

Status Session::join_job(TimePoint deadline) {
  auto membership = agree_on_membership(*job_.store(), world_, settings_.settings, deadline);
  if (!membership.ok()) return membership.status();
  for (const std::string& warning : membership->warnings) log_->warning(warning);
  hosts_ = std::move(membership->hosts);
  world_.host_timeout = settings().host_timeout;  // now rank 0's value

  auto link = net::connect_host({.world = &world_,
                                 .key = job_.key(),
                                 .store = job_.store(),
                                 .wait_set = wait_set_.get(),
                                 .deadline = deadline,
                                 .log = log_.get()});
  if (link.ok()) {
    host_link_ = *std::move(link);
  } else {
    host_link_error_ = link.status().message();
    log_->info("no shared memory between the ranks of this host: " + host_link_error_);
  }
  auto control = choose_control({.world = world_,
                                 .key = job_.key(),
                                 .store = *job_.store(),
                                 .wait_set = *wait_set_,
                                 .host_link = host_link_.get(),
                                 .host_link_error = host_link_error_,
                                 .setting = settings().control,
                                 .hosts = hosts_,
                                 .log = *log_},
                                deadline);
  if (!control.ok()) return control.status();
  control_ = *std::move(control);
  log_->info("control plane: " + control_.reason);
  return {};
}

Status Session::start_engine() {
  engine::EngineOptions options;
  options.world = world_;
  options.settings = {.fusion_threshold = settings().fusion_threshold,
                      .cache_capacity = settings().cache_capacity,
                      .stall_warning_time = settings().stall_warning_time,
                      .stall_shutdown_time = settings().stall_shutdown_time,
                      .deadlock_time = settings().deadlock_time,
                      .huge_pages = settings().huge_pages,
                      .timeline_max_size = settings().timeline_max_size};
  options.hosts = hosts_;
  options.wait_set = wait_set_.get();
  options.control_plane = control_.plane.get();
  options.job_channel = job_.channel();
  options.log = log_.get();
  options.spin = host_link_ != nullptr && !host_link_->oversubscribed();
  options.next_process_set = next_process_set_;
  options.backends = backends_.get();
  auto engine = engine::Engine::create(std::move(options));
  if (!engine.ok()) return engine.status();
  engine_ = *std::move(engine);
  // This is rank 0's value now, so all ranks start the timeline or none does.
  if (!settings().timeline.empty()) return engine_->start_timeline(settings().timeline);
  return {};
}

// The signals' descriptor is added before the engine's thread starts, because that thread then owns the wait set. The
// handlers come after the engine, because they need it.
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
  return job_.channel() != nullptr ? job_.channel()->local_host() : std::string();
}

std::string Session::describe(const std::string& what) const {
  if (what == "settings") return start_up_line(settings_);
  if (what == "control") return control_.reason;
  if (what == "why.json") return to_json(backends_->choices());
  if (what != "why") return describe_without_session(what);
  std::string text;
  for (const Choice& choice : backends_->choices()) text += to_text(choice) + "\n";
  return text;
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
    leave_by_.reset();  // the next call gets the whole time limit again
  }
  if (job_.channel() == nullptr || !drained.ok()) return drained;
  const MutexLock leaving(leaving_mutex_);
  in_job_.reset();
  if (left_) return {};  // the channel ended with that, which is no loss
  const Status left = job_.leave(world_.rank == 0);
  left_ = left.ok();
  return left;
}

void Session::abort(const net::RankFailure& failure) {
  const Status reported = job_.report_failure(failure);
  if (!reported.ok()) log_->debug("cannot report to the launcher: " + reported.message());
  engine_->abort(Status(ErrorInfo{.code = Errc::kAborted,
                                  .message = net::raised_text(world_.rank, world_.host, failure.cause),
                                  .tensor = {},
                                  .ranks = {world_.rank},
                                  .host = world_.host,
                                  .cause = failure.cause,
                                  .usable = false}));
}

}  // namespace distrun::api
