#include "runtime/engine/liveness.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/engine/monitoring/timeline.h"
#include "runtime/engine/protocol/ping_purpose.h"

namespace distrun::engine {
namespace {

// While timers run, the loop wakes every kHeartbeat. If it has not read the clock for kSuspended, the process was
// stopped.
constexpr Duration kHeartbeat = std::chrono::seconds(1);
constexpr Duration kSuspended = std::chrono::seconds(3);

std::string sign_of(std::string_view connection, const std::string& how) {
  return "its " + std::string(connection) + " connection ended" + (how.empty() ? "" : ": " + how);
}

}  // namespace

std::optional<Suspension> Liveness::see_clock(TimePoint now) {
  const Suspension gap{.from = std::exchange(seen_, now), .until = now};
  if (gap.until - gap.from < kSuspended) return std::nullopt;
  watchdog_.suspended(gap);
  deadlock_.forget();
  return gap;
}

std::optional<TimePoint> Liveness::next_timer(const Work& work) const {
  const auto verdict = detector_.deadline();
  std::optional<TimePoint> next;
  for (const auto& timer : {verdict, watchdog_.next(work), long_wait_.next(work), deadlock_.next(waits_since(work))}) {
    if (timer && (!next || *timer < *next)) next = timer;
  }
  return next;
}

TimePoint Liveness::next_look() const { return seen_ + kHeartbeat; }

Liveness::Check Liveness::check(const Work& work, TimePoint now) {
  Watchdog::Actions actions = watchdog_.check(work, now);
  const std::uint64_t purpose = !actions.overdue ? kPingAlive : actions.waits_only ? kPingWaitsOnly : kPingOverdue;
  Check found{.pings = {},
              .warnings = std::move(actions.warnings),
              .wait = std::move(actions.wait),
              .ask_waits = deadlock_.ask(waits_since(work), now),
              .long_wait = long_wait_.due(work, now),
              .abort = std::move(actions.abort),
              .deadlock = actions.deadlock};
  const std::string what = work ? work->what : "";
  found.wait_over = warned_work_ && *warned_work_ != what;
  if (found.wait_over) warned_work_.reset();
  if (found.wait) warned_work_ = what;
  for (const int rank : actions.ping) {
    found.pings.emplace_back(rank, message::Ping{.number = purpose, .sent_ns = nanoseconds(now)});
  }
  return found;
}

std::optional<TimePoint> Liveness::waits_since(const Work& work) const {
  return work && !work->running && !any_left_ ? std::optional(work->since) : std::nullopt;
}

message::Ping Liveness::clock_question(TimePoint now) { return {.number = kPingClock, .sent_ns = nanoseconds(now)}; }

message::Pong Liveness::answer(const message::Ping& ping, const Work& work, TimePoint now) {
  message::Pong pong{.number = ping.number, .sent_ns = ping.sent_ns, .here_ns = nanoseconds(now)};
  if (rank_ != 0 || ping.number == kPingClock) return pong;
  if (watchdog_.warns_itself(work, now)) pong.number = kPongWarns;
  using Asked = Watchdog::Asked;
  watchdog_.asked(now, ping.number == kPingOverdue     ? Asked::kOverdue
                       : ping.number == kPingWaitsOnly ? Asked::kWaitsOnly
                                                       : Asked::kAlive);
  return pong;
}

bool Liveness::answered(int from, const message::Pong& pong) {
  if (rank_ != 0) detector_.drop_suspicion(from);
  if (pong.number == kPingClock) return true;
  if (pong.number == kPongWarns) watchdog_.leader_warns();
  watchdog_.answered(from);
  return false;
}

void Liveness::drained(int rank) {
  watchdog_.left(rank);
  if (rank != 0) detector_.drop_suspicion(rank);
}

bool Liveness::connections_ended(const std::vector<LostPeer>& peers, const std::optional<EndedLink>& control,
                                 TimePoint now) {
  if (control) detector_.suspect(control->peer, sign_of("control", control->how), control->end, now);
  bool ask_leader = false;
  std::set<int> missed;
  std::set<int> gone;  // have left in good order and are not needed in these sets; another set may need them
  for (const LostPeer& peer : peers) {
    // A peer whose control connection ended is still needed: for instance the leader, before the log has ended.
    if (detector_.has_left(peer.rank) && !peer.in_use && !(control && control->peer == peer.rank)) {
      gone.insert(peer.rank);
    } else {
      missed.insert(peer.rank);
      ask_leader = suspect(peer, now) || ask_leader;
    }
  }
  for (const int rank : gone) {
    if (!missed.contains(rank)) detector_.drop_suspicion(rank);
  }
  return ask_leader;
}

// When the leader is silent, each member ends by itself. So this peer may have ended because of the leader, and is then
// not the cause.
bool Liveness::suspect(const LostPeer& peer, TimePoint now) {
  const bool ask_leader = rank_ != 0 && peer.rank != 0 && !detector_.suspects(peer.rank);
  if (ask_leader) detector_.suspect_silent_leader(peer.rank, now);
  detector_.suspect(peer.rank, sign_of(peer.backend, peer.how), peer.end, now);
  return ask_leader;
}

// Cheap in the normal case: it does not read the clock.
std::optional<ErrorInfo> Liveness::verdict() const {
  return detector_.deadline() ? detector_.verdict(Clock::now()) : std::nullopt;
}

}  // namespace distrun::engine
