#include "runtime/engine/stall.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "runtime/engine/mismatch.h"

namespace distrun::engine {
namespace {

constexpr std::size_t kNamesShown = 6;

struct Wait {
  std::vector<int> missing;
  std::vector<const PendingTensor*> tensors;
};

std::string names_text(const std::vector<const PendingTensor*>& tensors) {
  std::string text;
  for (std::size_t i = 0; i < std::min(tensors.size(), kNamesShown); ++i) {
    text += (i > 0 ? ", " : "") + std::string(name_of(tensors[i]->signature.kind)) + " '" + tensors[i]->name + "'";
  }
  if (tensors.size() > kNamesShown) text += " and " + std::to_string(tensors.size() - kNamesShown) + " more";
  return text;
}

}  // namespace

std::string seconds_text(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

std::string stall_text(const std::vector<const PendingTensor*>& waiting, const std::vector<std::string>& hosts,
                       TimePoint now) {
  std::vector<Wait> waits;  // one per set of missing ranks, in order of the oldest tensor
  for (const PendingTensor* tensor : waiting) {
    auto missing = tensor->missing_ranks();
    auto found = std::find_if(waits.begin(), waits.end(), [&](const Wait& wait) { return wait.missing == missing; });
    if (found == waits.end()) found = waits.insert(found, Wait{.missing = std::move(missing)});
    found->tensors.push_back(tensor);
  }
  std::string text;
  for (const Wait& wait : waits) {
    if (!text.empty()) text += "; ";
    const PendingTensor& oldest = *wait.tensors.front();
    text += "waiting for " + describe_ranks(wait.missing, hosts) + " to submit " + names_text(wait.tensors) + ", " +
            seconds_text(now - oldest.first) + " after " + describe_ranks(oldest.submitted_ranks(), hosts);
  }
  return text;
}

ErrorInfo stall_error(const PendingTensor& tensor, const std::vector<std::string>& hosts, TimePoint now) {
  ErrorInfo error{.code = Errc::kTimeout, .tensor = tensor.name, .ranks = tensor.missing_ranks(), .usable = false};
  if (!error.ranks.empty()) error.host = hosts.at(static_cast<std::size_t>(error.ranks.front()));
  error.cause = "stalled";
  error.message = std::string(name_of(tensor.signature.kind)) + " '" + tensor.name + "' has waited " +
                  seconds_text(now - tensor.first) + " for " + describe_ranks(error.ranks, hosts) +
                  " to submit it, longer than stall_shutdown_time; see what those ranks are doing";
  return error;
}

}  // namespace distrun::engine
