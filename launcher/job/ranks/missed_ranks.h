// Who is to blame when ranks miss each other. Ranks report whom they miss and why; the agents say which processes run,
// and try the paths between their hosts. Nothing is decided before both agents have been heard once more: a host that is
// gone explains more than any rank can say. The rank that reports is never blamed for that. Pure.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/protocol/messages.h"
#include "launcher/report/failure_report.h"
#include "runtime/base/clock.h"
#include "runtime/net/store/job_channel.h"

namespace distrun::launcher {

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

class MissedRanks {
 public:
  // How long agents have to answer.
  static constexpr Duration kAnswerTime = std::chrono::seconds(2);
  // How long other ranks have to report the same.
  static constexpr Duration kGather = std::chrono::milliseconds(300);
  // How long a better explanation may take for a connection that was closed: the peer's death comes another way.
  static constexpr Duration kExplain = std::chrono::seconds(1);
  // What is read twice to be believed is read after this time.
  static constexpr Duration kAgain = std::chrono::milliseconds(500);

  struct Config {
    std::vector<int> host_of;             // by rank
    std::vector<std::string> host_names;  // by host; several numbers may have one name
    double host_timeout = 30;             // seconds, the setting
  };
  MissedRanks() = default;
  explicit MissedRanks(Config config) : config_(std::move(config)), states_(config_.host_of.size(), '?') {}

  // --- events ---
  void reported(MissReport report, TimePoint now);
  // An agent has answered the last question; `states`: by rank.
  void answered(int host, const std::vector<std::pair<int, char>>& states);
  // The agents have tried all paths; those that are broken.
  void tried(std::vector<BrokenPath> broken);
  // The connection of this rank to the launcher has ended, and its exit is not known yet; or it is, or it runs on.
  void awaits_exit(int rank, bool awaited);

  // --- what is due ---
  struct Step {
    bool ask = false;         // all agents for the states of their ranks; again each time
    bool try_paths = false;   // let the agents try the paths between hosts
    std::set<int> silent;     // hosts that have not answered, which somebody misses; once
    bool nobody = false;      // the reports name nobody that could be the cause
    std::optional<Blame> blame;
  };
  // After `nobody` or `blame` it is ready for the next reports.
  Step step(TimePoint now);
  // No process runs any more that could tell more: what follows from what is known.
  Step conclude();
  // When step() has something to do without another event.
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  // Something was reported and is not decided.
  [[nodiscard]] bool pending() const { return !reports_.empty(); }
  // How long an agent may try a path.
  [[nodiscard]] Duration path_limit() const;

 private:
  struct Edge {
    int from = -1;  // ranks; -1: known of the hosts only
    int to = -1;
    int from_host = 0;
    int to_host = 0;
    LinkEnd link = LinkEnd::kUnknown;
    std::string why;
  };
  [[nodiscard]] bool ends() const { return ended_at_.has_value(); }
  [[nodiscard]] bool several_hosts() const;
  [[nodiscard]] bool all_answered() const;
  [[nodiscard]] bool waits_for_exit() const;
  [[nodiscard]] bool needs_second_look() const;
  [[nodiscard]] TimePoint settled_at() const;
  [[nodiscard]] std::set<int> concerned() const;  // hosts
  [[nodiscard]] std::vector<int> accused() const;
  [[nodiscard]] int in_state(char state, char other, bool accused_only) const;
  [[nodiscard]] const std::string& name(int host) const { return config_.host_names.at(static_cast<std::size_t>(host)); }
  [[nodiscard]] int host_of(int rank) const { return config_.host_of.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] int first_rank_on(int host) const;
  [[nodiscard]] Edge edge_of(const MissReport& report) const;
  [[nodiscard]] std::vector<Edge> cuts() const;
  [[nodiscard]] std::vector<Edge> broken_paths() const;
  [[nodiscard]] std::vector<Edge> unexplained() const;
  void ask_again(TimePoint now);
  void reset();
  [[nodiscard]] std::optional<Blame> decide() const;
  [[nodiscard]] Blame network(const std::vector<Edge>& edges) const;
  [[nodiscard]] Blame holds_up(int rank, bool by_state) const;
  [[nodiscard]] Blame ended_link(const Edge& edge) const;

  Config config_;
  std::vector<MissReport> reports_;    // in order
  std::optional<TimePoint> ended_at_;  // the first report that ends a session
  std::optional<TimePoint> asked_at_;
  int rounds_ = 0;          // of questions
  std::set<int> answered_;  // hosts, in this round
  bool answers_over_ = false;
  bool silence_told_ = false;
  std::vector<char> states_;  // by rank
  std::set<int> awaited_;     // ranks whose exit is
  std::optional<TimePoint> trying_since_;
  std::optional<std::vector<BrokenPath>> paths_;
};

}  // namespace distrun::launcher
