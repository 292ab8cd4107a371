// The rank that uses the user's terminal (--tty), if any.
#pragma once

#include <optional>

#include "launcher/job/agents/agent_link.h"
#include "launcher/job/raw_terminal.h"

namespace distrun::launcher {

class TerminalRank {
 public:
  // Called when ranks start, with the agent of this rank.
  void open(AgentLink& agent) {
    agent_ = &agent;
    enter();
    send_window();
  }
  void enter() {
    if (agent_ != nullptr) raw_.enter();
  }
  void leave() { raw_.leave(); }
  // Sends the size of the user's terminal.
  void send_window() {
    const auto window = agent_ == nullptr ? std::nullopt : RawTerminal::window();
    if (window) agent_->send(ToAgent::kWindow, encode(*window));
  }

 private:
  RawTerminal raw_;
  AgentLink* agent_ = nullptr;
};

}  // namespace distrun::launcher
