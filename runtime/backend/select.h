// Which backend serves a device type in a group: a pure function of all members' offers.
#pragma once

#include <string>
#include <vector>

#include "runtime/backend/factory.h"

namespace distrun::backend {

// Why a backend was not chosen, first what says so of a member.
enum class LoserCode {
  kNotOffered,    // a member has no such backend
  kMissing,       // a member lacks something that it needs
  kUnmetSetting,  // a setting asks for something that a member does not have
  kSetUpFailed,   // it was chosen before, and a member could not set it up
  kNoDevice,      // it has no such tensors
  kOtherVersion,  // two members have it in versions that do not work together
  kNothingToDo,   // as the ranks lie
  kLowerScore,
  kSameScore,    // and later by name
  kNotTheOneSet  // the setting names another one
};
std::string_view name_of(LoserCode code);  // "not_offered"

struct Loser {
  std::string backend;
  LoserCode code = LoserCode::kMissing;
  std::string reason;  // "lower score (50 < 90)", "rank 3 (node2): not available: libmpi.so.40 not found"
  int rank = -1;       // the member concerned, first in the reason; -1: all alike
  std::string host;    // that member's
  int score = -1;      // of a backend that all can use; else -1
};

struct Selection {
  std::string backend;
  std::string reason;
  bool set = false;           // named by the setting; else it has the highest score
  int score = 0;              // the lowest of any member
  Capabilities capabilities;  // operations, dtypes and devices: what all members offer; the rest as the first has it
  std::vector<Loser> losers;
};

// `offers[i]` are member i's offers; `forced` is the backend setting ("auto", "tcp", "cpu:tcp,cuda:nccl"; a bare name
// binds only the device types that it supports on all members that have it). `hosts[i]` names member i's host for the
// texts. Members must have the same of the flags that decide what all of them do alike (scatter_gather, exclusive);
// they may move data each in their own way. An impossible choice is kUnsupported with its reason and the backends that
// all have. A choice with nothing to do (Offer) is one for the `whole_job` only: its process sets may lie as they like,
// and are selected for as without the setting.
Result<Selection> select(DeviceType device, const std::vector<std::vector<Offer>>& offers,
                         const std::vector<int>& members, const std::vector<std::string>& hosts,
                         const std::string& forced, bool whole_job);

// Whether the setting `forced` names a backend for tensors of `device`, be it available or not.
bool asks_for(DeviceType device, const std::vector<std::vector<Offer>>& offers, const std::string& forced);

}  // namespace distrun::backend
