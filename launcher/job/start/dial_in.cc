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

class DialedSpawner final : public AgentSpawner {
 public:
  explicit DialedSpawner(std::map<std::string, std::unique_ptr<net::SecureSocket>> agents)
      : agents_(std::move(agents)) {}

  Result<AgentHandle> start(const std::string& host, const std::string&) override {
    const auto found = agents_.find(host);
    if (found == agents_.end() || !found->second) return Status(Errc::kInternal, "its agent has not dialled in");
    return AgentHandle{.process = {}, .pipe = FramePipe(std::move(found->second)), .errors = {}, .remote = true};
  }

 private:
  std::map<std::string, std::unique_ptr<net::SecureSocket>> agents_;
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
  std::erase_if(agents_, [&frame](const auto& agent) { return !agent.second->receive_frame(frame).ok(); });
}

std::string DialIn::who_has_come(std::size_t agents) const {
  const std::string come = agents_.empty() ? "" : ": " + join(hosts(), ", ");
  return std::to_string(agents_.size()) + " of " + counted(agents, "agent") + (agents == 1 ? " has" : " have") +
         " dialled in" + come;
}

Status DialIn::wait(std::size_t agents, TimePoint deadline) {
  // The first process of a container gets only signals that it handles. They stay blocked afterwards, and the job reads
  // them.
  auto signals = SignalSource::create({SIGINT, SIGTERM, SIGHUP, SIGQUIT}, {SIGINT, SIGHUP});
  if (!signals.ok()) return signals.status();
  const std::string_view purpose = kDialPurpose;
  const auto accept = [&](const net::Hello& peer) -> std::string {
    if (!peer.purpose.starts_with(purpose)) return "this is the port for agents of distrun";
    const std::string host = peer.purpose.substr(purpose.size());
    forget_gone();
    if (agents_.size() >= agents) return "all " + counted(agents, "agent") + " of the job have come";
    if (!agents_.contains(host)) return "";
    return "an agent of host " + host + " is here already; give each its own --host NAME";
  };
  // Stored at once: the next agent may be checked in the same round.
  const auto take = [&](std::unique_ptr<net::SecureSocket> agent) {
    const std::string host = agent->peer().purpose.substr(purpose.size());
    agents_[host] = std::move(agent);
  };
  Poller poller;
  for (; agents_.size() < agents; forget_gone()) {
    bool knocks = false;
    poller.clear();
    poller.watch(listener_->fd(), POLLIN, [&](short) {
      knocks = true;
      listener_->progress(Clock::now(), accept, take);
    });
    poller.watch(signals->fd(), POLLIN, [&](short) {
      for (const int number : signals->take()) {
        if (number != SIGQUIT) ended_by_ = number;  // SIGQUIT asks where ranks are, and there are none yet
      }
    });
    DISTRUN_RETURN_IF_ERROR(poller.wait(deadline));
    if (ended_by_ != 0) return {Errc::kInterrupted, "got " + signal_name(ended_by_) + "; " + who_has_come(agents)};
    if (!knocks && Clock::now() >= deadline) {
      return {Errc::kTimeout,
              who_has_come(agents) + "; start distrun agent --connect on each host, with the same key file"};
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

std::unique_ptr<AgentSpawner> DialIn::spawner() { return std::make_unique<DialedSpawner>(std::move(agents_)); }

}  // namespace distrun::launcher
