#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <thread>
#include <utility>

#include "runtime/base/fd.h"
#include "runtime/net/launchers/pmi_message.h"
#include "runtime/net/launchers/spawner_exchange.h"

namespace distrun::net {
namespace {

// A process manager that answers as MPICH's does, line by line, until its rank sends a goodbye.
class Manager {
 public:
  // `value`: the value that rank 0 has already put.
  explicit Manager(bool everybody_comes = true, std::string value = {})
      : everybody_comes_(everybody_comes), value_(std::move(value)) {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    rank_.reset(ends[0]);
    own_.reset(ends[1]);
    thread_ = std::thread([this] { serve(); });
  }
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;
  ~Manager() {
    rank_.reset();
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] int fd() const { return rank_.get(); }
  void hang_up() { ::shutdown(rank_.get(), SHUT_RDWR); }
  // All commands that it received, in order. This ends the manager without waiting for the rank's goodbye.
  std::string commands() {
    hang_up();
    thread_.join();
    return commands_;
  }

 private:
  void serve() {
    std::string line;
    for (char c = 0; ::read(own_.get(), &c, 1) == 1;) {
      if (c != '\n') {
        line += c;
        continue;
      }
      const auto words = parse_pmi(line);
      if (!words.ok()) return;
      line.clear();
      const std::string answer = answer_to(*words);
      if (!answer.empty() && ::send(own_.get(), answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return;
    }
  }
  std::string answer_to(const std::map<std::string, std::string>& words) {
    const std::string& cmd = words.at("cmd");
    commands_ += cmd + " ";
    if (cmd == "init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    if (cmd == "get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_7_0\n";
    if (cmd == "put") value_ = words.at("value");
    if (cmd == "put") return "cmd=put_result rc=0 msg=success\n";
    if (cmd == "barrier_in") return everybody_comes_ ? "cmd=barrier_out\n" : "";
    if (cmd == "finalize") return "cmd=finalize_ack\n";
    if (value_.empty()) return "cmd=get_result rc=-1 msg=key_not_found value=unknown\n";
    return "cmd=get_result rc=0 msg=success value=" + value_ + "\n";
  }

  const bool everybody_comes_;
  std::string value_;     // used by the thread
  std::string commands_;  // used by the thread until it has ended
  Fd rank_;
  Fd own_;
  std::thread thread_;
};

TEST_CASE("rank 0's text comes back, and the goodbye is said", "[net]") {
  Manager manager;
  {
    const auto exchange = open_pmi(manager.fd(), 0, deadline_after(20));
    REQUIRE(exchange.ok());
    const auto text = (*exchange)->share("distrun1/a/b", deadline_after(20));
    REQUIRE(text.ok());
    CHECK(*text == "distrun1/a/b");
  }
  CHECK(manager.commands() == "init get_my_kvsname put barrier_in get finalize ");
}

TEST_CASE("the others put nothing", "[net]") {
  Manager manager(true, "from rank 0");
  const auto exchange = open_pmi(manager.fd(), 3, deadline_after(20));
  REQUIRE(exchange.ok());
  const auto text = (*exchange)->share("mine", deadline_after(20));
  REQUIRE(text.ok());
  CHECK(*text == "from rank 0");
  CHECK((*exchange)->size(deadline_after(1)).status().code() == Errc::kUnsupported);
}

TEST_CASE("ranks that do not come are a timeout, not a hang", "[net]") {
  Manager manager(false);
  const auto exchange = open_pmi(manager.fd(), 1, deadline_after(20));
  REQUIRE(exchange.ok());
  const auto text = (*exchange)->share("", deadline_after(0.05));
  REQUIRE_FALSE(text.ok());
  CHECK(text.status().code() == Errc::kTimeout);
  CHECK(text.status().message().find("did not call init()") != std::string::npos);
}

TEST_CASE("a refusal and a launcher that is gone are errors", "[net]") {
  Manager manager;
  const auto exchange = open_pmi(manager.fd(), 1, deadline_after(20));
  REQUIRE(exchange.ok());
  CHECK((*exchange)->share("", deadline_after(20)).status().message().find("key_not_found") != std::string::npos);
  manager.hang_up();
  CHECK_FALSE((*exchange)->share("", deadline_after(20)).ok());
}

TEST_CASE("a descriptor that is no socket is refused by name", "[net]") {
  const Fd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {file.get(), 987654}) {
    const auto exchange = open_pmi(fd, 0, deadline_after(1));
    REQUIRE_FALSE(exchange.ok());
    CHECK(exchange.status().message().find("PMI_FD=" + std::to_string(fd)) != std::string::npos);
  }
}

TEST_CASE("a line of PMI is read by words", "[net]") {
  const auto words = parse_pmi("cmd=get_result rc=-1 msg=key not found  value=a=b");
  REQUIRE(words.ok());
  CHECK(words->at("cmd") == "get_result");
  CHECK(words->at("msg") == "key not found");
  CHECK(words->at("value") == "a=b");
  CHECK_FALSE(parse_pmi("").ok());
  CHECK_FALSE(parse_pmi("rc=0").ok());
  CHECK_FALSE(parse_pmi("hello cmd=init").ok());
}

}  // namespace
}  // namespace distrun::net
