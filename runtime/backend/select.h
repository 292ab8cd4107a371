// Chooses the backend for a device type in a group. A pure function of all members' offers.
#pragma once

#include <string>
#include <vector>

#include "runtime/backend/factory.h"

namespace distrun::backend {

// Why a backend was not chosen. If several members have a reason, the first member's reason counts.
enum class LoserCode {
  kNotOffered,    // a member does not know this backend
  kMissing,       // a member lacks something that the backend needs
  kUnmetSetting,  // a setting asks for something that a member does not have
  kSetUpFailed,   // it was chosen earlier, and a member could not set it up
  kNoDevice,      // it does not support tensors of this device
  kOtherVersion,  // two members have versions that do not work together
  kNothingToDo,   // the placement of the ranks gives it nothing to do
  kLowerScore,
  kSameScore,    // same score as the winner, and later by name
  kNotTheOneSet  // the setting names another backend
};
std::string_view name_of(LoserCode code);  // "not_offered"

struct Loser {
  std::string backend;
  LoserCode code = LoserCode::kMissing;
  std::string reason;  // "lower score (50 < 90)", "rank 3 (node2): not available: libmpi.so.40 not found"
  int rank = -1;       // the member that the reason names first; -1: the reason is the same for all
  std::string host;    // the host of that member
  int score = -1;      // -1, unless all members can use the backend
};

struct Selection {
  std::string backend;
  std::string reason;
  bool set = false;  // chosen by the setting; otherwise by its score
  int score = 0;     // the lowest score of all members
  // `ops`, `dtypes` and `devices` have the bits that all members offer. The other fields are the first member's.
  Capabilities capabilities;
  std::vector<Loser> losers;
};

// `offers[i]` are the offers of member i. `hosts[i]` names the host of member i for the texts.
// `forced` is the backend setting ("auto", "tcp", "cpu:tcp,cuda:nccl"). A bare name applies only to the device types
// that the backend supports on all members that have it.
// All members must agree in the flags on which they must act alike (scatter_gather, exclusive). They may differ in how
// they move data.
// If the choice is impossible, the error is kUnsupported. Its text has the reason and the backends that all members can
// use. If a forced backend has nothing to do (see Offer), that is an error for the `whole_job` only. A process set is
// then selected for as if the setting were not there, because its ranks may be placed in any way.
Result<Selection> select(DeviceType device, const std::vector<std::vector<Offer>>& offers,
                         const std::vector<int>& members, const std::vector<std::string>& hosts,
                         const std::string& forced, bool whole_job);

// Whether the setting `forced` names a backend for tensors of `device`, available or not.
bool asks_for(DeviceType device, const std::vector<std::vector<Offer>>& offers, const std::string& forced);

}  // namespace distrun::backend
