#include "runtime/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <list>
#include <thread>
#include <utility>

#include "runtime/base/annotations.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/engine/agreement/call_board.h"
#include "runtime/engine/loop.h"
#include "runtime/engine/readiness/mismatch.h"

namespace distrun::engine {
namespace {

// How long the leader may take to confirm that this rank has left. A live leader needs milliseconds.
constexpr double kConfirmSeconds = 5;
// How long a disk may take to write the rest of the timeline. After this time it is stuck.
constexpr double kTimelineSeconds = 5;
constexpr std::size_t kMaxTimelinePath = 4000;
constexpr int kSpinsForToken = 4000;  // about as long as the engine's thread needs to wake up and give the token back

EngineOptions completed(EngineOptions options) {
  options.hosts.resize(static_cast<std::size_t>(options.world.size), "unknown host");
  return options;
}

class EngineImpl final : public Engine {
 public:
  explicit EngineImpl(EngineOptions options)
      : options_(completed(std::move(options))),
        table_(options_.world.rank),
        loop_(options_, {.table = table_, .requests = requests_, .token = token_, .stop = stop_, .probe = probe_}) {}

  ~EngineImpl() override {
    stopping_.store(true, std::memory_order_seq_cst);
    token_.stop();
    loop_.wake();
    if (thread_.joinable()) thread_.join();
    loop_.close({Errc::kAborted, "the session was closed without shutdown, so operations in flight did not complete"});
    finish_timeline();
  }

  // Starts the thread first. If that fails, this rank can report it while the others still wait for its part in process
  // set 0.
  Status open() {
    const WaitingCaller keeps_off(token_, TimePoint::max());
    if (options_.background_thread) {
      auto thread = named_thread("distrun-engine", [this] { run(); });
      if (!thread.ok()) return thread.status();
      thread_ = *std::move(thread);
    }
    DISTRUN_RETURN_IF_ERROR(loop_.open());
    opened_ = true;
    return {};
  }

  Result<std::vector<HandlePtr>> submit(std::span<const Submission> submissions) override {
    auto handles = table_.submit(submissions, Clock::now());
    if (handles.ok()) loop_.wake();
    return handles;
  }

  Status wait_all(std::span<const HandlePtr> handles, TimePoint deadline) override {
    std::size_t first = 0;  // all handles before this one are done
    return wait_until(
        [&] {
          while (first < handles.size() && handles[first]->done()) ++first;
          return first == handles.size();
        },
        deadline);
  }

  Status wait_any(std::span<const HandlePtr> handles, TimePoint deadline) override {
    if (handles.empty()) return {Errc::kInvalidArgument, "wait_any needs at least one handle"};
    return wait_until(
        [&] { return std::any_of(handles.begin(), handles.end(), [](const HandlePtr& one) { return one->done(); }); },
        deadline);
  }

  Status wait_for(const std::function<bool()>& satisfied, TimePoint deadline) override {
    return wait_until(satisfied, deadline);
  }
  void check_again() override {
    token_.news().change_and_wake();
    loop_.wake();
  }

  Status shutdown(TimePoint deadline) override;
  void abort(const Status& why) override {
    requests_.put({.kind = Request::Kind::kAbort, .why = why});
    loop_.wake();
  }

  void request_stop(const std::string& cause) override {
    requests_.put({.kind = Request::Kind::kStop, .cause = cause});
    loop_.wake();
  }
  Result<bool> should_stop(bool request) override;

  Result<int> add_process_set(const std::vector<int>& ranks, bool members_only, TimePoint deadline) override;
  Result<int> add_process_set_apart(const std::vector<int>& ranks, TimePoint deadline) override;
  Status drop_process_set(int id) override;
  Status remove_process_set(int id, TimePoint deadline) override;
  [[nodiscard]] Result<std::vector<int>> process_set_ranks(int id) const override { return table_.set_members(id); }

  Status start_timeline(const std::string& path) override;
  Status stop_timeline() override;
  void describe_by(ProgramProbe::Describe describe) override { probe_.describe_by(std::move(describe)); }

 private:
  void run();
  Status wait_until(const std::function<bool()>& satisfied, TimePoint deadline);
  Status wait_with_token(const std::function<bool()>& satisfied, TimePoint deadline);
  Status go_before_others();
  Status wait_for_stop_point();
  [[nodiscard]] Status check_members(const Call& add) const;
  std::shared_ptr<CallTicket> ask(Request request);
  Status call(Request request, TimePoint deadline, int* set);
  Status wait_for_outcome(const CallTicket& ticket, const std::string& what, TimePoint deadline);
  Result<TimelineWriterPtr> open_timeline(const std::string& path);
  void finish_timeline();
  [[nodiscard]] Status outcome_or(const std::string& shut_down) const;
  Result<int> add_set(Call add, TimePoint deadline);

  // An unordered call whose outcome no caller has received yet.
  struct Unanswered {
    std::vector<int> ranks;
    std::shared_ptr<CallTicket> ticket{};
    bool waited_for = true;  // some thread waits for it; false: that thread's time limit has passed
  };
  std::list<Unanswered>::iterator oldest_or_new(const Call& add);

  const EngineOptions options_;
  TensorTable table_;
  Requests requests_;
  ProgressToken token_;
  StopPoint stop_;
  EngineLoop loop_;
  ProgramProbe probe_;  // declared after loop_, because its threads use the loop
  std::atomic<bool> left_{false};
  std::atomic<bool> stopping_{false};
  bool opened_ = false;  // the engine's thread reads this with the token, which it cannot have before open() ends
  Mutex timeline_mutex_;
  // on the leader: the file that is still to be finished
  TimelineWriterPtr timeline_ DISTRUN_GUARDED_BY(timeline_mutex_);
  Mutex unanswered_mutex_;
  std::list<Unanswered> unanswered_ DISTRUN_GUARDED_BY(unanswered_mutex_);  // in the order of the calls
  std::jthread thread_;
};

// Runs on the engine's own thread.
void EngineImpl::run() {
  const auto stopping = [this] { return stopping_.load(std::memory_order_seq_cst); };
  while (token_.take_when_quiet()) {
    const HeldToken held(token_);
    if (!opened_) return;  // open() failed
    try {
      [[maybe_unused]] const Status driven = loop_.drive(ProgressToken::Holder::kEngine, stopping, TimePoint::max());
    } catch (const std::exception&) {
      // drive() has already ended the job, and a waiting caller gets the exception. This thread tries again one tick
      // later.
    }
  }
}

Status EngineImpl::wait_until(const std::function<bool()>& satisfied, TimePoint deadline) {
  if (satisfied()) return {};
  const WaitingCaller waiting(token_, deadline);
  return wait_with_token(satisfied, deadline);
}

Status EngineImpl::wait_with_token(const std::function<bool()>& satisfied, TimePoint deadline) {
  for (;;) {
    const std::uint32_t seen = token_.news().value();
    if (satisfied()) return {};
    if (token_.try_take(ProgressToken::Holder::kCaller)) {
      const HeldToken held(token_);
      return loop_.drive(ProgressToken::Holder::kCaller, satisfied, deadline);
    }
    loop_.wake();  // the engine's thread gives the token back when it sees a waiting caller
    for (int i = 0; options_.spin && i < kSpinsForToken; ++i) {
      if (token_.news().value() != seen) break;
    }
    if (Status status = token_.news().sleep_while(seen, deadline); !status.ok()) {
      return satisfied() ? Status() : status;
    }
  }
}

Status EngineImpl::shutdown(TimePoint deadline) {
  if (!left_.exchange(true)) {
    table_.close({Errc::kShutDown, "this rank has called shutdown, so it cannot submit tensors any more"});
    requests_.put({.kind = Request::Kind::kLeave});
    loop_.wake();
  }
  Status waited = wait_until([this] { return loop_.over(); }, deadline);
  if (waited.code() == Errc::kTimeout) waited = go_before_others();
  if (!waited.ok()) return waited;
  finish_timeline();
  return loop_.outcome();
}

Status EngineImpl::go_before_others() {
  auto ticket = std::make_shared<CallTicket>();
  requests_.put({.kind = Request::Kind::kGo, .ticket = ticket});
  loop_.wake();
  const Status waited = wait_until([&] { return ticket->done() || loop_.over(); }, deadline_after(kConfirmSeconds));
  if (waited.code() == Errc::kTimeout) {
    return {Errc::kTimeout,
            "shutdown: rank 0 (" + options_.hosts.front() +
                ") has not confirmed that this rank leaves. It may be stopped, overloaded or unreachable"};
  }
  if (!waited.ok()) return waited;
  if (ticket->done()) DISTRUN_RETURN_IF_ERROR(ticket->status());
  return wait_until([this] { return loop_.over(); }, TimePoint::max());
}

// Call this once the loop is over.
Status EngineImpl::outcome_or(const std::string& shut_down) const {
  return loop_.outcome().ok() ? Status(Errc::kShutDown, shut_down) : loop_.outcome();
}

std::shared_ptr<CallTicket> EngineImpl::ask(Request request) {
  auto ticket = std::make_shared<CallTicket>();
  request.ticket = ticket;
  requests_.put(std::move(request));
  loop_.wake();
  return ticket;
}

Status EngineImpl::call(Request request, TimePoint deadline, int* set) {
  if (const Status closed = table_.closed(); !closed.ok()) return closed;
  const std::string what = describe(request.call);
  const std::shared_ptr<CallTicket> ticket = ask(std::move(request));
  DISTRUN_RETURN_IF_ERROR(wait_for_outcome(*ticket, what, deadline));
  if (set != nullptr) *set = ticket->set();
  return ticket->status();
}

// kOk: the ticket is done.
Status EngineImpl::wait_for_outcome(const CallTicket& ticket, const std::string& what, TimePoint deadline) {
  Status waited;
  do {
    // A signal cannot cancel the call, because the other ranks already count on it.
    waited = wait_until([&] { return ticket.done() || loop_.over(); }, deadline);
  } while (waited.code() == Errc::kInterrupted);
  if (waited.code() == Errc::kTimeout) {
    return {Errc::kTimeout, what + ": not all ranks that take part made this call in time. Make it on each of them"};
  }
  if (!waited.ok()) return waited;
  // Another thread shut down during the wait, so the log ended without this call.
  return ticket.done() ? Status() : outcome_or(what + ": this rank has called shutdown. Make the call before");
}

// Checks the call on this rank, because no other rank would see a wrong one.
Status EngineImpl::check_members(const Call& add) const {
  const auto refuse = [&](const std::string& why) {
    return Status(Errc::kInvalidArgument,
                  describe(add) + " is not valid on rank " + std::to_string(options_.world.rank) + ": " + why);
  };
  const bool once = std::adjacent_find(add.ranks.begin(), add.ranks.end()) == add.ranks.end();
  if (add.ranks.empty() || !once || add.ranks.front() < 0 || add.ranks.back() >= options_.world.size) {
    return refuse("name each rank once, from 0 to " + std::to_string(options_.world.size - 1));
  }
  if (std::binary_search(add.ranks.begin(), add.ranks.end(), options_.world.rank)) return {};
  return refuse("it is not one of them, and only the members may make this call");
}

Status EngineImpl::wait_for_stop_point() {
  DISTRUN_RETURN_IF_ERROR(wait_until([this] { return stop_.known() || loop_.over(); }, TimePoint::max()));
  return stop_.known() ? Status() : outcome_or("this rank has called shutdown, so it cannot agree where to stop");
}

Result<bool> EngineImpl::should_stop(bool request) {
  if (request && !stop_.known()) {
    request_stop("the program asked for it");
    DISTRUN_RETURN_IF_ERROR(wait_for_stop_point());
  }
  const StopPoint::Call call = stop_.count();
  if (!call.held) return false;
  if (const Status known = wait_for_stop_point(); !known.ok()) {
    stop_.take_back();
    return known;
  }
  return stop_.reached(call.number);
}

Result<int> EngineImpl::add_process_set(const std::vector<int>& ranks, bool members_only, TimePoint deadline) {
  return add_set({.kind = Call::Kind::kAddSet, .ranks = ranks, .members_only = members_only}, deadline);
}

Result<int> EngineImpl::add_process_set_apart(const std::vector<int>& ranks, TimePoint deadline) {
  Call add{.kind = Call::Kind::kAddSet, .ranks = ranks, .members_only = true, .unordered = true};
  std::sort(add.ranks.begin(), add.ranks.end());
  DISTRUN_RETURN_IF_ERROR(check_members(add));
  DISTRUN_RETURN_IF_ERROR(table_.closed());
  const std::string what = describe(add);
  const auto asked = oldest_or_new(add);
  const std::shared_ptr<CallTicket> ticket = asked->ticket;
  const Status waited = wait_for_outcome(*ticket, what, deadline);
  const MutexLock lock(unanswered_mutex_);
  if (!ticket->done()) {
    asked->waited_for = false;
    return waited;
  }
  unanswered_.erase(asked);
  if (!ticket->status().ok()) return ticket->status();
  return ticket->set();
}

// A call stays valid on the other ranks, even if this rank stopped waiting for it. A second call for the same ranks
// would be one too many and would wait for ever, so this returns the pending call.
std::list<EngineImpl::Unanswered>::iterator EngineImpl::oldest_or_new(const Call& add) {
  const MutexLock lock(unanswered_mutex_);
  auto asked = std::find_if(unanswered_.begin(), unanswered_.end(),
                            [&](const Unanswered& one) { return !one.waited_for && one.ranks == add.ranks; });
  if (asked == unanswered_.end()) {
    asked = unanswered_.insert(asked, {.ranks = add.ranks});
    asked->ticket = ask({.call = add});
  }
  asked->waited_for = true;
  return asked;
}

Result<int> EngineImpl::add_set(Call add, TimePoint deadline) {
  std::sort(add.ranks.begin(), add.ranks.end());
  if (add.members_only) DISTRUN_RETURN_IF_ERROR(check_members(add));
  int set = -1;
  const Status status = call({.call = std::move(add)}, deadline, &set);
  if (!status.ok()) return status;
  return set;
}

Status EngineImpl::remove_process_set(int id, TimePoint deadline) {
  DISTRUN_RETURN_IF_ERROR(table_.close_set(id));
  return call({.call = {.kind = Call::Kind::kRemoveSet, .set = id}}, deadline, nullptr);
}

Status EngineImpl::drop_process_set(int id) {
  DISTRUN_RETURN_IF_ERROR(table_.closed());
  DISTRUN_RETURN_IF_ERROR(table_.close_set(id));
  ask({.call = {.kind = Call::Kind::kRemoveSet, .set = id, .unordered = true}});
  return {};
}

// Opens and finishes files on a caller's thread. The caller waits for the disk; the engine does not.
Result<TimelineWriterPtr> EngineImpl::open_timeline(const std::string& path) {
  bool replaced = false;
  {
    const MutexLock lock(timeline_mutex_);
    replaced = timeline_ != nullptr && timeline_->path() == path;
  }
  if (replaced) finish_timeline();
  auto opened = TimelineWriter::create(path, options_.hosts, options_.settings.timeline_max_size);
  if (!opened.ok()) return opened.status().with_context("rank 0 on " + options_.hosts.front());
  return opened;
}

void EngineImpl::finish_timeline() {
  TimelineWriterPtr timeline;
  {
    const MutexLock lock(timeline_mutex_);
    timeline = std::exchange(timeline_, nullptr);
  }
  if (!timeline) return;
  const Status finished = timeline->finish(deadline_after(kTimelineSeconds));
  if (!finished.ok() && options_.log != nullptr) options_.log->warning(finished.message() + ". The timeline ends here");
}

Status EngineImpl::start_timeline(const std::string& path) {
  if (path.empty()) return {Errc::kInvalidArgument, "the timeline needs a path"};
  if (path.size() > kMaxTimelinePath) {
    return {Errc::kInvalidArgument, "the path of the timeline has " + std::to_string(path.size()) +
                                        " bytes, and at most " + std::to_string(kMaxTimelinePath) +
                                        " are possible. Use a shorter one"};
  }
  DISTRUN_RETURN_IF_ERROR(table_.closed());  // before the file is truncated
  Request request{.call = {.kind = Call::Kind::kStartTimeline, .path = path}};
  if (options_.world.rank == 0) request.timeline = open_timeline(path);
  const TimelineWriterPtr opened = request.timeline.ok() ? *request.timeline : nullptr;
  DISTRUN_RETURN_IF_ERROR(call(std::move(request), TimePoint::max(), nullptr));
  finish_timeline();  // the previous timeline
  const MutexLock lock(timeline_mutex_);
  timeline_ = opened;
  return {};
}

Status EngineImpl::stop_timeline() {
  const Status stopped = call({.call = {.kind = Call::Kind::kStopTimeline}}, TimePoint::max(), nullptr);
  if (stopped.ok()) finish_timeline();
  return stopped;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(EngineOptions options) {
  DISTRUN_CHECK(options.wait_set != nullptr && options.backends != nullptr,
                "the session gives a wait set and backends");
  DISTRUN_CHECK(options.world.size == 1 || options.control_plane != nullptr, "several ranks need a control plane");
  auto engine = std::make_unique<EngineImpl>(std::move(options));
  DISTRUN_RETURN_IF_ERROR(engine->open());
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace distrun::engine
