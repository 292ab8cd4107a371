// The texts about failures: one screen that starts with the first cause. Pure.
#pragma once

#include <string>
#include <vector>

namespace distrun::launcher {

// "SIGKILL", or "signal 64" for one without a name.
std::string signal_name(int number);

// How a rank ended, in a few words: "killed by signal 9 (SIGKILL)", "exited with code 3".
std::string cause_of_end(int signal, int exit_code, bool out_of_memory);

struct FirstCause {
  int rank = 0;
  std::string host;
  int pid = 0;
  std::string cause;  // as cause_of_end says, or what the rank said itself
  bool left_early = false;
  std::vector<std::string> last_lines;
  bool exit_known = false;
  int exit_code = 0;  // of the launcher
};
std::string first_cause_report(const FirstCause& failure);

// A rank whose connection to the launcher has ended while what was started for it runs on.
struct LostConnection {
  int rank = 0;
  std::string host;
  bool remote = false;  // a network is between them
  int started = 0;      // the process that distrun started: the program, or a shell or a wrapper around it
  int pid = 0;          // the process that had the connection
  std::string how;
};
std::string lost_connection_report(const LostConnection& lost);

// One other rank that ended badly afterwards.
struct FollowUp {
  int rank = 0;
  std::string end;        // cause_of_end
  std::string last_line;  // what it wrote last, or empty
  bool ended_by_us = false;
};
// Equal ends and last lines are folded into one line each. Empty without follow-ups.
std::string follow_up_report(const std::vector<FollowUp>& follow_ups, bool kept_back);

}  // namespace distrun::launcher
