#include "launcher/spawn/mpi_leftovers.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

namespace distrun::launcher {
namespace {

using Files = std::filesystem::path;

OpenMpiJob job_of(const Environment& environment) {
  const auto job = open_mpi_job(environment, "h1.site", ::geteuid());
  REQUIRE(job.has_value());
  return *job;
}

struct LeftoversFolder {
  LeftoversFolder() {
    char name[] = "/tmp/distrun_leftovers_XXXXXX";
    path = ::mkdtemp(name);
  }
  ~LeftoversFolder() { std::filesystem::remove_all(path); }
  LeftoversFolder(const LeftoversFolder&) = delete;
  LeftoversFolder& operator=(const LeftoversFolder&) = delete;
  Files path;
};

std::string me() { return std::to_string(::geteuid()); }

void touch(const Files& path) { std::ofstream(path) << "x"; }

pid_t ended_process() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  ::waitpid(pid, nullptr, 0);
  return pid;
}

TEST_CASE("the numbers of a namespace are those that Open MPI makes of it", "[mpi_leftovers]") {
  // Observed with Open MPI 4.1.4 and 5.0.11.
  CHECK(job_of({{"PMIX_NAMESPACE", "1490419713"}}).owns(0x58d60001));
  CHECK(job_of({{"PMIX_NAMESPACE", "prterun-vm-14384@1"}}).owns(0x045f0001));
  // Jobs that the ranks spawn.
  CHECK(job_of({{"PMIX_NAMESPACE", "1490419713"}}).owns(0x58d60002));
  CHECK(job_of({{"PMIX_NAMESPACE", "prterun-vm-14384@1"}}).owns(0x045f0002));
  CHECK_FALSE(job_of({{"PMIX_NAMESPACE", "1490419713"}}).owns(0x58d70001));
  CHECK_FALSE(job_of({{"PMIX_NAMESPACE", "prterun-vm-14385@1"}}).owns(0x045f0001));
  CHECK(job_of({{"OMPI_MCA_ess_base_jobid", "1490419713"}}).owns(0x58d60001));
  CHECK_FALSE(open_mpi_job({{"PMI_RANK", "0"}}, "h1", 0));
}

TEST_CASE("shared memory belongs to one job, user and host", "[mpi_leftovers]") {
  const OpenMpiJob job = job_of({{"PMIX_NAMESPACE", "1490419713"}});
  const auto ours = [&](const std::string& name, std::optional<int> rank = std::nullopt) {
    return is_shared_memory_of(job, name, rank);
  };
  CHECK(ours("vader_segment.h1." + me() + ".58d60001.0"));
  CHECK(ours("vader_segment.h1.site." + me() + ".58d60001.0"));
  CHECK(ours("sm_segment.h1." + me() + ".58d60001.11", 11));
  CHECK(ours("osc_sm.h1.58d60001.0.3"));
  CHECK_FALSE(ours("sm_segment.h1." + me() + ".58d60001.11", 1));
  CHECK_FALSE(ours("vader_segment.h2." + me() + ".58d60001.0"));
  CHECK_FALSE(ours("vader_segment.h1.12345." + std::string("58d60001.0")));
  CHECK_FALSE(ours("vader_segment.h1." + me() + ".58d70001.0"));
  CHECK_FALSE(ours("vader_segment.h1." + me() + ".58d60001"));
  CHECK_FALSE(ours("vader_segment.h1." + me() + ".58d60001.x"));
  CHECK_FALSE(ours("my_segment.h1." + me() + ".58d60001.0"));
  CHECK_FALSE(ours("vader_segment"));
}

TEST_CASE("a daemon's folder is known by its name only", "[mpi_leftovers]") {
  CHECK(daemon_of_folder("ompi.h1.0/pid.42", "h1", 0) == 42);
  CHECK(daemon_of_folder("prte.h1.0/dvm.42", "h1", 0) == 42);
  CHECK(daemon_of_folder("ompi.42", "h1", 0) == 42);
  for (const char* name : {"ompi.h2.0/pid.42", "ompi.h1.1/pid.42", "ompi.h1.0/jf.42", "ompi.h1.0", "ompi.", "pid.42",
                           "ompi.h1.0/pid.42x", "ompi.x"}) {
    INFO(name);
    CHECK_FALSE(daemon_of_folder(name, "h1", 0));
  }
  const std::string users = "/tmp/ompi.h1.site." + me();
  CHECK(job_of({{"PMIX_NAMESPACE", "1"}, {"PMIX_SERVER_TMPDIR", users + "/jf.7"}}).folder == users + "/jf.7");
  CHECK(job_of({{"PMIX_NAMESPACE", "a@1"}, {"PMIX_SERVER_TMPDIR", "/tmp/ompi.77"}}).folder == "/tmp/ompi.77");
  CHECK(job_of({{"PMIX_NAMESPACE", "1"}, {"PMIX_SERVER_TMPDIR", "/var/spool/slurmd/pmix.1.0"}}).folder.empty());
  CHECK(job_of({{"PMIX_NAMESPACE", "1"}, {"PMIX_SERVER_TMPDIR", "/tmp"}}).folder.empty());
}

TEST_CASE("only what belongs to the job is removed", "[mpi_leftovers]") {
  const LeftoversFolder folder;
  const Files base = folder.path;
  const std::string host = "h1";
  const pid_t ended = ended_process();
  const Files users = base / ("ompi." + host + "." + me());
  const Files ours = users / ("pid." + std::to_string(ended));
  const Files alive = users / ("pid." + std::to_string(::getpid()));
  const Files memory = base / "shm";
  for (const Files& one : {ours / "1/0", alive, memory}) std::filesystem::create_directories(one);
  std::ofstream(ours / "contact.txt") << "1490419712.0;tcp://127.0.0.1:7\n";
  const Files segment = memory / ("vader_segment.h1." + me() + ".58d60001.0");
  const Files other = memory / ("vader_segment.h1." + me() + ".58d70001.0");
  for (const Files& one : {segment, other}) touch(one);

  SECTION("a daemon that this one has not started") { remove_leftovers_of({}, host, ::geteuid(), base, memory); }
  SECTION("a daemon that runs") {
    remove_leftovers_of({::getpid()}, host, ::geteuid(), base, memory);
    CHECK(std::filesystem::exists(alive));
  }
  SECTION("a daemon that has ended") {
    remove_leftovers_of({ended, ::getpid()}, host, ::geteuid(), base, memory);
    CHECK_FALSE(std::filesystem::exists(ours));
    CHECK_FALSE(std::filesystem::exists(segment));
    CHECK(std::filesystem::exists(alive));
    CHECK(std::filesystem::exists(other));
    std::filesystem::remove_all(alive);
    return;
  }
  CHECK(std::filesystem::exists(ours));
  CHECK(std::filesystem::exists(segment));
}

TEST_CASE("nothing is removed through a link", "[mpi_leftovers]") {
  const LeftoversFolder folder;
  const Files base = folder.path;
  std::filesystem::create_directories(base / "precious");
  touch(base / "precious/file");
  std::filesystem::create_directory_symlink(base / "precious", base / "ompi.77");
  OpenMpiJob job = job_of({{"PMIX_NAMESPACE", "a@1"}});
  job.folder = base / "ompi.77";
  remove_daemon_folder(job);
  CHECK(std::filesystem::exists(base / "precious/file"));
  std::filesystem::create_directories(base / "ompi.78/x");
  job.folder = base / "ompi.78";
  remove_daemon_folder(job);
  CHECK_FALSE(std::filesystem::exists(base / "ompi.78"));
  CHECK(std::filesystem::exists(base));
}

}  // namespace
}  // namespace distrun::launcher
