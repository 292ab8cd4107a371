// The rank that has the user's terminal (--tty), if there is one.
#pragma once

#include <optional>

#include "launcher/job/agents/agent_link.h"
#include "launcher/job/raw_terminal.h"

namespace distrun::launcher {

class TerminalRank {
 public:
  // Its agent, once ranks start.
  void open(AgentLink& agent) {
    agent_ = &agent;
    enter();
    tell_window();
  }
  void enter() {
    if (agent_ != nullptr) raw_.enter();
  }
  void leave() { raw_.leave(); }
  // The size of the user's terminal.
  void tell_window() {
    const auto window = agent_ == nullptr ? std::nullopt : RawTerminal::window();
    if (window) agent_->send(ToAgent::kWindow, encode(*window));
  }

 private:
  RawTerminal raw_;
  AgentLink* agent_ = nullptr;
};

}  // namespace distrun::launcher
