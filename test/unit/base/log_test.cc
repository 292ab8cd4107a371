#include "runtime/base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "runtime/base/fd.h"

namespace distrun {
namespace {

TEST_CASE("lines carry the rank and the level, and quieter ones are dropped", "[base]") {
  std::vector<std::string> lines;
  const Log log("warning", 3, [&](const std::string& line) { lines.push_back(line); });
  log.info("not shown");
  log.warning("rank 1 is late");
  log.write(LogLevel::kError, "gone");
  CHECK(lines ==
        std::vector<std::string>{"distrun: rank 3 warning: rank 1 is late\n", "distrun: rank 3 error: gone\n"});
  CHECK_FALSE(log.enabled(LogLevel::kInfo));
}

TEST_CASE("where nobody reads, lines are counted and nobody waits for long", "[base]") {
  int ends[2] = {};
  REQUIRE(::pipe(ends) == 0);
  const Fd reader(ends[0]);
  const Fd writer(ends[1]);
  REQUIRE(::fcntl(writer.get(), F_SETPIPE_SZ, 4096) > 0);
  const Log log("info", -1, lines_to(writer.get()));
  const std::string page(4096, 'x');
  REQUIRE(::write(writer.get(), page.data(), page.size()) == 4096);  // the pipe is full: another write would block
  log.info("lost");
  log.info("lost too");
  char text[8192] = {};
  REQUIRE(::read(reader.get(), text, sizeof text) == 4096);
  log.info("there");
  const auto size = static_cast<std::size_t>(::read(reader.get(), text, sizeof text));
  CHECK(std::string(text, size) == "distrun: lines that nobody read are lost here: 2\ndistrun: info: there\n");
  log.info(std::string(3000, 'y'));
  log.info(std::string(3000, 'z'));
  REQUIRE(::read(reader.get(), text, sizeof text) > 3000);
  log.info("again");
  const auto last = static_cast<std::size_t>(::read(reader.get(), text, sizeof text));
  CHECK(std::string(text, last) == "distrun: lines that nobody read are lost here: 1\ndistrun: info: again\n");
}

TEST_CASE("off is silence", "[base]") {
  std::vector<std::string> lines;
  const Log log("off", -1, [&](const std::string& line) { lines.push_back(line); });
  log.error("not shown");
  CHECK(lines.empty());
}

}  // namespace
}  // namespace distrun
