// Agents that an agent starts by ssh. Here ssh is a script of the test.
#include "launcher/agent/host_starter.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <string>

namespace distrun::launcher {
namespace {

struct FakeSsh {
  explicit FakeSsh(const std::string& script) {
    std::string name = "/tmp/distrun-ssh-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    folder = name;
    std::ofstream(folder / "ssh") << "#!/bin/sh\n" << script << "\n";
    REQUIRE(::chmod((folder / "ssh").c_str(), 0755) == 0);
  }
  FakeSsh(const FakeSsh&) = delete;
  FakeSsh& operator=(const FakeSsh&) = delete;
  ~FakeSsh() { std::filesystem::remove_all(folder); }
  [[nodiscard]] HostStarter start(const std::string& host) const {
    StartHosts order{.binary = "/bin/distrun", .ssh = {}, .job_id = "j", .key = {}, .addresses = {}, .hosts = {}};
    order.hosts.push_back({.index = 7, .name = host, .user = ""});
    return HostStarter(order, {{"PATH", folder.string() + ":/usr/bin:/bin"}});
  }
  std::filesystem::path folder;
};

// Waits for the end of the first ssh.
auto failures_after_end(HostStarter& starter) {
  const pid_t pid = starter.carriers().front();
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  CHECK(starter.ended(pid, status));
  return starter.take_failures();
}

TEST_CASE("an ssh that fails is reported with the host's number and what it printed", "[host_starter]") {
  const FakeSsh ssh("echo 'ssh: no route to host' >&2; exit 255");
  HostStarter starter = ssh.start("far");
  REQUIRE(starter.carriers().size() == 1);
  const auto failures = failures_after_end(starter);
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].index == 7);
  CHECK(failures[0].text.find("no route to host") != std::string::npos);
  CHECK(starter.carriers().empty());
  CHECK(starter.take_failures().empty());
}

TEST_CASE("the order to join waits until the agent has greeted", "[host_starter]") {
  // The login shell takes what is there before it starts the agent.
  const FakeSsh ssh("timeout 0.3 cat > $0.before; printf '\\0distrun agent\\n'; head -c 9 > $0.after");
  HostStarter starter = ssh.start("far");
  const pid_t pid = starter.carriers().front();
  const TimePoint limit = deadline_after(60);
  Poller poller;
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0 && Clock::now() < limit) {
    poller.clear();
    starter.watch(poller);
    REQUIRE(poller.wait(deadline_after(0.01)).ok());
  }
  CHECK(starter.ended(pid, status));
  CHECK(std::filesystem::file_size(ssh.folder / "ssh.before") == 0);
  CHECK(std::filesystem::file_size(ssh.folder / "ssh.after") == 9);
}

TEST_CASE("a login shell that ends before the agent is named", "[host_starter]") {
  const FakeSsh ssh("exit 0");
  HostStarter starter = ssh.start("far");
  const auto failures = failures_after_end(starter);
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].text.find("start-up files of the login shell") != std::string::npos);
}

TEST_CASE("the end of another child is none of its business", "[host_starter]") {
  const FakeSsh ssh("exit 0");
  HostStarter starter = ssh.start("far");
  CHECK_FALSE(starter.ended(1, 0));
  const pid_t pid = starter.carriers().front();
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  CHECK(starter.ended(pid, status));
}

TEST_CASE("the ssh to a host that is lost is ended, and no other", "[host_starter]") {
  const FakeSsh ssh("exec sleep 100");
  HostStarter starter = ssh.start("far");
  const pid_t pid = starter.carriers().front();
  starter.end(6);
  int status = 0;
  CHECK(::waitpid(pid, &status, WNOHANG) == 0);
  starter.end(7);
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  CHECK(starter.ended(pid, status));
}

}  // namespace
}  // namespace distrun::launcher
