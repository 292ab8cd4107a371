// The name of rank 0's host for MASTER_ADDR. Scripts write tcp://$MASTER_ADDR:$MASTER_PORT, which is no address if
// MASTER_ADDR is an IPv6 address. A name takes its place if every host resolves it to that address. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/network/network.h"

namespace distrun::launcher {

// What one host knows of the names: the addresses of each, in the order of the question. Empty: the name is unknown.
using ResolvedNames = std::vector<std::vector<std::string>>;

// The names that may stand for the host: as the user gave it, and as it calls itself. None if `address` needs no name.
std::vector<std::string> names_of_host(const std::string& address, const std::string& given, const std::string& own);

struct HostAnswer {
  std::string host;
  bool is_own = false;  // the named host itself, where a name may also mean a loopback address
  ResolvedNames names;
};

struct MasterName {
  std::string name;  // empty: none
  std::string reason;
};
// `own`: all addresses of the named host. `address`: the one that the others connect to.
MasterName choose_master_name(const std::vector<std::string>& names, const std::string& address,
                              const std::vector<Candidate>& own, const std::vector<HostAnswer>& answers);

}  // namespace distrun::launcher
