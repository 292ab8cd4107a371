#include "runtime/base/log.h"

#include <catch2/catch_test_macros.hpp>
#include <vector>

namespace distrun {
namespace {

TEST_CASE("lines carry the rank and the level, and quieter ones are dropped", "[base]") {
  std::vector<std::string> lines;
  const Log log("warning", 3, [&](const std::string& line) { lines.push_back(line); });
  log.info("not shown");
  log.warning("rank 1 is late");
  log.write(LogLevel::kError, "gone");
  CHECK(lines == std::vector<std::string>{"distrun[3] warning: rank 1 is late\n", "distrun[3] error: gone\n"});
  CHECK_FALSE(log.enabled(LogLevel::kInfo));
}

TEST_CASE("off is silence", "[base]") {
  std::vector<std::string> lines;
  const Log log("off", -1, [&](const std::string& line) { lines.push_back(line); });
  log.error("not shown");
  CHECK(lines.empty());
}

}  // namespace
}  // namespace distrun
