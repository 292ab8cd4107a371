#include "runtime/engine/monitoring/watchdog.h"

#include <algorithm>
#include <utility>

#include "runtime/engine/readiness/mismatch.h"
#include "runtime/engine/readiness/stall.h"

namespace distrun::engine {
namespace {

// How often a member past the limit asks the leader before it ends the job itself. After the first question the leader
// asks all ranks, and it gets one more second to end the job.
constexpr int kLeaderRounds = 2;

}  // namespace

Watchdog::Watchdog(WatchdogOptions options) : options_(std::move(options)) {
  const int size = static_cast<int>(options_.hosts.size());
  if (options_.rank != 0) peers_ = {0};
  for (int rank = 1; options_.rank == 0 && rank < size; ++rank) peers_.push_back(rank);
}

void Watchdog::answered(int rank) {
  std::erase(silent_, rank);
  silent_since_.erase(rank);
}

void Watchdog::asked(TimePoint now, Asked why) {
  wanted_ = wanted_ || now - last_ >= kAnswerTime;
  asked_overdue_ = asked_overdue_ || why == Asked::kOverdue;
  asked_waiting_ = asked_waiting_ || why == Asked::kWaitsOnly;
}

void Watchdog::end(const Status& why, bool deadlock) {
  ending_ = why;
  ends_deadlock_ = deadlock;
  wanted_ = !asked_at_;
}

void Watchdog::left(int rank) {
  if (rank == 0) return;  // rank 0 keeps the log, and the others need its end
  std::erase(peers_, rank);
  answered(rank);
}

void Watchdog::suspended(const Suspension& gap) {
  // Without limits there are no timers, and a loop with nothing to do does not read the clock.
  if (options_.warning == Duration::zero() && options_.shutdown == Duration::zero()) return;
  gaps_.push_back(gap);
  if (asked_at_) asked_at_ = gap.moved(*asked_at_);
  last_ = gap.moved(last_);
  warned_ = gap.moved(warned_);
  oldest_at_ = gap.moved(oldest_at_);
  for (auto& [rank, since] : silent_since_) since = gap.moved(since);
}

// The work as if it had begun later, by the time that this rank was suspended since then.
Watchdog::Work Watchdog::counted(Work work) const {
  for (const Suspension& gap : gaps_) {
    if (work) work->since = gap.moved(work->since);
  }
  return work;
}

bool Watchdog::over(const std::optional<OldestWork>& work, TimePoint now) const {
  return work && options_.shutdown > Duration::zero() && now - work->since >= options_.shutdown;
}

std::optional<TimePoint> Watchdog::next_question(const OldestWork& work) const {
  std::optional<TimePoint> next;
  if (options_.warning > Duration::zero()) next = std::max(last_, work.since) + options_.warning;
  const TimePoint limit = work.since + options_.shutdown;
  if (options_.shutdown > Duration::zero() && last_ < limit && (!next || limit < *next)) next = limit;
  // The work is past the limit, and the job has not ended: a leader that answers decides. It is asked again at
  // intervals.
  if (!next && options_.shutdown > Duration::zero()) next = last_ + options_.shutdown;
  return next;
}

std::optional<TimePoint> Watchdog::next(const std::optional<OldestWork>& work) const {
  if (asked_at_) return *asked_at_ + kAnswerTime;
  if (wanted_) return TimePoint::min();
  return work ? next_question(*counted(work)) : std::nullopt;
}

Watchdog::Actions Watchdog::check(const Work& in_flight, TimePoint now) {
  if (!in_flight) gaps_.clear();
  const Work work = counted(in_flight);
  if (asked_at_) return now >= *asked_at_ + kAnswerTime ? conclude(work, now) : Actions{};
  const auto question = work ? next_question(*work) : std::nullopt;
  return wanted_ || (question && *question <= now) ? ask(work, now) : Actions{};
}

Watchdog::Actions Watchdog::ask(const std::optional<OldestWork>& work, TimePoint now) {
  wanted_ = leader_warns_ = false;
  last_ = now;
  asked_at_ = now;
  silent_ = peers_;
  for (const int rank : peers_) silent_since_.try_emplace(rank, now);
  return {.ping = peers_, .overdue = over(work, now), .waits_only = work && !work->running};
}

Watchdog::Actions Watchdog::conclude(const std::optional<OldestWork>& work, TimePoint now) {
  asked_at_.reset();
  if (work && std::exchange(oldest_, work->what) != work->what) oldest_at_ = last_;
  Actions actions;
  const TimePoint warned = warned_;
  if (due(work, now)) {
    actions.warnings.push_back(warning_text(work, now));
    if (warned < (work && work->running ? work->since : now - silence(now))) {
      actions.wait = {.what = work ? work->what : "", .waiting = {options_.rank}, .missing = silent_};
    }
  }
  actions.abort = judge(work, now);
  actions.deadlock = !actions.abort.ok() && silent_.empty() && ends_deadlock_;
  asked_overdue_ = asked_waiting_ = false;
  return actions;
}

// Decides whether to warn now. A hang over a weekend on thousands of ranks must not fill a disk. So a rank repeats its
// warning at the coordinator's intervals, at the nearest question. A member does not add to the warnings of its leader.
// A silent rank that no warning has named yet is always reported.
bool Watchdog::due(const std::optional<OldestWork>& work, TimePoint now) {
  const bool runs = work && work->running;
  const bool leader_warns = leader_warns_ && work && work->with_leader;
  // Another rank's question may arrive while an operation here is young.
  const bool lasts = runs && now - work->since >= options_.warning;
  if (options_.warning == Duration::zero() || (silent_.empty() && (!lasts || leader_warns))) return false;
  const TimePoint since = runs ? work->since : now - silence(now);
  const bool first = warned_ < since;
  if (first) named_.clear();
  const auto is_named = [this](int rank) { return std::find(named_.begin(), named_.end(), rank) != named_.end(); };
  const bool news = !std::all_of(silent_.begin(), silent_.end(), is_named);
  // If several operations hang, the oldest may now be one that no warning has named. It is reported if it stays the
  // oldest.
  const TimePoint known = std::max(oldest_at_, warned_);
  const bool other = runs && work->what != warned_of_ && last_ - known >= options_.warning / 2;
  const bool late = last_ + options_.warning / 2 >= next_warning(since, warned_, options_.warning);
  if (!first && !(runs && news) && !other && !late) return false;
  named_ = silent_;
  warned_ = last_;
  warned_of_ = runs ? work->what : "";
  return true;
}

// True from half the time before the first warning on, because the member that asks may have started a little earlier.
bool Watchdog::warns_itself(const Work& in_flight, TimePoint now) const {
  const Work work = counted(in_flight);
  return work && work->running && now - work->since >= options_.warning / 2;
}

std::string Watchdog::warning_text(const std::optional<OldestWork>& work, TimePoint now) const {
  const std::string silence = silence_text(now);
  if (!work || !work->running) return silence + (work ? " while " + work->what + " waits" : "");
  const std::string no_answer = options_.rank == 0 ? "all other ranks answer" : "rank 0 answers";
  return work->what + " has been running for " + seconds_text(now - work->since) +
         (work->on_gpu ? ", or waits for earlier work of this GPU; " : "; ") + (silence.empty() ? no_answer : silence);
}

// The time for which all silent ranks have been silent.
Duration Watchdog::silence(TimePoint now) const {
  Duration silence = Duration::max();
  for (const int rank : silent_) silence = std::min(silence, now - silent_since_.at(rank));
  return silence;
}

std::string Watchdog::silence_text(TimePoint now) const {
  if (silent_.empty()) return "";
  return describe_ranks(silent_, options_.hosts) + " did not answer for " + seconds_text(silence(now)) +
         " (stopped, overloaded or unreachable)";
}

// The ranks that have not answered for the whole limit.
std::vector<int> Watchdog::given_up(TimePoint now) const {
  std::vector<int> ranks = silent_;
  std::erase_if(ranks, [&](int rank) { return now - silent_since_.at(rank) < options_.shutdown; });
  return ranks;
}

// Returns the error that ends the job, if it must end now. The leader ends work that the ranks have not agreed on, and
// work that only runs too long. A member sees only the leader, and could not name the rank that is late. It ends the
// job itself if the leader is silent, or lets it wait too long.
Status Watchdog::judge(const std::optional<OldestWork>& work, TimePoint now) {
  const bool late = over(work, now);
  if (!late) answered_overdue_ = 0;
  std::string what = late ? work->what + " has not completed for " + seconds_text(now - work->since) +
                                ", longer than --stall-shutdown-time"
                          : "another rank has waited longer than --stall-shutdown-time";
  if (!ending_.ok()) {
    if (silent_.empty()) return ending_;
    what = ending_.message();
  } else if (silent_.empty()) {
    if (!late || !work->running) return {};
    wanted_ = options_.rank != 0 && ++answered_overdue_ <= kLeaderRounds;
    if (wanted_) return {};
  } else if (!(late && (work->running || options_.rank != 0)) && !asked_overdue_) {
    // This work only waits. The coordinator ends it, or it may wait as long as other ranks are busy (a join, a
    // shutdown). A rank that answers late once may be busy too. So the leader ends the job only for a rank that was
    // silent for the whole limit. A member does not wait so long for a silent leader: each member ends the job for
    // itself, and all must do so at about the same time.
    if (!asked_waiting_ && !late) return {};
    silent_ = given_up(now);
    if (silent_.empty()) return {};
  }
  ErrorInfo error{.code = Errc::kTimeout, .ranks = silent_, .cause = "stalled", .usable = false};
  if (late) error.tensor = work->tensor;
  if (!ending_.ok()) error.tensor = ending_.info().tensor;
  if (!silent_.empty()) error.host = options_.hosts.at(static_cast<std::size_t>(silent_.front()));
  error.message = silent_.empty() ? what : silence_text(now) + ": " + what;
  return Status(std::move(error));
}

}  // namespace distrun::engine
