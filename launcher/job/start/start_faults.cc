#include "launcher/job/start/start_faults.h"

#include <algorithm>
#include <set>

#include "launcher/exit_codes.h"
#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {

Refusal StartFaults::refusal(const std::vector<std::string>& hosts) const {
  // With --mpi a host has several agents, which report the same fault.
  const std::set<std::string> names(hosts.begin(), hosts.end());
  std::vector<std::string> texts;
  for (const Refusal& fault : faults_) {
    if (std::find(texts.begin(), texts.end(), fault.text) == texts.end()) texts.push_back(fault.text);
  }
  if (names.size() == 1) return {.code = faults_.front().code, .text = texts.front()};
  return {.code = exit_code::kUnusable,
          .text = "the job cannot start, because of " + counted(texts.size(), "host") + " of " +
                  std::to_string(names.size()) + ":\n  " + join(texts, "\n  ")};
}

}  // namespace distrun::launcher
