#include "launcher/job/ranks/rank_monitor.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "launcher/job/agents/job_state.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/report/failure_report.h"

namespace distrun::launcher {
namespace {

void ask_where(const std::vector<int>& ranks, const Sessions& sessions, HangWatch& hangs, Survey& survey,
               net::StoreServer& store) {
  // A process that cannot run does not answer. Its agent reports the state that explains this.
  if (!ranks.empty()) survey.ask_states();
  for (const int rank : ranks) {
    // Such a rank reads no question before its session has begun.
    if (const std::vector<int> awaited = sessions.awaited_by(rank); !awaited.empty()) {
      hangs.cannot(rank, "in init(), which waits for " + rank_list(awaited));
      continue;
    }
    if (store.send_event(rank, {.kind = net::JobEvent::Kind::kStacksAsked})) continue;
    hangs.cannot(rank, "in no session: before init(), or after shutdown()");
  }
}

}  // namespace

RankMonitor::RankMonitor(AgentLinks& agents, RankOutput& output)
    : agents_(agents), output_(output), verdict_(Verdict::Config{}), survey_(agents, members_) {}

void RankMonitor::open(Membership members, const Config& config, std::unique_ptr<net::StoreServer> store) {
  config_ = config;
  members_ = std::move(members);
  Verdict::Config judged{.grace = config_.grace, .servers = config_.servers, .clients = config_.clients};
  for (int rank = 0; rank < members_.size(); ++rank) {
    judged.hosts.push_back(members_.host_name(rank));
    judged.host_of.push_back(static_cast<int>(members_.host_of(rank)));
  }
  verdict_ = Verdict(std::move(judged));
  store_ = std::move(store);
  survey_.open(config_.key, config_.host_timeout);
  if (!config_.carrier_host.empty()) carrier_.emplace(config_.carrier_host);
}

void RankMonitor::watch(Poller& poller) {
  if (store_) poller.watch(store_->fd(), POLLIN, [this](short) { read_store(); });
}

std::vector<AgentLink*> RankMonitor::tick(TimePoint now, bool all_over) {
  // Not shown if the job ends for a reason other than a rank's failure, because that may be the cause.
  for (const auto& [rank, text] : unreachable_.take(now)) {
    if (!verdict_.ending() || verdict_.rank_failed()) output_.print(text);
    survey_.awaits_exit(rank, false);
    carry_out(verdict_.runs_on(rank));
  }
  if (auto views = hangs_.take(now, survey_.states())) {
    for (RankView& view : *views) view.host = members_.host_name(view.rank);
    output_.print(stacks_text(*views));
  }
  if (CarrierLoss* const parts = carrier()) decide(*parts, now);
  if (!verdict_.ending()) {
    survey_.seen(hangs_.exceptions(), hangs_.deadline().has_value());
    const Survey::Found found = all_over ? survey_.conclude() : survey_.look(now);
    if (found.no_cause || found.blame) carry_out(verdict_.blame(found.blame));
    if (found.no_cause && !verdict_.ending()) output_.show_kept_back(-1, now);
  }
  if (kill_by_.servers && now >= *kill_by_.servers) {
    kill_by_.servers.reset();
    signal_ranks(SIGKILL, verdict_.servers_left());
  }
  return survey_.take_silent();
}

void RankMonitor::decide(CarrierLoss& parts, TimePoint now) {
  if (const auto loss = parts.decide(now)) {
    output_.print(sentence(loss->text) + " This ended the job; exit code " + std::to_string(exit_code::kHostLost) +
                  ".");
    const std::vector<int> hosts = loss->where.agent < 0 ? std::vector<int>() : std::vector<int>{loss->where.agent};
    carry_out(verdict_.hosts_lost(hosts, {.kind = CauseKind::kCarrierLost, .text = loss->text}));
    output_.keep_back_all_but(-1);
  }
  for (const RankExited& event : parts.take()) carry_out(verdict_.exited(event, round_));
}

std::optional<TimePoint> RankMonitor::deadline() const {
  auto next = earlier(earlier(unreachable_.deadline(), hangs_.deadline()), kill_by_.servers);
  if (verdict_.ending()) return next;
  next = earlier(next, survey_.deadline());
  return carrier_ ? earlier(next, carrier_->deadline()) : next;
}

Result<bool> RankMonitor::on(const AgentLink& agent, const Frame& frame) {
  const auto about_rank = [this](auto decoded, auto action) {
    return with(decoded, [&](auto message) {
      // Messages of agents name workers. This replaces the worker by its rank.
      const auto rank = members_.rank_of(WorkerId{message.rank});
      message.rank = rank.value_or(-1);
      if (rank) action(message);
    });
  };
  switch (static_cast<FromAgent>(frame.type)) {
    case FromAgent::kStarted:
      return about_rank(decode<RankStarted>(frame.payload),
                        [this](const RankStarted& event) { verdict_.started(event); });
    case FromAgent::kOutput:
      return about_rank(decode<StreamBytes>(frame.payload), [this](const StreamBytes& bytes) {
        // A rank reports an error that all ranks get before it prints it. Then only the first one is shown.
        if (bytes.stream == 1) read_store();
        output_.write(bytes, Clock::now());
      });
    case FromAgent::kExited:
      return about_rank(decode<RankExited>(frame.payload), [this](const RankExited& event) {
        // The rank's last messages to the rendezvous ("I leave", "I fail because") have arrived by now, but may not
        // have been read yet.
        read_store();
        unreachable_.explained(event.rank);
        if (event.exit_code != 0) output_.failed(event.rank);
        if (CarrierLoss* const parts = carrier(); parts != nullptr && parts->keeps(event, Clock::now())) return;
        carry_out(verdict_.exited(event, round_));
      });
    default:
      return survey_.on(agent, frame);
  }
}

std::optional<int> RankMonitor::drained(const Frame& frame) const {
  const auto drained = decode<Drained>(frame.payload);
  return drained.ok() ? members_.rank_of(WorkerId{drained->rank}) : std::nullopt;
}

void RankMonitor::ranks_gone(const AgentLink& agent) {
  for (const int rank : members_.ranks_on(agent.index)) unreachable_.explained(rank);
}

CarrierLoss* RankMonitor::carrier() {
  if (!carrier_ || verdict_.ending()) return nullptr;
  for (int rank = 0; rank < members_.size(); ++rank) {
    if (!verdict_.end_of(rank)) return &*carrier_;
  }
  return nullptr;
}

void RankMonitor::hosts_lost(const HostLoss& loss) {
  std::vector<int> hosts;
  for (const AgentLink* const agent : loss.links) hosts.push_back(static_cast<int>(agent->index));
  carry_out(verdict_.hosts_lost(hosts, loss.cause));
}

bool RankMonitor::all_came(const AgentLink& agent) const {
  const std::vector<int> ranks = members_.ranks_on(agent.index);
  return std::all_of(ranks.begin(), ranks.end(),
                     [this](int rank) { return survey_.has_joined(rank) || verdict_.end_of(rank); });
}

void RankMonitor::interrupt_soon(int signal, TimePoint now, std::uint32_t kill_after_ms) {
  JobActions actions = verdict_.interrupted(signal, now);
  actions.stop->kill_after = std::min(actions.stop->kill_after, kill_after_ms);
  carry_out(actions);
}

void RankMonitor::break_off(int code, const std::string& why) {
  if (!verdict_.ending()) output_.print(why);
  carry_out(verdict_.broken(code, why));
  agents_.close_all();
}

void RankMonitor::ask_to_stop(const std::string& why) {
  store_->publish({.kind = net::JobEvent::Kind::kStopAsked, .cause = why});
}

std::optional<std::string> RankMonitor::take_stop() { return std::exchange(stop_, std::nullopt); }

void RankMonitor::read_store() {
  ++round_;
  store_->progress(Clock::now());
  for (const net::StoreNotice& notice : store_->take_notices()) on_notice(notice);
}

void RankMonitor::on_notice(const net::StoreNotice& notice) {
  switch (notice.kind) {
    case net::StoreNotice::Kind::kJoined:
      unreachable_.explained(notice.rank);
      survey_.joined(notice.rank, notice.pid);
      return carry_out(verdict_.joined(notice.rank));
    case net::StoreNotice::Kind::kLeft:
      return carry_out(verdict_.left(notice.rank));
    case net::StoreNotice::Kind::kFailed:
      return carry_out(verdict_.reported(notice.rank, notice.failure));
    case net::StoreNotice::Kind::kLeftEarly:
      return carry_out(verdict_.left_early(notice.rank, notice.failure));
    case net::StoreNotice::Kind::kWaits:
      return ask_where(hangs_.waits(notice.rank, notice.waits, Clock::now()), verdict_.sessions(), hangs_, survey_,
                       *store_);
    case net::StoreNotice::Kind::kState:
      return hangs_.answered(notice.rank, notice.state);
    case net::StoreNotice::Kind::kRefused:
      return output_.print(notice.text);
    case net::StoreNotice::Kind::kFollows:
    case net::StoreNotice::Kind::kStalled:
    case net::StoreNotice::Kind::kNoProgress:
      if (verdict_.ending()) return;
      if (notice.kind != net::StoreNotice::Kind::kNoProgress) {
        verdict_.misses(notice.rank);
        output_.keep_back(notice.rank);
      }
      return survey_.add(notice, Clock::now());
    case net::StoreNotice::Kind::kStopping:
      stop_ = notice.text;
      return;
    case net::StoreNotice::Kind::kDisconnected:
      // Ignored once the job ends: the rank may know of the end.
      if (verdict_.sessions().has(notice.rank) && !verdict_.ending()) disconnected(notice);
  }
}

bool RankMonitor::time_out(TimePoint now, const std::string& why) {
  if (verdict_.sessions().any() && hangs_.is_last_check()) show_stacks(now);
  if (hangs_.deadline()) return false;
  carry_out(verdict_.timed_out(why));
  return true;
}

void RankMonitor::show_stacks(TimePoint now) {
  std::vector<int> ranks;
  for (int rank = 0; rank < members_.size(); ++rank) {
    if (!verdict_.end_of(rank)) ranks.push_back(rank);
  }
  ask_where(hangs_.look_at(ranks, now), verdict_.sessions(), hangs_, survey_, *store_);
}

void RankMonitor::disconnected(const net::StoreNotice& notice) {
  const LostConnection lost{.rank = notice.rank,
                            .host = members_.host_name(notice.rank),
                            .remote = agents_[members_.host_of(notice.rank)].handle.remote,
                            .started = verdict_.pid_of(notice.rank),
                            .pid = notice.pid,
                            .how = notice.text};
  unreachable_.disconnected(notice.rank, lost_connection_report(lost), Clock::now());
  verdict_.disconnected(notice.rank, round_);
  survey_.awaits_exit(notice.rank, true);
}

void RankMonitor::signal_ranks(int signal, const std::vector<int>& ranks) {
  if (ranks.empty()) return;
  agents_.send_all(ToAgent::kSignal,
                   SignalRanks{.signal = signal, .whole_group = true, .ranks = members_.workers_of(ranks)});
}

void RankMonitor::carry_out(const JobActions& actions) {
  if (actions.publish) store_->publish(*actions.publish);
  if (actions.interrupt_ranks) {
    std::vector<int> starting;
    for (int rank = 0; rank < members_.size(); ++rank) {
      if (!verdict_.sessions().has(rank)) starting.push_back(rank);
    }
    output_.fold_interrupts(starting);
    agents_.send_all(ToAgent::kSignal, SignalRanks{.signal = SIGINT, .whole_group = true});
    // A stopped process handles the signal only when it is continued.
    agents_.send_all(ToAgent::kSignal, SignalRanks{.signal = SIGCONT, .whole_group = true});
  }
  signal_ranks(SIGINT, actions.interrupt_again);
  if (actions.stop) {
    Stop order = *actions.stop;
    order.term_now = members_.workers_of(order.term_now);
    agents_.send_all(ToAgent::kStop, order);
    kill_by_.all = earlier(kill_by_.all, Clock::now() + std::chrono::milliseconds(order.kill_after));
  }
  if (!actions.end_ranks.empty()) {
    // A server of distrun has nothing to save. A server of the user's program gets the time that every rank gets.
    if (config_.own_servers) kill_by_.servers = deadline_after(config_.grace);
    signal_ranks(config_.own_servers ? SIGTERM : SIGKILL, actions.end_ranks);
  }
  if (!actions.failure_known) return;
  if (!verdict_.rank_failed()) output_.print(link_report(*verdict_.failure()));
  output_.keep_back_all_but(verdict_.failure()->rank);
}

}  // namespace distrun::launcher
