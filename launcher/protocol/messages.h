// The messages between the head and an agent. The agent starts nothing before kStart. It kills everything when its
// standard input ends, because then the head is gone. Rank numbers in messages are those of workers
// (job/ranks/membership.h), the only ones that an agent knows.
//   head: kPrepare -> agent: kPrepared or kRefused -> head: kStart -> agent: kStarted..., kOutput..., kExited..., kDone
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/launch_plan.h"
#include "launcher/plan/network/master_name.h"
#include "launcher/spawn/frames.h"
#include "launcher/spawn/remote_command.h"

namespace distrun::launcher {

inline constexpr std::uint32_t kAgentProtocol = 10;
// The agent's greeting, the same in every version. Any bytes before it were printed by other programs.
inline constexpr std::string_view kAgentGreeting{"\0distrun agent\n", 15};
// The limit for bytes of one stream that the head has not written yet. The head returns credit as it writes them.
inline constexpr std::uint32_t kStreamWindow = 64 * 1024;

enum class ToAgent : std::uint8_t {
  kPrepare = 1,
  kStart,
  kInput,
  kInputEnd,
  kCredit,
  kSignal,
  kStop,
  kAlive,
  kProbe,
  kWindow,
  kStartHosts,
  kHostGone,
  kAskStates,
  kResolve
};
enum class FromAgent : std::uint8_t {
  kPrepared = 1,
  kRefused,
  kStarted,
  kOutput,
  kExited,
  kDrained,
  kInputTaken,
  kNote,
  kDone,
  kAlive,
  kProbed,
  kPreempted,  // the agent itself got the signal of --preempt-signal
  kHostFailed,
  kRankStates,
  kCarrierNews,  // --mpi
  kResolved,
  kStacksAsked  // the agent itself got SIGQUIT
};

// Asks a host for its facts, and for checks that must succeed before anything starts.
struct Prepare {
  std::uint32_t protocol = kAgentProtocol;
  std::string version;
  std::string host;
  std::string job_id;
  std::string sysroot = "/";
  std::int32_t ports = 0;
  double grace = 10;                // seconds
  double lease = 0;                 // seconds, see Lease; 0: no lease and no signs of life
  std::int32_t preempt_signal = 0;  // the agent only reports this signal to the head; 0: none
  bool probe = false;               // list this host's addresses and listen for probes
  bool ask = false;                 // report only the host's topology; another Prepare follows
  bool keep_trying = false;         // if it refuses for what may pass, stay: the same order comes again
  JobCommon common;
};

struct Prepared {
  HostFacts facts;
};

// A reason why the whole job cannot start.
struct Refused {
  std::int32_t exit_code = 70;
  std::string text;
  bool may_come = false;  // what is wrong on this host may pass, as before a late mount
};

struct Start {
  HostPlan plan;
  std::string tf_cluster;      // the beginning of every rank's TF_CONFIG
  std::string no_grpc_proxy;   // the same for all ranks; empty: not set
  std::vector<std::byte> key;  // the job's key; each rank gets it in a sealed descriptor
};

// The probe targets and the number of this host. From now on the host also answers the probes of others.
struct Probe {
  std::vector<std::byte> key;
  std::int32_t host = 0;
  std::vector<ProbeTarget> targets;
  std::uint32_t limit_ms = 0;  // for all targets; 0: the limits that apply before ranks start
};

struct Probed {
  std::vector<ProbeResult> results;
};

// Asks which addresses these names have on this host.
struct Resolve {
  std::vector<std::string> names;
};

struct Resolved {
  ResolvedNames addresses;
};

struct StreamBytes {  // kOutput
  std::int32_t rank = 0;
  std::uint8_t stream = 0;  // 0 standard output, 1 standard error
  std::uint64_t when = 0;   // when it was read: microseconds of the agent's steady clock
  std::vector<std::byte> bytes;
};

struct Credit {
  std::int32_t rank = 0;
  std::uint8_t stream = 0;
  std::uint32_t bytes = 0;
};

struct SignalRanks {
  std::int32_t signal = 0;
  bool whole_group = false;
  std::vector<int> ranks;  // only these; empty: all
};

// Ends ranks. The head may send it again; the earlier time wins. Times are milliseconds from the receipt.
struct Stop {
  std::vector<int> term_now;     // these ranks get SIGTERM at once
  std::uint32_t term_after = 0;  // then all ranks get SIGTERM
  std::uint32_t kill_after = 0;  // then SIGKILL for all ranks and everything below them
};

// An agent's sign of life. With a lease, it comes every second.
struct Heartbeat {
  std::int64_t sent = 0;  // time on the agent's clock (BootTime), returned in the answer; 0: no answer wanted
  bool ready = false;     // sent after a kResume of the head
};

// The head's answer to a sign of life, or its order about the lease.
struct Alive {
  enum class What : std::uint8_t {
    kAnswer,  // to the sign of life that was sent at `sent`
    kHold,    // the head is about to be stopped and has stopped the ranks: no lease until kResume
    kResume,  // the head continues; it continues the ranks when it gets a sign of life that is `ready`
  };
  What what = What::kAnswer;
  std::int64_t sent = 0;
};

// The size of the user's terminal, for the rank that uses it.
struct Window {
  std::uint16_t rows = 0;
  std::uint16_t columns = 0;
};

// Hosts on which this agent must start agents by ssh. These agents then join the job by themselves.
struct StartHosts {
  struct Host {
    std::int32_t index = 0;  // in the job's list
    std::string name;
    std::string user;
  };
  std::string binary;  // as in agent_command()
  SshOptions ssh;
  std::string job_id;
  std::vector<std::byte> key;          // for joining; the job has another key
  std::vector<std::string> addresses;  // of the head, best first
  std::vector<Host> hosts;
};

// The message on the standard input of an agent that was started in this way.
struct Join {
  std::int32_t index = 0;
  std::string job_id;
  std::vector<std::byte> key;
  std::vector<std::string> addresses;
};

// An agent that was started by StartHosts has ended. If it had joined before, the head ignores this.
struct HostFailed {
  std::int32_t index = 0;
  std::string text;
};

// Reports about MPI's launcher, from an agent that it has started.
struct CarrierNews {
  enum Kind : std::uint8_t {
    kAskedToEnd,   // a process other than the head told this agent to end
    kDaemonEnded,  // the process that started the agent: mpirun, orted, hydra's proxy
    kGuardEnded,   // the process between the daemon and the agent
    // A process sent SIGCONT to this agent. Open MPI does so a second before it ends the agent. Its TERM and KILL come
    // within 20 ms, so this may be the last message.
    kContinued
  };
  std::uint8_t kind = kAskedToEnd;
  std::string name;  // of the process that ended; for kAskedToEnd and kContinued of the daemon
  std::int32_t pid = 0;
};

// A host of the job's list is lost. The ssh process that carries its agent from this host will not end by itself.
struct HostGone {
  std::int32_t index = 0;  // as in StartHosts
};

// How much of the input the ranks of this host have read, in bytes since the start. Sent when a rank has read all that
// the agent has, when no rank accepts more, and at the end.
struct InputTaken {
  bool more = false;        // some of them still accept input
  std::uint64_t most = 0;   // what the rank farthest ahead has read
  std::uint64_t least = 0;  // what the rank farthest behind has read, of those that still accept input
};

struct RankStarted {
  std::int32_t rank = 0;
  std::int32_t pid = 0;
};

// The last output of a rank that has ended was sent before this message.
struct Drained {
  std::int32_t rank = 0;
};

struct RankExited {
  std::int32_t rank = 0;
  std::int32_t pid = 0;
  std::int32_t exit_code = 0;
  std::int32_t signal = 0;
  bool out_of_memory = false;
  bool by_agent = false;  // it died of a signal that the agent sent to end it
  bool wrote = false;     // it has written to standard output or standard error
};

// Asks for the process states of this host's ranks. The answer is also a sign of life, newer than the question.
struct AskStates {
  static constexpr std::uint32_t kStatesOnly = 0;  // a round that leaves the listener for probes unchanged
  std::uint32_t round = kStatesOnly;               // the answer repeats it
  bool listen = false;                             // also listen for probes, and report the port
  struct Session {
    std::int32_t rank = 0;
    std::int32_t pid = 0;  // the process in a session, perhaps a descendant of the started one
  };
  std::vector<Session> sessions;  // of ranks of any host
};

// The answer to AskStates (kRankStates).
struct RankStates {
  std::uint32_t round = 0;
  std::uint16_t probe_port = 0;  // 0: the agent does not listen
  struct One {
    std::int32_t rank = 0;
    std::int32_t pid = 0;
    std::uint8_t state = '?';  // as in /proc/PID/stat: R, S, D, T, t, Z
  };
  std::vector<One> ranks;  // that have not ended
};

// Defined for every message above.
template <class Message>
std::vector<std::byte> encode(const Message& message);
template <class Message>
Result<Message> decode(std::span<const std::byte> bytes);

}  // namespace distrun::launcher
