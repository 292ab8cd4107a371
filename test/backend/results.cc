#include "test/backend/results.h"

#include <catch2/catch_test_case_info.hpp>
#include <catch2/interfaces/catch_interfaces_registry_hub.hpp>
#include <catch2/interfaces/catch_interfaces_testcase.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "test/backend/conformance.h"

extern const char* const kConformanceResults;

namespace distrun::test {
namespace {

struct Results {
  std::mutex mutex;
  std::set<std::pair<OpKind, DType>> pairs;
};

Results& results() {
  static Results all;
  return all;
}

// Whether a test case is about one operation. Such cases have names like "broadcast: every dtype".
bool is_of_operation(const std::string& name) {
  for (int kind = 0; kind < kNumOpKinds; ++kind) {
    if (name.starts_with(std::string(name_of(static_cast<OpKind>(kind))) + ":")) return true;
  }
  return false;
}

// Whether all cases about operations have run. A run of a few chosen cases says nothing about the rest. The test counts
// cases that ran, not cases that worked, because a backend that no longer offers an operation must show up.
bool is_whole(const std::set<std::string>& ran) {
  int cases = 0;
  for (const Catch::TestCaseInfo* info : Catch::getRegistryHub().getTestCaseRegistry().getAllInfos()) {
    if (!is_of_operation(info->name)) continue;
    ++cases;
    if (!ran.contains(info->name)) return false;
  }
  return cases > 0;
}

class Writer final : public Catch::EventListenerBase {
 public:
  using Catch::EventListenerBase::EventListenerBase;
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (stats.totals.testCases.skipped == 0) ran_.insert(stats.testInfo->name);
  }
  void testRunEnded(const Catch::TestRunStats& stats) override {
    const Subject& tested = subject();
    if (stats.totals.assertions.failed > 0 || tested.launched_as > 0 || !is_whole(ran_)) return;
    std::string sizes;
    for (const int size : tested.sizes) sizes += "." + std::to_string(size);
    // One folder for each program. Several programs test one backend with the same number of ranks: over gloo or tcp,
    // on the CPU or on GPUs.
    const std::filesystem::path folder =
        std::filesystem::path(kConformanceResults) / std::filesystem::read_symlink("/proc/self/exe").filename();
    std::filesystem::create_directories(folder);
    std::ofstream file(folder / (tested.name + sizes));
    for (const auto& [kind, dtype] : results().pairs) file << name_of(kind) << ' ' << name_of(dtype) << '\n';
  }

 private:
  std::set<std::string> ran_;
};
CATCH_REGISTER_LISTENER(Writer)

}  // namespace

void record_success(OpKind kind, DType dtype) {
  const std::lock_guard<std::mutex> lock(results().mutex);
  results().pairs.emplace(kind, dtype);
}

}  // namespace distrun::test
