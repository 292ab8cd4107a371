// The members of the job: its workers in the order of their ranks, and the host of each. Only this class maps workers
// to ranks. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/place/assign.h"

namespace distrun::launcher {

// One process that the launcher starts. An id is never used again, but the same worker may get another rank. Agents
// know workers; the rendezvous and the user know ranks.
enum class WorkerId : std::int32_t {};

class Membership {
 public:
  Membership() = default;
  // The first membership: worker 0 is rank 0, and so on.
  explicit Membership(const Assignment& assignment) {
    for (const Place& place : assignment.places) {
      const auto host = static_cast<std::size_t>(place.host);
      ranks_.emplace(WorkerId{place.rank}, size());
      members_.push_back({.worker = WorkerId{place.rank}, .host = place.host, .host_name = assignment.hosts[host]});
    }
  }

  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }
  // None: the worker is not a member, or not any more.
  [[nodiscard]] std::optional<int> rank_of(WorkerId worker) const {
    const auto found = ranks_.find(worker);
    return found == ranks_.end() ? std::nullopt : std::optional(found->second);
  }
  [[nodiscard]] WorkerId worker_of(int rank) const { return at(rank).worker; }
  // As messages to agents name these ranks.
  [[nodiscard]] std::vector<int> workers_of(const std::vector<int>& ranks) const {
    std::vector<int> out;
    for (const int rank : ranks) out.push_back(static_cast<int>(worker_of(rank)));
    return out;
  }
  [[nodiscard]] std::size_t host_of(int rank) const { return static_cast<std::size_t>(at(rank).host); }
  [[nodiscard]] const std::string& host_name(int rank) const { return at(rank).host_name; }
  [[nodiscard]] std::vector<int> ranks_on(std::size_t host) const {
    std::vector<int> out;
    for (int rank = 0; rank < size(); ++rank) {
      if (host_of(rank) == host) out.push_back(rank);
    }
    return out;
  }

 private:
  struct Member {
    WorkerId worker{};
    int host = 0;  // as in the assignment
    std::string host_name;
  };
  [[nodiscard]] const Member& at(int rank) const { return members_.at(static_cast<std::size_t>(rank)); }

  std::vector<Member> members_;    // by rank
  std::map<WorkerId, int> ranks_;  // used for every piece of output
};

}  // namespace distrun::launcher
