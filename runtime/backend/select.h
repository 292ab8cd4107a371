// Which backend serves a device type in a group: a pure function of all members' offers.
#pragma once

#include <string>
#include <vector>

#include "runtime/backend/factory.h"

namespace distrun::backend {

struct Loser {
  std::string backend;
  std::string reason;  // "lower score (50 < 90)", "rank 3 (node2): not available: libmpi.so.40 not found"
};

struct Selection {
  std::string backend;
  std::string reason;
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
