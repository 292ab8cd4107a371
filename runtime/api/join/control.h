// Chooses the control plane of a job: shared memory if all ranks can use it, otherwise TCP to rank 0.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/net/bytes/wait_set.h"
#include "runtime/net/control/control_plane.h"
#include "runtime/net/host/host_link.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/store/store.h"

namespace distrun::api {

// One rank's answer: whether it can have a control plane in shared memory.
struct SharedControl {
  // kTcpWasSet and kSeveralHosts do not mean that this rank's shared memory is broken.
  enum class Answer : std::uint8_t { kYes, kTcpWasSet, kSeveralHosts, kNoSharedMemory };
  Answer answer = Answer::kYes;
  std::string reason;  // why not; empty with kYes
  friend bool operator==(const SharedControl&, const SharedControl&) = default;
};

// The encoding of an answer in the store.
std::string encode(const SharedControl& one);
Result<SharedControl> decode_shared_control(const std::string& bytes);

// The first reason of any rank against it, or an empty text. All ranks see the same answers and choose the same.
std::string refusal_of_any(const std::vector<SharedControl>& answers);

// By rank: the reason if it cannot share memory with the other ranks of its host; otherwise empty.
std::vector<std::string> faults_of(const std::vector<SharedControl>& answers);

struct ControlOptions {
  const net::World& world;
  const net::JobKey* key;
  net::Store& store;
  net::WaitSet& wait_set;
  net::HostLink* host_link;  // null: `host_link_error` has the reason
  const std::string& host_link_error;
  const std::string& setting;             // the setting "control": "auto", "shm" or "tcp"
  const std::vector<std::string>& hosts;  // by rank
  const Log& log;
};

struct Control {
  std::unique_ptr<net::ControlPlane> plane;  // null in a job of one rank
  std::string reason = "none: the job has one rank";
};

// Collective over the job.
Result<Control> choose_control(const ControlOptions& options, TimePoint deadline);

}  // namespace distrun::api
