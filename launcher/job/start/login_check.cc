#include "launcher/job/start/login_check.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "launcher/protocol/messages.h"

namespace distrun::launcher {
namespace {

bool waits_for_agent(const AgentLink& agent) {
  return agent.by_ssh && agent.state == AgentLink::State::kAsked && agent.handle.remote &&
         !agent.handle.pipe.closed() && agent.handle.pipe.awaits_greeting();
}

}  // namespace

LoginCheck::Login::Login(AgentHandle started) : handle(std::move(started)) {
  handle.pipe.await(kAgentGreeting);
  handle.pipe.close_out();
}

LoginCheck::Login::~Login() {
  if (!handle.pipe.closed()) handle.process.signal(SIGKILL);
}

std::vector<LoginCheck::Fault> LoginCheck::look(TimePoint now) {
  std::vector<Fault> out;
  for (const auto& agent : agents_.all()) {
    if (!waits_for_agent(*agent)) {
      hosts_.erase(agent->index);
      continue;
    }
    Host& host = hosts_.try_emplace(agent->index, Host{.since = now}).first->second;
    if (!host.reported && agent->printed.find(kAgentGreeting) != std::string::npos) {
      host = {.since = host.since, .asked = true, .why = LoginFault::kRedirected, .known = TimePoint::min()};
    }
    if (!host.asked && now >= host.since + kQuiet && has_room()) start(*agent, host);
    if (!host.why || host.reported || (host.known != TimePoint::min() && now < host.known + kGrace)) continue;
    host.reported = true;
    out.push_back({agent->index, login_failure(*host.why, agent->handle.pipe.noise() + agent->printed)});
  }
  return out;
}

void LoginCheck::start(const AgentLink& agent, Host& host) {
  host.asked = true;
  auto handle = spawner_.start(agent.host, agent.user);
  if (handle.ok()) host.login = std::make_unique<Login>(*std::move(handle));
}

void LoginCheck::watch(Poller& poller) {
  for (auto& [index, host] : hosts_) {
    Host* const it = &host;
    if (!host.login) continue;
    poller.watch(host.login->handle.pipe.in(), POLLIN, [this, it](short) { read(*it, Clock::now()); });
    if (Fd& errors = host.login->handle.errors; errors.valid()) {
      poller.watch(errors.get(), POLLIN, [it](short) {
        if (it->login) read_last_words(it->login->handle.errors, it->login->printed);
      });
    }
  }
}

void LoginCheck::read(Host& host, TimePoint now) {
  FramePipe& pipe = host.login->handle.pipe;
  pipe.receive();
  const bool ran = !pipe.awaits_greeting();
  if (!ran && !pipe.closed()) return;
  read_last_words(host.login->handle.errors, host.login->printed);
  // A login that was turned away shows nothing about the first one.
  if (ran || !ssh_did_not_log_in(host.login->printed)) host.why = ran ? LoginFault::kWaits : LoginFault::kEnds;
  host.known = now;
  host.login.reset();
}

bool LoginCheck::has_room() const {
  return std::count_if(hosts_.begin(), hosts_.end(), [](const auto& item) { return item.second.login != nullptr; }) <
         kMostLogins;
}

std::optional<TimePoint> LoginCheck::deadline() const {
  std::optional<TimePoint> next;
  const bool room = has_room();
  for (const auto& [index, host] : hosts_) {
    if (!host.asked && room) next = earlier(next, host.since + kQuiet);
    if (host.why && !host.reported) next = earlier(next, host.known + kGrace);
  }
  return next;
}

}  // namespace distrun::launcher
