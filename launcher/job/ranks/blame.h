// The judgement over ranks that miss each other: which rank, host or network is the first cause. The rank that reports
// is never blamed for that. Pure: what was reported and found in, the cause out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/report/failure_report.h"
#include "runtime/base/link_end.h"
#include "runtime/net/store/job_channel.h"

namespace distrun::launcher {

// What a rank says.
struct MissReport {
  enum class Kind {
    kLoss,   // its session has ended because of `missed`
    kStall,  // `missed` hold it up for longer than they may
    kWait,   // an operation makes no progress; nothing has ended
  };
  Kind kind = Kind::kLoss;
  int rank = -1;  // that says so
  net::MissedPeers missed;
  net::RankFailure failure;
};

// One host does not reach another, as its agent has found.
struct BrokenPath {
  int from = 0;  // hosts
  int to = 0;
  LinkEnd link = LinkEnd::kSilent;
  std::string why;
};

// The first cause, and the rank that the others hear of.
struct Blame {
  FailureReport failure;
  int lost = -1;
};

// All that is known.
struct Evidence {
  std::vector<int> host_of;             // by rank
  std::vector<std::string> host_names;  // by host; several numbers may have one name
  double host_timeout = 30;             // seconds, the setting
  std::vector<char> states{};           // by rank, as in /proc/PID/stat; '?': not known
  std::vector<MissReport> reports{};    // in order
  std::vector<BrokenPath> paths{};      // that the agents have found

  // Some report ends a session.
  [[nodiscard]] bool ends() const;
  // Ranks that some rank misses.
  [[nodiscard]] std::vector<int> missed() const;
  // A rank that cannot run. -1: none.
  [[nodiscard]] int stopped() const;
  // A missed rank that the kernel blocks. -1: none.
  [[nodiscard]] int blocked() const;
};

// None: the exits of the ranks say more.
std::optional<Blame> decide(const Evidence& evidence);

}  // namespace distrun::launcher
