#include "launcher/job/start/dial_in.h"

#include <signal.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "launcher/agent/dial.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/report/failure_report.h"
#include "launcher/spawn/poller.h"
#include "launcher/spawn/signals.h"

namespace distrun::launcher {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The digits at `at`, without leading zeros. Moves `at` past them.
std::string_view number_at(const std::string& text, std::size_t& at) {
  std::size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  std::size_t begin = at;
  while (begin + 1 < end && text[begin] == '0') ++begin;
  at = end;
  return std::string_view(text).substr(begin, end - begin);
}

std::string all_have_come(std::size_t agents) {
  return agents == 1 ? "the agent of the job has come" : "all " + counted(agents, "agent") + " of the job have come";
}

void report_turned_away(const Log& log, const net::Hello& peer, const std::string& why) {
  log.warning("turned away " + printable(peer.purpose) + ": " + why);
}

// The listener stays open: an agent that is one too many must get an answer.
class DialedSpawner final : public AgentSpawner {
 public:
  DialedSpawner(std::map<std::string, std::unique_ptr<net::SecureSocket>> agents,
                std::unique_ptr<net::SecureListener> listener, std::unique_ptr<const Log> log)
      : agents_(std::move(agents)),
        all_(all_have_come(agents_.size())),
        log_(std::move(log)),
        listener_(std::move(listener)) {}

  Result<AgentHandle> start(const std::string& host, const std::string&) override {
    const auto found = agents_.find(host);
    if (found == agents_.end() || !found->second) return Status(Errc::kInternal, "its agent has not connected");
    return AgentHandle{.process = {}, .pipe = FramePipe(std::move(found->second)), .errors = {}, .remote = true};
  }

  void watch(Poller& poller) override {
    poller.watch(listener_->fd(), POLLIN, [this](short) {
      const auto refuse = [this](const net::Hello& peer) {
        report_turned_away(*log_, peer, all_);
        return all_;
      };
      listener_->progress(Clock::now(), refuse, [](std::unique_ptr<net::SecureSocket>) {});
    });
  }

 private:
  std::map<std::string, std::unique_ptr<net::SecureSocket>> agents_;
  const std::string all_;
  std::unique_ptr<const Log> log_;  // the listener uses it
  std::unique_ptr<net::SecureListener> listener_;
};

}  // namespace

bool before_by_number(const std::string& a, const std::string& b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string_view x = number_at(a, i);
      const std::string_view y = number_at(b, j);
      if (x != y) return x.size() != y.size() ? x.size() < y.size() : x < y;
      continue;
    }
    if (a[i] != b[j]) return a[i] < b[j];
    ++i;
    ++j;
  }
  return a.size() - i < b.size() - j;
}

Result<DialIn> DialIn::listen(const std::string& address, const net::JobKey& key) {
  DialIn out;
  auto listener = net::listen_secure(address, key, {.purpose = {}, .job_id = kDialJob}, out.log_.get());
  if (!listener.ok()) return listener.status();
  out.listener_ = *std::move(listener);
  return out;
}

// Agents send nothing before they are asked, so readable input means that their connection has ended.
void DialIn::forget_gone() {
  std::vector<std::byte> frame;
  std::erase_if(agents_, [this, &frame](const auto& agent) {
    if (agent.second->receive_frame(frame).ok()) return false;
    gone_.insert(agent.first);
    return true;
  });
}

std::string DialIn::who_has_come(std::size_t agents) const {
  const auto named = [](const std::string& text, const std::set<std::string>& names) {
    return names.empty() ? "" : "; " + text + join({names.begin(), names.end()}, ", ");
  };
  const std::string come = agents_.empty() ? "" : ": " + join(hosts(), ", ");
  const std::size_t missing = agents - std::min(agents, agents_.size());
  return std::to_string(agents_.size()) + " of " + counted(agents, "agent") + (agents == 1 ? " has" : " have") +
         " connected" + come + "; " + std::to_string(missing) +
         std::string(verb(missing, " is missing", " are missing")) + named("connected and gone: ", gone_) +
         named("turned away: ", turned_away_);
}

std::string DialIn::refusal(const net::Hello& peer, std::size_t agents) {
  const std::string_view purpose = kDialPurpose;
  if (!peer.purpose.starts_with(purpose)) return "this is the port for agents of distrun";
  const std::string host = peer.purpose.substr(purpose.size());
  if (const std::string fault = fault_of_host_name(host); !fault.empty()) return in_quotes(host) + ": " + fault;
  forget_gone();
  if (agents_.contains(host)) return "an agent of host " + host + " is here already; give each its own --host NAME";
  return agents_.size() < agents ? "" : all_have_come(agents);
}

// Stored at once: the next agent may be checked in the same round.
void DialIn::take(std::unique_ptr<net::SecureSocket> agent) {
  const std::string host = agent->peer().purpose.substr(std::string_view(kDialPurpose).size());
  gone_.erase(host);
  agents_[host] = std::move(agent);
}

Status DialIn::wait(std::size_t agents, TimePoint deadline) {
  // The first process of a container gets only signals that it handles. They stay blocked afterwards, and the job reads
  // them.
  auto signals = SignalSource::create({SIGINT, SIGTERM, SIGHUP, SIGQUIT}, {SIGINT, SIGHUP});
  if (!signals.ok()) return signals.status();
  const auto accept = [&](const net::Hello& peer) {
    const std::string why = refusal(peer, agents);
    if (!why.empty()) {
      turned_away_.insert(printable(peer.purpose) + " (" + why + ")");
      report_turned_away(*log_, peer, why);
    }
    return why;
  };
  Poller poller;
  for (; agents_.size() < agents; forget_gone()) {
    bool connecting = false;
    poller.clear();
    poller.watch(listener_->fd(), POLLIN, [&](short) {
      connecting = true;
      listener_->progress(Clock::now(), accept,
                          [this](std::unique_ptr<net::SecureSocket> agent) { take(std::move(agent)); });
    });
    poller.watch(signals->fd(), POLLIN, [&](short) {
      for (const int number : signals->take()) {
        if (number != SIGQUIT) ended_by_ = number;  // SIGQUIT asks where ranks are, and there are none yet
      }
    });
    DISTRUN_RETURN_IF_ERROR(poller.wait(deadline));
    if (ended_by_ != 0) return {Errc::kInterrupted, "got " + signal_name(ended_by_) + "; " + who_has_come(agents)};
    if (!connecting && Clock::now() >= deadline) {
      return {Errc::kTimeout,
              who_has_come(agents) + ". Start distrun agent --connect on each host, with the same key file"};
    }
  }
  return {};
}

std::vector<std::string> DialIn::hosts() const {
  std::vector<std::string> out;
  for (const auto& [host, agent] : agents_) out.push_back(host);
  std::sort(out.begin(), out.end(), before_by_number);
  return out;
}

std::unique_ptr<AgentSpawner> DialIn::spawner() {
  return std::make_unique<DialedSpawner>(std::move(agents_), std::move(listener_), std::move(log_));
}

}  // namespace distrun::launcher
