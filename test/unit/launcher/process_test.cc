#include "launcher/spawn/process.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "launcher/agent/preflight/preflight.h"
#include "launcher/spawn/cgroup.h"
#include "launcher/spawn/descendants.h"
#include "launcher/spawn/poller.h"
#include "test/unit/launcher/sysroot.h"

namespace distrun::launcher {
namespace {

struct Finished {
  std::string output;
  int status = 0;
};

Finished run(ProcessSpec spec) {
  auto pipe = make_pipe();
  REQUIRE(pipe.ok());
  spec.descriptors.emplace_back(pipe->second.get(), 1);
  auto process = start_process(spec);
  REQUIRE(process.ok());
  pipe->second.reset();
  Finished out;
  char buffer[4096];
  ssize_t n = 0;
  while ((n = ::read(pipe->first.get(), buffer, sizeof buffer)) > 0)
    out.output.append(buffer, static_cast<std::size_t>(n));
  REQUIRE(::waitpid(process->pid(), &out.status, 0) == process->pid());
  return out;
}

ProcessSpec shell(const std::string& script) { return {.program = "/bin/sh", .argv = {"sh", "-c", script}}; }

TEST_CASE("a child gets exactly what it is given") {
  ProcessSpec spec = shell("echo $A:$B; pwd; umask; ulimit -n; echo /proc/$$/fd/*; ps -o pid=,pgid=,sid= -p $$");
  spec.environment = {"A=1 2", "PATH=/usr/bin:/bin"};
  spec.cwd = "/usr";
  spec.umask = 027;
  spec.open_files = 77;
  const Finished done = run(spec);
  CHECK(WEXITSTATUS(done.status) == 0);
  INFO(done.output);
  CHECK(done.output.starts_with("1 2:\n/usr\n0027\n77\n"));
  int pid = 0;
  int group = 0;
  int session = 0;
  REQUIRE(std::sscanf(done.output.c_str() + done.output.rfind('\n', done.output.size() - 2) + 1, "%d %d %d", &pid,
                      &group, &session) == 3);
  CHECK(pid == group);
  CHECK(pid == session);
}

TEST_CASE("a child starts with all signals as usual, but SIGQUIT may stay ignored") {
  const auto ignored = [](bool ignore_quit) {
    ProcessSpec spec{.program = "/bin/grep", .argv = {"grep", "SigIgn", "/proc/self/status"}};
    spec.ignore_quit = ignore_quit;
    const std::string text = run(spec).output;
    return std::stoull(text.substr(text.find('\t')), nullptr, 16);
  };
  CHECK(ignored(false) == 0);
  CHECK(ignored(true) == 1ULL << (SIGQUIT - 1));
}

TEST_CASE("a signal that comes before a child has its program is not lost, although this process ignores it") {
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;
  REQUIRE(::sigaction(SIGINT, &ignore, &before) == 0);
  for (int i = 0; i < 20; ++i) {
    auto process = start_process({.program = "/bin/sleep", .argv = {"sleep", "5"}});
    REQUIRE(process.ok());
    process->signal_group(SIGINT);
    int status = 0;
    REQUIRE(::waitpid(process->pid(), &status, 0) == process->pid());
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGINT));
  }
  REQUIRE(::sigaction(SIGINT, &before, nullptr) == 0);
}

TEST_CASE("a script without #! runs in the shell") {
  const test::Sysroot tree;
  tree.write("script", "echo from $1\n");
  std::filesystem::permissions(tree.path() + "script", std::filesystem::perms::owner_all);
  CHECK(run({.program = tree.path() + "script", .argv = {"script", "me"}}).output == "from me\n");
}

TEST_CASE("what keeps a child from running its program is reported") {
  const auto fault_of = [](const ProcessSpec& spec) {
    auto process = start_process(spec);
    REQUIRE(process.ok());
    std::optional<ExecFault> fault;
    while (!(fault = process->take_exec_report())) {
      Poller poller;
      poller.watch(process->exec_report(), POLLIN, [](short) {});
      REQUIRE(poller.wait(deadline_after(60)).ok());
    }
    ::waitpid(process->pid(), nullptr, 0);
    return *fault;
  };
  CHECK(fault_of({.program = "/no/such/program", .argv = {"x"}}).error == ENOENT);
  CHECK(fault_of({.program = "/no/such/program", .argv = {"x"}}).step == 'x');
  CHECK(fault_of({.program = "/", .argv = {"x"}}).error == EACCES);
  CHECK(fault_of({.program = "/bin/true", .argv = {"x"}, .cwd = "/no/such"}).step == 'd');
  CHECK(fault_of({.program = "/bin/true", .argv = {"x"}, .cpus = {4000}}).step == 'a');
  CHECK(fault_of({.program = "/bin/true", .argv = {"true"}}).error == 0);
}

TEST_CASE("descendants are found through sessions and orphaned, and only they are signalled") {
  become_subreaper();
  auto process = start_process(shell("setsid sh -c 'sleep 300 & echo; wait' & exec sleep 300"));
  REQUIRE(process.ok());
  std::vector<ProcessInfo> found;
  const TimePoint until = deadline_after(60);
  while (found.size() < 3 && Clock::now() < until) {
    found = descendants();
    std::erase_if(found, [](const ProcessInfo& info) { return info.name != "sleep" && info.name != "sh"; });
    if (std::count_if(found.begin(), found.end(), [](const ProcessInfo& info) { return info.name == "sleep"; }) < 2)
      found.clear();
  }
  REQUIRE(found.size() >= 3);
  CHECK(descendants({process->pid()}).empty());
  // After its parent has died, the rest is still below this process.
  process->signal(SIGKILL);
  ::waitpid(process->pid(), nullptr, 0);
  process->reaped();
  CHECK_FALSE(process->running());
  int status = 0;
  while (!descendants().empty() && Clock::now() < until) {
    signal_processes(descendants(), SIGKILL);
    while (::waitpid(-1, &status, WNOHANG) > 0) {
    }
  }
  CHECK(descendants().empty());
}

TEST_CASE("the program is found before anything starts, or the reason is told") {
  const test::Sysroot tree;
  tree.write("bin/tool", "");
  tree.write("bin/data", "");
  std::filesystem::permissions(tree.path() + "bin/tool", std::filesystem::perms::owner_all);
  std::filesystem::permissions(tree.path() + "bin/data", std::filesystem::perms::owner_read);
  const auto find = [&](const std::string& name, const std::string& script = "") {
    JobCommon common{.command = {name}, .script = script, .cwd = tree.path() + "bin"};
    common.environment["PATH"] = "/nowhere:" + tree.path() + "bin";
    return find_program(common, "h");
  };
  const auto code = [&](const std::string& name, const std::string& script = "") {
    const Program program = find(name, script);
    return program.refused ? program.refused->exit_code : 0;
  };
  CHECK(find("tool").path == tree.path() + "bin/tool");
  CHECK(find("./tool").path == tree.path() + "bin/./tool");
  CHECK(code("absent") == 127);
  CHECK(code("./absent") == 127);
  CHECK(code("data") == 126);
  CHECK(code("./data") == 126);
  CHECK(code("/") == 126);
  CHECK(code("tool", "absent.py") == 127);
  CHECK(code("tool", "data") == 0);
  JobCommon nowhere{.command = {"true"}, .cwd = "/no/such"};
  CHECK(find_program(nowhere, "h").refused->exit_code == 69);
  JobCommon at_home{.command = {"tool"}, .cwd = "/"};
  at_home.environment = {{"HOME", tree.path() + "."}, {"PATH", "~/bin"}};
  CHECK(find_program(at_home, "h").path == tree.path() + "./bin/tool");
  JobCommon chosen{.command = {"/no/python"}, .choice = "the first Python in PATH", .cwd = "/"};
  CHECK(find_program(chosen, "h").refused->text ==
        "program /no/python does not exist on host h. Check the path. It is the first Python in PATH");
}

TEST_CASE("held ports are free for those who share, and only for them") {
  auto ports = HeldPorts::hold(3);
  REQUIRE(ports.ok());
  std::vector<std::uint16_t> numbers = ports->numbers();
  std::sort(numbers.begin(), numbers.end());
  CHECK(std::adjacent_find(numbers.begin(), numbers.end()) == numbers.end());
  for (const bool share : {false, true}) {
    const Fd socket(::socket(AF_INET, SOCK_STREAM, 0));
    const int on = 1;
    if (share) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(numbers[0]);
    const bool bound = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    CHECK(bound == share);
    if (share) CHECK(::listen(socket.get(), 1) == 0);
  }
}

TEST_CASE("processes that cannot be killed are named, whatever they are called") {
  const test::Sysroot tree;
  tree.write("proc/10/stat", "10 (distrun) S 1 10 10");
  tree.write("proc/11/stat", "11 (python3) D 10 11 11");
  tree.write("proc/11/environ", std::string("A=1\0DISTRUN_RANK=3\0", 19));
  tree.write("proc/12/stat", "12 (a) D ((b) D 11 12 12");
  tree.write("proc/13/stat", "13 (gone) Z 10 13 13");
  tree.write("proc/14/stat", "14 (other) S 1 14 14");
  tree.write("proc/15/stat", "15 (below other) S 14 14 14");
  tree.write("proc/self/stat", "10 (distrun) S 1 10 10");
  const std::string proc = tree.path() + "proc";
  const ProcessTable table = read_processes(proc);
  CHECK(table.size() == 6);
  const auto below = descendants_of(10, table);
  REQUIRE(below.size() == 3);
  CHECK(below[1].name == "a) D ((b");
  CHECK(below[1].state == 'D');
  const auto report = [&](bool (*denied)(pid_t)) { return unkillable(below, proc, denied); };
  CHECK(report([](pid_t) {
          return false;
        }).starts_with("these processes still run, because the kernel cannot kill them now"));
  CHECK(report([](pid_t) { return false; }).ends_with("frozen cgroup: python3 pid 11 of rank 3, a) D ((b pid 12"));
  const std::string mixed = report([](pid_t pid) { return pid == 12; });
  CHECK(mixed.starts_with("these processes still run, because they belong to another user"));
  CHECK(mixed.find("sudo kill PID: a) D ((b pid 12; these processes still run, because the kernel") !=
        std::string::npos);
  CHECK(mixed.ends_with("frozen cgroup: python3 pid 11 of rank 3"));
  CHECK(descendants_of(10, table, {11}).size() == 1);
}

TEST_CASE("a cgroup is made and used where that is possible, and not missed elsewhere") {
  const test::Sysroot tree;
  CHECK(RankCgroup::create(tree.path(), "x").directory().empty());
  CHECK(OomKills(tree.path(), Clock::now()).total() == -1);
  tree.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
  tree.write("proc/self/cgroup", "0::/user/me\n");
  tree.write("sys/fs/cgroup/user/me/memory.events", "low 0\noom_kill 3\n");
  CHECK(OomKills(tree.path(), Clock::now()).total() == 3);
  // A plain directory has no cgroup.kill, like a cgroup of an old kernel. It must not be used, and must be removed.
  CHECK(RankCgroup::create(tree.path(), "x").directory().empty());
  CHECK_FALSE(std::filesystem::exists(tree.path() + "sys/fs/cgroup/user/me/x"));
}

bool none(pid_t) { return false; }
bool of_late(OomKills& kills, TimePoint now) { return kills.of_late(now, none); }

TEST_CASE("a process that the kernel ended for lack of memory long ago does not explain one that is killed now") {
  const test::Sysroot tree;
  const auto count = [&tree](int kills) {
    tree.write("sys/fs/cgroup/me/memory.events", "max 9\noom_kill " + std::to_string(kills) + "\n");
  };
  tree.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
  tree.write("proc/self/cgroup", "0::/me\n");
  count(1);
  const TimePoint start = Clock::now();
  OomKills kills(tree.path(), start);
  CHECK_FALSE(of_late(kills, start + std::chrono::hours(1)));  // those kills were before this job
  count(2);
  const TimePoint then = start + std::chrono::hours(72);
  kills.tick(then);
  CHECK(of_late(kills, then + OomKills::kOfLate));
  const TimePoint later = then + std::chrono::hours(400);
  kills.tick(later);
  CHECK_FALSE(of_late(kills, later));
  count(4);
  CHECK(of_late(kills, later));
  CHECK(of_late(kills, later + std::chrono::seconds(1)));  // one kill after the other: both ran out of memory together
  CHECK_FALSE(OomKills().of_late(later, none));
}

TEST_CASE("with cgroup v1, a process that moved into a memory cgroup of its own is found by that cgroup's count") {
  const test::Sysroot tree;
  const auto count = [&tree](const std::string& cgroup, int kills, const std::string& processes = "") {
    tree.write("memory/" + cgroup + "/memory.oom_control", "under_oom 0\noom_kill " + std::to_string(kills) + "\n");
    tree.write("memory/" + cgroup + "/cgroup.procs", processes);
  };
  tree.write("proc/self/mounts", "cgroup /memory cgroup rw,memory 0 0\n");
  tree.write("proc/self/cgroup", "5:memory:/user/me\n");
  count("user/me", 0);
  count("old", 7);
  const TimePoint start = Clock::now();
  const auto late = [&](OomKills& kills, const std::function<bool(pid_t)>& ours = none) {
    return kills.of_late(start, ours);
  };
  SECTION("kills from before the job") {
    OomKills kills(tree.path(), start);
    CHECK(kills.total() == 0);
    CHECK_FALSE(late(kills));
    count("old", 8);
    CHECK(late(kills));
  }
  SECTION("a cgroup made since then, outside ours or below it") {
    for (const char* cgroup : {"job/rank1", "user/me/rank1"}) {
      OomKills kills(tree.path(), start);
      count(cgroup, 1);
      CHECK(late(kills));
      CHECK(kills.of_late(start + OomKills::kOfLate, none));
      CHECK_FALSE(kills.of_late(start + 2 * OomKills::kOfLate, none));
    }
  }
  SECTION("a cgroup of somebody else's processes") {
    OomKills kills(tree.path(), start);
    for (const char* processes : {"12\n", "0\n"}) {
      count("docker" + std::string(processes, 1), 1, processes);
      CHECK_FALSE(late(kills));
    }
    count("docker1", 2, "12\n");
    CHECK(late(kills, [](pid_t pid) { return pid == 12; }));
  }
}

TEST_CASE("a process in a memory cgroup of its own has a count of its own") {
  const test::Sysroot tree;
  const auto of_7 = [&tree] { return oom_kills_of(tree.path(), 7); };
  tree.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
  tree.write("proc/self/cgroup", "0::/user/me\n");
  CHECK(of_7() == -1);
  tree.write("proc/7/cgroup", "0::/job/step\n");
  CHECK(of_7() == -1);
  tree.write("sys/fs/cgroup/job/step/memory.events", "low 0\noom_kill 2\n");
  CHECK(of_7() == 2);
  // The counter of our own cgroup has the kills below it.
  tree.write("sys/fs/cgroup/user/me/memory.events", "oom_kill 0\n");
  tree.write("sys/fs/cgroup/user/me/child/memory.events", "oom_kill 3\n");
  tree.write("proc/7/cgroup", "0::/user/me/child\n");
  CHECK(of_7() == -1);
  tree.write("proc/7/cgroup", "0::/user/me\n");
  CHECK(of_7() == -1);
  // With cgroup v1, the kernel names the top cgroup for every process that has ended.
  tree.write("proc/self/mounts", "cgroup /memory cgroup rw,memory 0 0\n");
  tree.write("proc/self/cgroup", "5:memory:/user/me\n");
  tree.write("proc/7/cgroup", "5:memory:/\n");
  tree.write("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
  CHECK(of_7() == -1);
}

TEST_CASE("a child is in its cgroup from the first moment, or runs without") {
  const std::string name = rank_cgroup_name("test", ::getpid());
  const RankCgroup cgroup = RankCgroup::create("/", name);
  ProcessSpec spec = shell("cat /proc/self/cgroup");
  spec.cgroup = cgroup.directory();
  const Finished inside = run(spec);
  CHECK(WEXITSTATUS(inside.status) == 0);
  CHECK((inside.output.find("/" + name + "\n") != std::string::npos) == !cgroup.directory().empty());
  spec.cgroup = "/nowhere";
  CHECK(WEXITSTATUS(run(spec).status) == 0);
}

TEST_CASE("what is left in the cgroup of an owner that is gone is ended, and nothing else") {
  // This place is not where jobs that start at the same time look.
  const RankCgroup cgroup = RankCgroup::create("/", "distrun-test-" + std::to_string(::getpid()));
  if (cgroup.directory().empty()) SKIP("no cgroup v2 can be made here");
  const test::Sysroot tree;
  tree.write("proc/self/mounts", "cgroup2 /cgroups cgroup2 rw 0 0\n");
  tree.write("proc/self/cgroup", "0::/\n");
  std::filesystem::create_directory_symlink(cgroup.directory(), tree.path() + "cgroups");
  const RankCgroup mine = RankCgroup::create(tree.path(), rank_cgroup_name("test", ::getpid()));
  REQUIRE_FALSE(mine.directory().empty());
  const std::string abandoned = mine.directory() + "0";  // no process holds its lock
  std::filesystem::create_directory(abandoned);
  ProcessSpec spec = shell("exec sleep 1000");
  spec.cgroup = mine.directory();
  auto held = start_process(spec);
  spec.cgroup = abandoned;
  auto left = start_process(spec);
  REQUIRE((held.ok() && left.ok()));
  const std::vector<pid_t> ended = end_abandoned_cgroups(tree.path());
  CHECK(std::count(ended.begin(), ended.end(), left->pid()) == 1);
  CHECK(std::count(ended.begin(), ended.end(), held->pid()) == 0);
  CHECK_FALSE(std::filesystem::exists(abandoned));
  int status = 0;
  CHECK(::waitpid(left->pid(), &status, 0) == left->pid());
  CHECK(WTERMSIG(status) == SIGKILL);
  CHECK(::waitpid(held->pid(), &status, WNOHANG) == 0);
  held->signal(SIGKILL);
  CHECK(::waitpid(held->pid(), &status, 0) == held->pid());
}

TEST_CASE("a lifeline that its holder drops ends the child and what it has started in its group") {
  auto lifeline = make_pipe();
  auto output = make_pipe();
  REQUIRE((lifeline.ok() && output.ok()));
  ProcessSpec spec = shell("sleep 1000 & echo started; wait");
  spec.descriptors = {{output->second.get(), 1}, {lifeline->first.get(), 5}};
  spec.lifeline = 5;
  auto process = start_process(spec);
  REQUIRE(process.ok());
  lifeline->first.reset();
  output->second.reset();
  char text[64] = {};
  REQUIRE(::read(output->first.get(), text, sizeof text) == 8);
  lifeline->second.reset();
  // The output has ended, so both processes are dead.
  CHECK(::read(output->first.get(), text, sizeof text) == 0);
  int status = 0;
  CHECK(::waitpid(process->pid(), &status, 0) == process->pid());
  CHECK(WTERMSIG(status) == SIGKILL);
}

}  // namespace
}  // namespace distrun::launcher
