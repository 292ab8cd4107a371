// Finds the first cause when ranks miss each other: a rank, a host or a network. A rank is never blamed for its own
// report. Pure: takes reports and findings, returns the cause.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/report/failure_report.h"
#include "runtime/base/link_end.h"
#include "runtime/net/store/job_channel.h"

namespace distrun::launcher {

// The report of a rank about ranks that it misses.
struct MissReport {
  enum class Kind {
    kLoss,   // its session has ended because of `missed`
    kStall,  // `missed` delay it for longer than allowed
    kWait,   // an operation makes no progress; nothing has ended
  };
  Kind kind = Kind::kLoss;
  int rank = -1;  // the rank that reports
  net::MissedPeers missed;
  net::RankFailure failure;
};

// A rank that others wait for handles an exception, and waits in another operation or is busy with its own clean-up.
struct PendingException {
  int rank = -1;
  std::string text;  // "ValueError: bad"
  net::CodePlace raised_at;
};

// One host does not reach another. The agent of `from` has found this.
struct BrokenPath {
  int from = 0;  // hosts
  int to = 0;
  LinkEnd link = LinkEnd::kSilent;
  std::string why;
};

// The first cause, and the rank that is published to the others as lost.
struct Blame {
  FailureReport failure;
  int lost = -1;
};

// All facts that are known.
struct Evidence {
  std::vector<int> host_of;             // by rank
  std::vector<std::string> host_names;  // by host; several numbers may have one name
  double host_timeout = 30;             // seconds, the setting
  std::vector<char> states{};           // by rank, as in /proc/PID/stat; '?': not known
  std::vector<MissReport> reports{};    // in order
  std::vector<BrokenPath> paths{};      // that the agents have found
  std::vector<PendingException> exceptions{};

  // True if some report ends a session.
  [[nodiscard]] bool ends() const;
  // All ranks that some rank misses.
  [[nodiscard]] std::vector<int> missed() const;
  // A stopped rank, if possible a missed one. -1: none.
  [[nodiscard]] int stopped() const;
  // A missed rank that is blocked in the kernel. -1: none.
  [[nodiscard]] int blocked() const;
};

// None: the exits of the ranks tell more.
std::optional<Blame> decide(const Evidence& evidence);

}  // namespace distrun::launcher
