// A failure of a job as one typed value. The code that detects it makes the value; the screen and --report show it.
// Pure.
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
  kExited,       // `exit_code` is set
  kKilled,       // `signal` is set
  kRaised,       // the rank itself gave the reason, in `text`
  kStalled,      // it blocked other ranks; `text` says how
  kDeadlock,     // all ranks waited for one another; `text` has the waits. `rank` only has the last lines
  kLeftEarly,    // it ended without error while other ranks still needed it
  kHostLost,     // `text` says why
  kCarrierLost,  // a part of MPI's launcher, or a wrapper, ended while ranks ran; `text` says which
  kOwnNetwork,   // the network of the launcher's machine has failed; see `text`
  kNotStarted,   // `text` says why
  kBrokenOff,    // the launcher or an agent could not continue; `text` says why
  kInterrupted,  // the launcher got `signal`
  // --timeout. `text` says what the launcher was waiting for if the ranks had not started.
  kTimedOut,
  kReaderGone,     // the reader of the ranks' output has gone away
  kNetworkBroken,  // two running ranks do not reach each other; `link` says which
  kLinkEnded,      // its connection to another rank ended while both run; `link`
  kBadRecord,      // another rank received bytes from it that distrun did not send; `link`
  // The ranks ended well, but some output, or the report, could not be written.
  kOutputLost,
};

// A connection between two running ranks, or the path between two hosts.
struct BrokenLink {
  struct End {
    int rank = -1;     // -1: only the host is known
    std::string host;  // empty: not known
    int number = 0;    // number of the host in the job
    std::string address{};
  };
  End from;  // the one that misses the other
  End to;
  LinkEnd end = LinkEnd::kUnknown;
  double silent = 0;                  // seconds without a message; 0: unknown
  std::string host{};                 // host whose network is broken; empty: the network between the two
  std::vector<std::string> others{};  // hosts that do not reach that host
  std::string noticed{};              // the observer, if no rank has seen it itself
  std::string why{};                  // in the words of the observer
};

// How a rank left early.
enum class Leave {
  kEnded,       // it called shutdown(), and its process ended
  kRanOn,       // it called shutdown(), and its process was still running
  kNoShutdown,  // its process ended inside its session
  kNoInit,      // its process ended, and it never called init()
  kNoNextInit,  // the same, and it did not call init() when the others called it again
};

struct Cause {
  CauseKind kind = CauseKind::kExited;
  int exit_code = 0;
  int signal = 0;
  bool out_of_memory = false;   // the kernel's OOM killer sent the signal
  double silent = 0;            // kHostLost: seconds without a message; 0: it was lost in another way
  Leave leave = Leave::kEnded;  // of kLeftEarly
  bool agent_here = false;      // kHostLost: the agent on the launcher's own machine ended
  bool by_other = false;        // its agent ended it, after a program other than distrun ended the agent
  char state = '\0';            // process state of a stalled rank, as in /proc/PID/stat; 0: it runs
  // kStalled: the exception that the rank was handling while it waited. kExited: the exception at the end of its
  // output. The text includes the place.
  std::string exception{};
  std::string text{};
  std::optional<BrokenLink> link{};
};

// A rank that failed too.
struct Follower {
  enum class Relation {
    kFollows,  // it ended because of the first cause
    kSame,     // it failed by itself, in the same way as the first rank
    kOther,    // it failed by itself, in another way; `cause` has its exception
  };
  int rank = 0;
  Cause cause;
  std::string last_line;  // last output line, or empty
  bool ended_by_us = false;
  Relation relation = Relation::kFollows;
};

struct FailureReport {
  int rank = -1;                   // -1: no rank caused it
  std::string host;                // empty: no host, or several hosts
  std::vector<std::string> hosts;  // lost hosts, or those that the launcher does not reach; in the order of the job
  int pid = 0;
  Cause cause;
  std::string tensor;    // empty: none or unknown
  net::CodePlace place;  // empty file: unknown
  std::vector<std::string> last_lines;
  bool last_lines_shown = false;  // the user has just seen them on the screen
  std::string hint;               // a cure that the plan of the job knows; empty: none
  std::vector<Follower> followers;
  HangFacts hang;                // the state of ranks that had waited long for others
  std::optional<int> exit_code;  // of the launcher; none: not known yet
};

// "SIGKILL", or "signal 64" for one without a name.
std::string signal_name(int number);

// The reason for a process in this state of /proc/PID/stat: "stopped (T: by a signal)". Empty if it can run.
std::string why_it_cannot_run(char state);
// How a process ended.
Cause cause_of_end(int signal, int exit_code, bool out_of_memory = false);
// A short form: "killed by signal 9 (SIGKILL)", "exited with code 3".
std::string text_of(const Cause& cause);
// "mpirun (pid 12)", or the name alone if the pid is not known.
std::string process_name(const std::string& name, int pid);
// "mpirun (pid 12) was killed by signal 9 (SIGKILL)".
std::string carrier_text(const CarrierEnd& end);
// True for a signal that a process causes itself by an error in it.
bool is_crash(int signal);
// True if the output of the rank, if there is any, may say why it ended. A signal such as SIGKILL leaves it no time to
// write.
bool output_may_explain(const Cause& cause);
// How the process of a rank that left early ended: "exited with code 0".
std::string text_of(Leave how);
// A cure for the user. Empty if it depends on the program.
std::string cure_of(const FailureReport& failure);

// The text about the first cause, for the screen.
std::string first_cause_report(const FailureReport& failure);
// The text about the followers. Equal ends with equal last lines share a line. Empty without followers.
// `of_a_path`: a broken path between two hosts is the cause, and no rank is.
std::string follow_up_report(const std::vector<Follower>& followers, bool kept_back, bool of_a_path = false);

// A rank whose connection to the launcher has ended although the process that distrun started is still running.
struct LostConnection {
  int rank = 0;
  std::string host;
  bool remote = false;  // a network is between them
  int started = 0;      // pid of the process that distrun started: the program, or a shell or wrapper around it
  int pid = 0;          // pid of the process that had the connection
  std::string how;
};
// The text about lost hosts, or a lost agent. `ranks` ran there.
std::string host_loss_report(const Cause& cause, const std::vector<int>& ranks);
// The text about a broken network, for the screen.
std::string link_report(const FailureReport& failure);
std::string lost_connection_report(const LostConnection& lost);

}  // namespace distrun::launcher
