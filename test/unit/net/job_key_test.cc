#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "runtime/net/identity/key_file.h"
#include "runtime/net/identity/world.h"

namespace distrun::net {
namespace {

bool same(const JobKey& a, const JobKey& b) { return std::memcmp(a.data(), b.data(), JobKey::kBytes) == 0; }

class KeyFile {
 public:
  explicit KeyFile(const std::string& content, mode_t mode = 0600) {
    const Fd fd(::mkstemp(path_.data()));
    REQUIRE(fd.valid());
    REQUIRE(::write(fd.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size()));
    REQUIRE(::fchmod(fd.get(), mode) == 0);
  }
  KeyFile(const KeyFile&) = delete;
  KeyFile& operator=(const KeyFile&) = delete;
  ~KeyFile() { ::unlink(path_.c_str()); }
  [[nodiscard]] Environment environment() const { return {{"DISTRUN_KEY_FILE", path_}}; }

 private:
  std::string path_ = "/tmp/distrun-test-XXXXXX";
};

TEST_CASE("every job has another key", "[job_key]") { CHECK_FALSE(same(JobKey::generate(), JobKey::generate())); }

TEST_CASE("a key has 32 bytes", "[job_key]") {
  const unsigned char bytes[33] = {1, 2, 3};
  CHECK(JobKey::from_bytes(bytes, 32).ok());
  CHECK(JobKey::from_bytes(bytes, 31).status().code() == Errc::kInvalidArgument);
  CHECK(JobKey::from_bytes(bytes, 33).status().code() == Errc::kInvalidArgument);
}

TEST_CASE("a key of zeros is refused", "[job_key]") {
  const unsigned char zeros[32] = {};
  const Status refused = JobKey::from_bytes(zeros, 32).status();
  CHECK(refused.code() == Errc::kInvalidArgument);
  CHECK(refused.message().find("only zero bytes") != std::string::npos);
  const std::string by_file = JobKey::from_environment(KeyFile(std::string(32, '\0')).environment()).status().message();
  CHECK(by_file.find("only zero bytes") != std::string::npos);
}

TEST_CASE("a key goes through a sealed memfd and its descriptor is closed after reading", "[job_key]") {
  const JobKey key = JobKey::generate();
  auto fd = key.to_descriptor();
  REQUIRE(fd.ok());
  CHECK(::write(fd->get(), "x", 1) == -1);
  CHECK(::ftruncate(fd->get(), 0) == -1);
  char byte = 0;
  CHECK(::pread(fd->get(), &byte, 1, 0) == -1);  // the descriptor only names the memory
  const int number = fd->release();
  const Environment environment{{"DISTRUN_KEY_FD", std::to_string(number)}};
  const auto read = JobKey::from_environment(environment);
  REQUIRE(read.ok());
  CHECK(same(*read, key));
  CHECK(::fcntl(number, F_GETFD) == -1);
  // The second reader (a child with an inherited environment) gets an error that says why.
  CHECK(JobKey::from_environment(environment).status().message().find("has read the key already") != std::string::npos);
}

// Runs in a child process, because a thread cannot change only its own user.
TEST_CASE("another user who inherits the descriptor cannot open the key", "[job_key]") {
  constexpr uid_t kNobody = 65534;
  if (::geteuid() != 0) SKIP("only root may become another user");
  auto fd = JobKey::generate().to_descriptor();
  REQUIRE(fd.ok());
  const int number = fd->release();
  const Environment environment{{"DISTRUN_KEY_FD", std::to_string(number)}};
  const pid_t child = ::fork();
  if (child == 0) {
    const bool other = ::setresuid(kNobody, kNobody, kNobody) == 0 && ::prctl(PR_SET_DUMPABLE, 1) == 0;
    const Status refused = JobKey::from_environment(environment).status();
    const bool named = !refused.ok() && refused.message().find("user 0 started distrun") != std::string::npos &&
                       refused.message().find("runs as user 65534") != std::string::npos;
    ::_exit(other && named && ::fcntl(number, F_GETFD) == -1 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(JobKey::from_environment(environment).ok());
}

TEST_CASE("a descriptor that a wrapper has closed is told apart, with the cure for wrappers first", "[job_key]") {
  auto fd = JobKey::generate().to_descriptor();
  REQUIRE(fd.ok());
  const std::string number = std::to_string(fd->get());
  fd->reset();
  const std::string text = JobKey::from_environment({{"DISTRUN_KEY_FD", number}}).status().message();
  const std::size_t cure = text.find("activate the environment before distrun");
  CHECK(cure != std::string::npos);
  CHECK(cure < text.find("distrun --no-detect -np 1 program"));
}

// Does what the seccomp profile of a container does. It affects only this thread, and cannot be undone.
void refuse_memfd() {
  std::array<sock_filter, 4> program{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
                                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog filter{.len = program.size(), .filter = program.data()};
  REQUIRE(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  REQUIRE(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

TEST_CASE("where memfd is refused the key goes through a pipe, once", "[job_key]") {
  const JobKey key = JobKey::generate();
  std::jthread([&key] {
    refuse_memfd();
    auto fd = key.to_descriptor();
    REQUIRE(fd.ok());
    CHECK(::write(fd->get(), "x", 1) == -1);
    const int number = fd->release();
    const Environment environment{{"DISTRUN_KEY_FD", std::to_string(number)}};
    const auto read = JobKey::from_environment(environment);
    REQUIRE(read.ok());
    CHECK(same(*read, key));
    CHECK(::fcntl(number, F_GETFD) == -1);
    CHECK(JobKey::from_environment(environment).status().message().find("has read the key already") !=
          std::string::npos);
  }).join();
}

TEST_CASE("pipes that a program made are not taken for the key's", "[job_key]") {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{31}, std::size_t{32}, std::size_t{33}}) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const Fd reading(ends[0]);
    Fd writing(ends[1]);
    const std::string content(bytes, 'k');
    REQUIRE(::write(writing.get(), content.data(), bytes) == static_cast<ssize_t>(bytes));
    if (bytes != JobKey::kBytes) writing.reset();  // with the right size, the write end stays open
    CHECK_FALSE(JobKey::from_environment({{"DISTRUN_KEY_FD", std::to_string(reading.get())}}).ok());
    std::string left(bytes + 1, '\0');
    CHECK((bytes == 0 || ::read(reading.get(), left.data(), left.size()) == static_cast<ssize_t>(bytes)));
  }
}

TEST_CASE("a descriptor that is not the launcher's is refused and left open", "[job_key]") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd a(ends[0]);
  const Fd b(ends[1]);
  const Fd folder(::open("/tmp", O_PATH | O_CLOEXEC));
  CHECK_FALSE(JobKey::from_environment({{"DISTRUN_KEY_FD", std::to_string(folder.get())}}).ok());
  CHECK(::fcntl(folder.get(), F_GETFD) != -1);
  CHECK_FALSE(JobKey::from_environment({{"DISTRUN_KEY_FD", std::to_string(a.get())}}).ok());
  CHECK(::fcntl(a.get(), F_GETFD) != -1);
  for (const char* bad : {"", "x", "1x", "-4", "0", "99999999999999"}) {
    CHECK(JobKey::from_environment({{"DISTRUN_KEY_FD", bad}}).status().code() == Errc::kInvalidArgument);
  }
}

TEST_CASE("a key file must be private, regular and of the right size", "[job_key]") {
  CHECK(JobKey::from_environment(KeyFile(std::string(32, 'k')).environment()).ok());
  CHECK_FALSE(JobKey::from_environment(KeyFile(std::string(31, 'k')).environment()).ok());
  CHECK_FALSE(JobKey::from_environment(KeyFile(std::string(33, 'k')).environment()).ok());
  const auto open_to_others = JobKey::from_environment(KeyFile(std::string(32, 'k'), 0640).environment());
  CHECK(open_to_others.status().message().find("chmod 600") != std::string::npos);
  CHECK_FALSE(JobKey::from_environment({{"DISTRUN_KEY_FILE", "/tmp"}}).ok());
  CHECK_FALSE(JobKey::from_environment({{"DISTRUN_KEY_FILE", "/nonexistent/key"}}).ok());
}

TEST_CASE("a key file's error names what gave it, and what to do about a link", "[job_key]") {
  const KeyFile file(std::string(32, 'k'));
  const std::string path = file.environment().at("DISTRUN_KEY_FILE");
  const std::string link = path + ".link";
  REQUIRE(::symlink(path.c_str(), link.c_str()) == 0);
  const std::string by_flag = key_from_file(link, "--key-file").status().message();
  CHECK(by_flag.starts_with("cannot read the key of the job from --key-file=" + link));
  CHECK(by_flag.find("install -m 600 " + link) != std::string::npos);
  CHECK(by_flag.find("DISTRUN_KEY_FILE") == std::string::npos);
  CHECK(JobKey::from_environment({{"DISTRUN_KEY_FILE", link}}).status().message().find("from DISTRUN_KEY_FILE=") !=
        std::string::npos);
  const std::string copied = path + ".copy";
  CHECK(std::system(("install -m 600 " + link + " " + copied).c_str()) == 0);
  CHECK(key_from_file(copied, "--key-file").ok());
  for (const std::string& made : {link, copied}) ::unlink(made.c_str());
}

TEST_CASE("without a key the text says how to start the job", "[job_key]") {
  CHECK(JobKey::from_environment({}).status().message().find("start this program with distrun") != std::string::npos);
}

}  // namespace
}  // namespace distrun::net
