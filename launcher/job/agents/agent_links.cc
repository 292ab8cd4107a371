#include "launcher/job/agents/agent_links.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "launcher/plan/hosts/text.h"
#include "launcher/plan/network/network.h"
#include "launcher/report/silence_report.h"

namespace distrun::launcher {
namespace {

constexpr std::size_t kMostPassedOn = std::size_t{256} << 10;  // limit for the output since the last read
constexpr double kLastWordsSeconds = 2;

}  // namespace

HostLoss loss_of(AgentLink& agent) {
  const bool explained = agent.gone() || !agent.silence.empty();
  const std::string text = explained ? agent.loss() : "host " + agent.host + " is lost";
  const bool agent_here = agent.gone() && agent.silence.empty() && !agent.handle.remote;
  return {.links = {&agent},
          .why = agent.silence,
          .cause = {.kind = CauseKind::kHostLost, .agent_here = agent_here, .text = text}};
}

AgentLinks::AgentLinks(const Assignment& hosts, const AgentSpawner& spawner, bool mpi, Print print,
                       Duration host_timeout)
    : mpi_(mpi), print_(std::move(print)), silence_(host_timeout) {
  for (std::size_t i = 0; i < hosts.hosts.size(); ++i) {
    const bool by_ssh = spawner.ssh(hosts.hosts[i], hosts.users[i]) != nullptr;
    links_.push_back(std::make_unique<AgentLink>(
        AgentLink{.host = hosts.hosts[i], .user = hosts.users[i], .index = i, .first_index = i, .by_ssh = by_ssh}));
  }
}

void AgentLinks::keep_only(const Assignment& chosen) {
  std::vector<std::unique_ptr<AgentLink>> all = std::exchange(links_, {});
  for (auto& link : all) {
    const std::size_t next = links_.size();
    if (next >= chosen.hosts.size() || chosen.hosts[next] != link->host || chosen.users[next] != link->user) continue;
    link->index = next;
    links_.push_back(std::move(link));
  }
}

void AgentLinks::flush_all() {
  for (auto& link : links_) link->handle.pipe.flush();
}

void AgentLinks::count_all_as_alive(TimePoint now) {
  for (auto& link : links_) link->count_as_alive(now);
}

void AgentLinks::close_all() {
  for (auto& link : links_) link->handle.pipe.close_out();
}

void AgentLinks::watch(Poller& poller, bool errors, const OnReadable& on_readable) {
  for (auto& one : links_) {
    AgentLink* const link = one.get();
    if (!link->up()) continue;
    if (link->handle.errors.valid() && errors) {
      poller.watch(link->handle.errors.get(), POLLIN, [this, link](short) { take_errors(*link); });
    }
    FramePipe& pipe = link->handle.pipe;
    if (pipe.closed()) continue;
    poller.watch(pipe.in(), POLLIN, [on_readable, link](short) { on_readable(*link); });
    if (pipe.wants_write()) poller.watch(pipe.out(), POLLOUT, [&pipe](short) { pipe.flush(); });
  }
}

std::optional<TimePoint> AgentLinks::deadline(std::optional<TimePoint> kill_by) const {
  std::optional<TimePoint> next = last_words_by_;
  for (const auto& link : links_) {
    if (!link->up() || link->over()) continue;
    if (!link->done() && link->handle.pipe.begun() != 0) next = earlier(next, link->begun.due());
    next = earlier(next, link->end_deadline.end(kill_by));
  }
  return earlier(next, silence_.deadline(signs()));
}

std::vector<SignOfLife*> AgentLinks::signs() const {
  std::vector<SignOfLife*> out;
  for (const auto& link : links_) {
    link->sign.expected = link->listens() && !link->handle.pipe.closed();
    out.push_back(&link->sign);
  }
  return out;
}

// Each name once: with --mpi a host has several agents.
std::vector<std::string> AgentLinks::names(const std::vector<std::size_t>& links) const {
  std::vector<std::string> out;
  for (const std::size_t i : links) {
    if (std::find(out.begin(), out.end(), links_[i]->host) == out.end()) out.push_back(links_[i]->host);
  }
  return out;
}

std::vector<std::string> AgentLinks::all_names() const {
  std::vector<std::size_t> all(links_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return names(all);
}

std::optional<HostLoss> AgentLinks::look(TimePoint now) {
  const HostSilence::Changes changes = silence_.look(now, signs());
  if (!changes.back.empty()) print_(back_report(names(changes.back), changes.silent_for));
  if (!changes.silent.empty()) {
    print_(silent_report(names(changes.silent), all_names().size(), HostSilence::kReportAfter, silence_.limit()));
  }
  if (changes.lost.empty()) return std::nullopt;
  return loss_of(changes.lost, silence_.limit());
}

std::optional<HostLoss> AgentLinks::ended(const AgentLink& link, TimePoint now) {
  if (!HostSilence::explains(link.sign)) return std::nullopt;
  const Duration silence = now - link.sign.received_at;
  return loss_of(HostSilence::as_silent(now, signs(), &link.sign), silence);
}

HostLoss AgentLinks::loss_of(const std::vector<std::size_t>& lost, Duration silence) const {
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const bool is_lost = std::find(lost.begin(), lost.end(), i) != lost.end();
    if (is_lost || links_[i]->listens()) others.push_back(i);
  }
  HostLoss out{.links = {}, .why = silence_text(silence), .cause = {}};
  for (const std::size_t i : lost) out.links.push_back(links_[i].get());
  const std::vector<std::string> hosts = names(lost);
  const OwnNetwork own =
      judge_own_network(hosts.size(), names(others).size(), has_network(net::scan_addresses(), own_address_));
  out.cause = own == OwnNetwork::kWorks
                  ? Cause{.kind = CauseKind::kHostLost,
                          .silent = std::chrono::duration<double>(silence).count(),
                          .text = lost_report(hosts, all_names().size(), out.why)}
                  : Cause{.kind = CauseKind::kOwnNetwork, .text = own_network_report(own, silence)};
  return out;
}

std::vector<AgentLink*> AgentLinks::unfinished(TimePoint now) {
  std::vector<AgentLink*> out;
  for (auto& link : links_) {
    if (!link->up() || link->done() || link->handle.pipe.closed()) continue;
    if (!link->begun.overdue(link->handle.pipe.begun(), now, silence_.limit())) continue;
    link->silence = "a message of its agent has begun and was not whole after " +
                    seconds_text(std::chrono::duration<double>(silence_.limit()).count()) + " s";
    out.push_back(link.get());
  }
  return out;
}

void AgentLinks::end_carrier(const AgentLink& link) {
  for (auto& other : links_) {
    if (link.starter != other->first_index || !other->up() || other->done()) continue;
    other->send(ToAgent::kHostGone, encode(HostGone{.index = static_cast<int>(link.first_index)}));
  }
}

std::vector<AgentLink*> AgentLinks::overdue(TimePoint now, std::optional<TimePoint> kill_by) const {
  std::vector<AgentLink*> out;
  for (const auto& link : links_) {
    const auto end = link->end_deadline.end(kill_by);
    if (link->up() && !link->over() && end && now >= *end) out.push_back(link.get());
  }
  return out;
}

AgentLink* AgentLinks::reaped(const Reaped& child) {
  for (auto& link : links_) {
    if (!link->up() || link->gone() || link->handle.process.pid() != child.pid) continue;
    link->wait_status = child.status;
    link->handle.process.reaped();
    return link.get();
  }
  return nullptr;
}

bool AgentLinks::all_over() const {
  return std::all_of(links_.begin(), links_.end(), [](const auto& link) { return !link->up() || link->over(); });
}

bool AgentLinks::any_lost() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& link) { return link->lost(); });
}

bool AgentLinks::any_given_up() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& link) { return !link->silence.empty(); });
}

// Open MPI's ranks do not report which MPI call failed; mpirun does. So with --mpi its output is shown at once.
void AgentLinks::take_errors(AgentLink& link) {
  if (!mpi_) return read_last_words(link.handle.errors, link.printed);
  read_last_words(link.handle.errors, link.printed, kMostPassedOn);
  print_mpi_errors(link);
}

// Shows whole lines. A line without its end waits for the rest.
void AgentLinks::print_mpi_errors(AgentLink& link) {
  const std::size_t end = link.handle.errors.valid() ? link.printed.rfind('\n') + 1 : link.printed.size();
  if (end == 0) return;
  print_("MPI's launcher says:\n" + printable_lines(link.printed.substr(0, end)));
  link.printed.erase(0, end);
}

bool AgentLinks::mpi_has_printed(TimePoint now) {
  const auto mpi =
      std::find_if(links_.begin(), links_.end(), [](const auto& link) { return link->handle.errors.valid(); });
  if (!mpi_ || mpi == links_.end()) {
    last_words_by_.reset();
    return true;
  }
  // MPI's launcher does not end while it waits for a host that was given up.
  if (!last_words_by_) last_words_by_ = any_given_up() ? now : now + duration_of(kLastWordsSeconds);
  if (now >= *last_words_by_) {
    read_last_words((*mpi)->handle.errors, (*mpi)->printed, kMostPassedOn);
    (*mpi)->handle.errors.reset();
    print_mpi_errors(**mpi);  // the rest, even if its last line has no end
  }
  return false;
}

}  // namespace distrun::launcher
