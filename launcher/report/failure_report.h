// A failure of a job as one typed value, from the place where it is known to the screen and to --report. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/report/hang_report.h"
#include "launcher/spawn/agent_spawner.h"
#include "runtime/base/link_end.h"
#include "runtime/net/store/job_channel.h"

namespace distrun::launcher {

enum class CauseKind {
  kExited,         // `exit_code` is set
  kKilled,         // `signal` is set
  kRaised,         // the rank itself says why it ends, in `text`
  kStalled,        // it held other ranks up; `text` says how
  kLeftEarly,      // it ended in good order while other ranks still needed it
  kHostLost,       // `text` says why
  kCarrierLost,    // a part of MPI's launcher, or a wrapper, ended while ranks ran; `text` says which
  kOwnNetwork,     // the network of the launcher's machine is gone, as `text` says
  kNotStarted,     // `text` says why
  kBrokenOff,      // the launcher or an agent could not go on; `text` says why
  kInterrupted,    // the launcher got `signal`
  kTimedOut,       // --timeout; `text` says what was waited for, if the ranks had not started
  kReaderGone,     // the reader of the ranks' output has gone
  kNetworkBroken,  // two ranks that run do not reach each other; `link` says which
  kLinkEnded,      // its connection to another rank ended while both run; `link`
  kBadRecord,      // another rank got bytes from it that distrun did not send so; `link`
  kOutputLost,     // the ranks ended well, but something that they wrote, or the report, could not be written
};

// A connection between two ranks that run, or the path between two hosts.
struct BrokenLink {
  struct End {
    int rank = -1;     // -1: known of the hosts only
    std::string host;  // empty: not known
    int number = 0;    // of the host, in the job
    std::string address{};
  };
  End from;  // who misses the other
  End to;
  LinkEnd end = LinkEnd::kUnknown;
  double silent = 0;                  // seconds for which nothing was heard; 0: not known
  std::string host{};                 // whose network it is that is broken; empty: the one between the two
  std::vector<std::string> others{};  // hosts that miss that one
  std::string noticed{};              // by whom, where no rank has seen it itself
  std::string why{};                  // in the words of who found it
};

struct Cause {
  CauseKind kind = CauseKind::kExited;
  int exit_code = 0;
  int signal = 0;
  bool out_of_memory = false;  // the kernel's OOM killer sent the signal
  bool ran_on = false;         // kLeftEarly: its process had not ended
  bool by_other = false;       // its agent ended it, because something other than distrun told that one to end
  char state = '\0';           // of the process of one that stalled, as in /proc/PID/stat; 0: it runs
  std::string text{};
  std::optional<BrokenLink> link{};
};

// A rank that ended after the first cause, and badly.
struct Follower {
  int rank = 0;
  Cause cause;
  std::string last_line;  // what it wrote last, or empty
  bool ended_by_us = false;
};

struct FailureReport {
  int rank = -1;                   // -1: the cause is no rank's
  std::string host;                // empty: no host's, or that of several
  std::vector<std::string> hosts;  // that are lost, in the order of the job
  int pid = 0;
  Cause cause;
  std::string tensor;    // empty: none, or not known
  net::CodePlace place;  // no file: not known
  std::vector<std::string> last_lines;
  std::vector<Follower> followers;
  HangFacts hang;                // where ranks were that waited for others for long
  std::optional<int> exit_code;  // of the launcher; none: it is not known yet
};

// "SIGKILL", or "signal 64" for one without a name.
std::string signal_name(int number);

// Of a process in this state of /proc/PID/stat: "stopped (T: by a signal)". Empty: it can run.
std::string why_it_cannot_run(char state);
// How a process ended.
Cause cause_of_end(int signal, int exit_code, bool out_of_memory = false);
// In a few words: "killed by signal 9 (SIGKILL)", "exited with code 3".
std::string text_of(const Cause& cause);
// "mpirun (pid 12) was killed by signal 9 (SIGKILL)".
std::string carrier_text(const CarrierEnd& end);
// A cure for the user; empty: that depends on the program.
std::string cure_of(const Cause& cause);

// What the user sees of the first cause.
std::string first_cause_report(const FailureReport& failure);
// What followed from that. Equal ends and last lines are folded into one line each. Empty without followers.
std::string follow_up_report(const std::vector<Follower>& followers, bool kept_back);

// A rank whose connection to the launcher has ended while what was started for it runs on.
struct LostConnection {
  int rank = 0;
  std::string host;
  bool remote = false;  // a network is between them
  int started = 0;      // the process that distrun started: the program, or a shell or a wrapper around it
  int pid = 0;          // the process that had the connection
  std::string how;
};
// What the user sees of a network that is broken.
std::string link_report(const FailureReport& failure);
std::string lost_connection_report(const LostConnection& lost);

}  // namespace distrun::launcher
