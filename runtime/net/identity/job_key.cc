// JobKey: the launcher makes it and passes it in a descriptor; the rank reads it once. (Declared in world.h.)
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "runtime/net/identity/key_file.h"
#include "runtime/net/identity/world.h"

namespace distrun::net {
namespace {

constexpr mode_t kKeyMode = 0400;
constexpr int kKeySeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

// There are two causes, and the descriptor does not show which: a wrapper closed it, or another process read it first.
constexpr const char* kClosed =
    "this descriptor is closed. If conda run, sudo, docker run or Python's subprocess starts this program, activate "
    "the environment before distrun, start distrun inside the container, or use close_fds=False. If another process of "
    "this rank has read the key already, ";

Status refused_key(const std::string& variable, const std::string& value, const std::string& why) {
  return {Errc::kInvalidArgument, "cannot read the key of the job from " + variable + "=" + value + ": " + why};
}

bool is_sealed(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & kKeySeals) == kKeySeals;
}

// True if the descriptor cannot be read itself and only refers to sealed memory (O_PATH). The kernel checks the user
// when the memory is opened through it. No other file is opened here, since open() may block or have side effects.
bool is_path_of_memory(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  struct stat info {};
  return flags >= 0 && (flags & O_PATH) != 0 && ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
         info.st_nlink == 0 && (info.st_mode & 07777) == kKeyMode;
}

std::string path_of(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

Result<Fd> open_memory(int path, const std::string& value) {
  Fd memory(::open(path_of(path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (memory.valid()) return memory;
  struct stat info {};
  if (errno == EACCES && ::fstat(path, &info) == 0) {
    return refused_key("DISTRUN_KEY_FD", value,
                       "user " + std::to_string(info.st_uid) + " started distrun, and this process runs as user " +
                           std::to_string(::geteuid()) + ". Start distrun as that user");
  }
  if (errno == ENOENT) {
    return refused_key("DISTRUN_KEY_FD", value, "/proc is not mounted. Mount it");
  }
  return errno_status("cannot open the key of the job", errno);
}

// True for sealed memory, and for a pipe that holds one key and has no writer any more.
bool is_handed_down(int fd) {
  if (is_sealed(fd)) return true;
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode)) return false;
  int waiting = 0;
  pollfd end{.fd = fd, .events = POLLIN, .revents = 0};
  return ::ioctl(fd, FIONREAD, &waiting) == 0 && waiting == static_cast<int>(JobKey::kBytes) &&
         ::poll(&end, 1, 0) == 1 && (end.revents & POLLHUP) != 0;
}

// Reads exactly one key from the start of `fd`. Refuses anything longer or shorter.
Result<JobKey> read_key(int fd, const std::string& variable, const std::string& value) {
  unsigned char bytes[JobKey::kBytes + 1];
  ssize_t n = ::pread(fd, bytes, sizeof(bytes), 0);
  if (n < 0 && errno == ESPIPE) n = ::read(fd, bytes, sizeof(bytes));
  Result<JobKey> key = n == static_cast<ssize_t>(JobKey::kBytes)
                           ? JobKey::from_bytes(bytes, JobKey::kBytes)
                           : Result<JobKey>(refused_key(variable, value, "it does not have exactly 32 bytes"));
  sodium_memzero(bytes, sizeof(bytes));
  return key;
}

Result<JobKey> key_from_fd(const std::string& value) {
  int number = -1;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size() || number < 3) {
    return refused_key("DISTRUN_KEY_FD", value, "it is not the number of a descriptor");
  }
  // The descriptor is closed below in every case, so that no process started from here inherits it. But only if it is
  // the launcher's descriptor: a child that inherited the variable may use the number for another file.
  Fd memory;
  if (is_path_of_memory(number)) {
    auto opened = open_memory(number, value);
    if (!opened.ok()) ::close(number);
    if (!opened.ok()) return opened.status();
    memory = *std::move(opened);
  }
  const int readable = memory.valid() ? memory.get() : number;
  if (!is_handed_down(readable)) return refused_key("DISTRUN_KEY_FD", value, kClosed + std::string(kHowAlone));
  const Fd owned(number);
  return read_key(readable, "DISTRUN_KEY_FD", value);
}

}  // namespace

Result<JobKey> key_from_file(const std::string& path, const std::string& named) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid() && errno == ELOOP) {
    return refused_key(named, path,
                       "it is a link, like a Kubernetes secret. Copy it to a file: install -m 600 " + path + " FILE");
  }
  if (!fd.valid()) return errno_status("cannot open " + named + "=" + path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return errno_status("cannot examine " + named + "=" + path, errno);
  if (!S_ISREG(info.st_mode)) return refused_key(named, path, "it is not a regular file");
  if (info.st_uid != ::geteuid()) {
    return refused_key(named, path,
                       "it belongs to another user. Copy it to a file of yours: install -m 600 " + path + " FILE");
  }
  if ((info.st_mode & 077) != 0) {
    return refused_key(named, path, "other users may read or write it. Run chmod 600 on it");
  }
  return read_key(fd.get(), named, path);
}

JobKey::~JobKey() { sodium_memzero(bytes_, sizeof(bytes_)); }

JobKey JobKey::generate() {
  DISTRUN_CHECK(sodium_init() >= 0, "libsodium cannot be initialised");
  JobKey key;
  randombytes_buf(key.bytes_, sizeof(key.bytes_));
  return key;
}

Result<JobKey> JobKey::from_bytes(const unsigned char* data, std::size_t size) {
  if (size != kBytes) {
    return Status(Errc::kInvalidArgument, "the key of a job has 32 bytes, not " + std::to_string(size));
  }
  if (::sodium_is_zero(data, size) != 0) {
    return Status(Errc::kInvalidArgument,
                  "the key has only zero bytes, which anybody can guess. Make one: head -c 32 /dev/urandom > FILE");
  }
  JobKey key;
  std::memcpy(key.bytes_, data, kBytes);
  return key;
}

Result<JobKey> JobKey::from_environment(const Environment& environment) {
  if (const auto fd = environment.find("DISTRUN_KEY_FD"); fd != environment.end()) return key_from_fd(fd->second);
  if (const auto file = environment.find("DISTRUN_KEY_FILE"); file != environment.end()) {
    return key_from_file(from_home(file->second, environment), file->first);
  }
  return Status(
      Errc::kInvalidArgument,
      "start this program with distrun: neither DISTRUN_KEY_FD nor DISTRUN_KEY_FILE is set, so it has no key of "
      "the job");
}

// Close-on-exec: the agent clears the flag in the rank only. A program that never reads its key passes the descriptor
// on to the programs it starts, perhaps as another user, and every holder could read open memory. So the descriptor
// only names the memory. A rank opens it through /proc, and the kernel checks each open.
Result<Fd> JobKey::to_descriptor() const {
  Fd fd(::memfd_create("distrun-key", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return to_pipe();
  if (::write(fd.get(), bytes_, sizeof(bytes_)) != static_cast<ssize_t>(sizeof(bytes_))) {
    return errno_status("the job's key cannot be written", errno);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kKeySeals) != 0) return errno_status("the job's key cannot be sealed", errno);
  if (::fchmod(fd.get(), kKeyMode) != 0 || ::access("/proc/self/fd", X_OK) != 0) return fd;
  Fd path(static_cast<int>(::syscall(SYS_open_tree, fd.get(), "", AT_EMPTY_PATH | O_CLOEXEC)));
  return path.valid() ? std::move(path) : std::move(fd);  // refused by kernels before 5.2 and in some containers
}

Result<Fd> JobKey::to_pipe() const {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_status("a pipe for the job's key cannot be made", errno);
  Fd reading(ends[0]);
  const Fd writing(ends[1]);
  if (::write(writing.get(), bytes_, sizeof(bytes_)) != static_cast<ssize_t>(sizeof(bytes_))) {
    return errno_status("the job's key cannot be written", errno);
  }
  return reading;
}

}  // namespace distrun::net
