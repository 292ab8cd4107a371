// What the head and an agent say to each other. The agent starts nothing before kStart and kills everything when its
// standard input ends, because then the head is gone. The numbers of ranks in messages are those of workers
// (job/ranks/membership.h): an agent knows none but these.
//   head: kPrepare -> agent: kPrepared or kRefused -> head: kStart -> agent: kStarted..., kOutput..., kExited..., kDone
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/launch_plan.h"
#include "launcher/spawn/frames.h"
#include "launcher/spawn/remote_command.h"

namespace distrun::launcher {

inline constexpr std::uint32_t kAgentProtocol = 8;
// The agent's first word, in every version: what stands before it was printed by somebody else.
inline constexpr std::string_view kAgentGreeting{"\0distrun agent\n", 15};
// How many bytes of one stream may be on their way to the head; the head gives credit back as it writes them out.
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
  kAskStates
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
  kCarrierNews  // --mpi
};

// Facts to find, and what must be true before anything starts.
struct Prepare {
  std::uint32_t protocol = kAgentProtocol;
  std::string version;
  std::string host;
  std::string job_id;
  std::string sysroot = "/";
  std::int32_t ports = 0;
  double grace = 10;                // seconds
  double lease = 0;                 // seconds, see Lease; 0: there is none, and the agent gives no signs of life
  std::int32_t preempt_signal = 0;  // this one is not for the agent to act on; 0: none
  bool probe = false;               // list this host's addresses and listen for probes
  bool ask = false;                 // tell the host's topology only; another Prepare follows
  JobCommon common;
};

struct Prepared {
  HostFacts facts;
};

// Something that makes the whole job impossible.
struct Refused {
  std::int32_t exit_code = 70;
  std::string text;
};

struct Start {
  HostPlan plan;
  std::string tf_cluster;      // what all ranks' TF_CONFIG begins with
  std::string no_grpc_proxy;   // of all ranks; empty: it is not set
  std::vector<std::byte> key;  // the job's key, for the ranks' sealed descriptors
};

// What this host is to try, and under which number; from here on it also answers the others.
struct Probe {
  std::vector<std::byte> key;
  std::int32_t host = 0;
  std::vector<ProbeTarget> targets;
  std::uint32_t limit_ms = 0;  // for all of them; 0: as before ranks start
};

struct Probed {
  std::vector<ProbeResult> results;
};

struct StreamBytes {  // kOutput
  std::int32_t rank = 0;
  std::uint8_t stream = 0;  // 0 standard output, 1 standard error
  std::uint64_t when = 0;   // it was read: microseconds of the agent's steady clock
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

// Ends ranks; may be sent again, the earlier time wins. Times are milliseconds from the receipt.
struct Stop {
  std::vector<int> term_now;     // these ranks get SIGTERM at once
  std::uint32_t term_after = 0;  // then all
  std::uint32_t kill_after = 0;  // then SIGKILL, for all and everything below them
};

// An agent's sign of life, every second where there is a lease.
struct Beat {
  std::int64_t sent = 0;  // by the agent's clock (BootTime); the answer returns it. 0: it wants none
  bool ready = false;     // the head has said kResume before that
};

// The head's side of it.
struct Alive {
  enum class What : std::uint8_t {
    kAnswer,  // of the sign of life that was sent at `sent`
    kHold,    // the head is going to be stopped, and has stopped the ranks: no lease until kResume
    kResume,  // the head goes on; it lets ranks go on once it has a sign of life that is `ready`
  };
  What what = What::kAnswer;
  std::int64_t sent = 0;
};

// The size of the user's terminal, for the rank that has one.
struct Window {
  std::uint16_t rows = 0;
  std::uint16_t columns = 0;
};

// Agents of other hosts that this one is to start by ssh; they then join the job by themselves.
struct StartHosts {
  struct Host {
    std::int32_t index = 0;  // in the job's list
    std::string name;
    std::string user;
  };
  std::string binary;  // as in agent_command()
  SshOptions ssh;
  std::string job_id;
  std::vector<std::byte> key;          // for joining; the job has its own
  std::vector<std::string> addresses;  // of the head, best first
  std::vector<Host> hosts;
};

// What an agent that was started so finds on its standard input.
struct Join {
  std::int32_t index = 0;
  std::string job_id;
  std::vector<std::byte> key;
  std::vector<std::string> addresses;
};

// One of those has ended. If it has joined before, that is not news.
struct HostFailed {
  std::int32_t index = 0;
  std::string text;
};

// What an agent that MPI's launcher has started sees of that.
struct CarrierNews {
  enum Kind : std::uint8_t {
    kToldToEnd,    // something other than the head told this agent to end
    kDaemonEnded,  // which had started the agent: mpirun, orted, hydra's proxy
    kGuardEnded    // the process between that and the agent
  };
  std::uint8_t kind = kToldToEnd;
  std::string name;
  std::int32_t pid = 0;
};

// This host of the job's list is lost: what carries its agent from here will not end by itself.
struct HostGone {
  std::int32_t index = 0;  // as in StartHosts
};

// A piece of input has been taken by all ranks here that read it.
struct InputTaken {
  bool more = false;  // some of them would read on
};

struct RankStarted {
  std::int32_t rank = 0;
  std::int32_t pid = 0;
};

// The last output of a rank that has ended is on its way to the head before this.
struct Drained {
  std::int32_t rank = 0;
};

struct RankExited {
  std::int32_t rank = 0;
  std::int32_t pid = 0;
  std::int32_t exit_code = 0;
  std::int32_t signal = 0;
  bool out_of_memory = false;
  bool by_agent = false;  // it died of a signal that the agent had sent to end it
};

// How are the processes of this host's ranks? The answer is also a sign of life that is newer than the question.
struct AskStates {
  static constexpr std::uint32_t kStatesOnly = 0;  // a round that leaves the listener for probes as it is
  std::uint32_t round = kStatesOnly;               // the answer carries it
  bool listen = false;                             // open a listener for probes too, and tell its port
  struct Session {
    std::int32_t rank = 0;
    std::int32_t pid = 0;  // the process that is in a session, perhaps below the one that was started
  };
  std::vector<Session> sessions;  // of ranks of any host
};

// kRankStates
struct RankStates {
  std::uint32_t round = 0;
  std::uint16_t probe_port = 0;  // 0: it does not listen
  struct One {
    std::int32_t rank = 0;
    std::int32_t pid = 0;
    std::uint8_t state = '?';  // as in /proc/PID/stat: R, S, D, T, t, Z
  };
  std::vector<One> ranks;  // that have not ended
};

// Of every message above.
template <class Message>
std::vector<std::byte> encode(const Message& message);
template <class Message>
Result<Message> decode(std::span<const std::byte> bytes);

}  // namespace distrun::launcher
