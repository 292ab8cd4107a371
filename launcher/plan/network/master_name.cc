#include "launcher/plan/network/master_name.h"

#include <algorithm>

namespace distrun::launcher {
namespace {

bool is_v6(const std::string& address) { return address.find(':') != std::string::npos; }

bool is_numeric(const std::string& name) {
  return is_v6(name) || name.find_first_not_of("0123456789.") == std::string::npos;
}

bool is_loopback(const std::string& address) { return address == "::1" || address.starts_with("127."); }

// Why the name does not do on that host. Empty: it means the named host there, and nothing else.
std::string objection(const HostAnswer& answer, const std::vector<std::string>& found, const std::string& address,
                      const std::vector<Candidate>& own) {
  if (found.empty()) return answer.host + " does not know that name";
  const auto leads_there = [&](const std::string& one) {
    if (!answer.is_own) return one == address;
    return is_loopback(one) ||
           std::any_of(own.begin(), own.end(), [&one](const auto& its) { return its.address == one; });
  };
  const auto other = std::find_if_not(found.begin(), found.end(), leads_there);
  return other == found.end() ? "" : "on " + answer.host + " it means " + *other;
}

}  // namespace

std::vector<std::string> names_of_host(const std::string& address, const std::string& given, const std::string& own) {
  std::vector<std::string> out;
  if (!is_v6(address)) return out;
  for (const std::string& name : {given, own}) {
    if (!is_numeric(name) && std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  }
  return out;
}

MasterName choose_master_name(const std::vector<std::string>& names, const std::string& address,
                              const std::vector<Candidate>& own, const std::vector<HostAnswer>& answers) {
  std::string against;
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::string why;
    for (const HostAnswer& answer : answers) {
      if (!why.empty()) break;
      why = objection(answer, i < answer.names.size() ? answer.names[i] : std::vector<std::string>(), address, own);
    }
    if (why.empty()) {
      return {.name = names[i], .reason = "MASTER_ADDR is " + names[i] + ", which all hosts resolve to " + address};
    }
    against += "; not " + names[i] + ", because " + why;
  }
  return {.name = {},
          .reason = "MASTER_ADDR is " + address + against + ". Write tcp://[$MASTER_ADDR]:$MASTER_PORT, with brackets"};
}

}  // namespace distrun::launcher
