#include "runtime/net/host/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "runtime/base/system/fork_guard.h"
#include "runtime/net/host/host_limits.h"

namespace distrun::net {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

std::string describe(const std::string& name, std::size_t bytes) {
  return std::to_string(bytes) + " bytes of shared memory for " + name;
}

}  // namespace

Result<SharedMemory> SharedMemory::create(const std::string& name, std::size_t bytes) {
  DISTRUN_CHECK(bytes > 0, "shared memory has a size");
  SharedMemory memory;
  const std::size_t rounded = whole_pages(bytes);
  DISTRUN_RETURN_IF_ERROR(check_memory(rounded));
  memory.fd_.reset(::memfd_create(("distrun:" + name).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.fd_.valid())
    return errno_status(
        "the system refuses memfd_create for " + describe(name, bytes) + " (a seccomp profile of the container?)",
        errno);
  int failed = 0;
  do {
    failed = ::fallocate(memory.fd_.get(), 0, 0, static_cast<off_t>(rounded)) == 0 ? 0 : errno;
  } while (failed == EINTR);
  if (failed != 0) return errno_status("cannot reserve " + describe(name, bytes) + " (a memory limit?)", failed);
  if (::fcntl(memory.fd_.get(), F_ADD_SEALS, kSizeSeals) != 0)
    return errno_status("cannot seal " + describe(name, bytes), errno);
  DISTRUN_RETURN_IF_ERROR(memory.map(bytes));
  return memory;
}

Result<SharedMemory> SharedMemory::adopt(Fd memfd, std::size_t bytes) {
  SharedMemory memory;
  memory.fd_ = std::move(memfd);
  struct stat info {};
  if (::fstat(memory.fd_.get(), &info) != 0) return errno_status("received shared memory cannot be examined", errno);
  const int seals = ::fcntl(memory.fd_.get(), F_GET_SEALS);
  const bool whole = static_cast<std::size_t>(info.st_size) == whole_pages(bytes) && bytes > 0 &&
                     static_cast<std::size_t>(info.st_blocks) * 512 >= bytes;
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals || !whole)
    return Status(Errc::kProtocol, "the shared memory of another rank is not the " + std::to_string(bytes) +
                                       " bytes that it announced. Use one version of distrun on all ranks");
  DISTRUN_RETURN_IF_ERROR(memory.map(bytes));
  return memory;
}

Status SharedMemory::map(std::size_t bytes) {
  const std::size_t rounded = whole_pages(bytes);
  void* const data = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_.get(), 0);
  if (data == MAP_FAILED)
    return errno_status("cannot map " + std::to_string(bytes) + " bytes of shared memory (ulimit -v?)", errno);
  data_ = static_cast<std::byte*>(data);
  size_ = bytes;
  mapped_ = rounded;
  if (::madvise(data, rounded, MADV_DONTFORK) != 0)
    return errno_status("cannot keep shared memory out of forked children (MADV_DONTFORK)", errno);
  return {};
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

SharedMemory::~SharedMemory() {
  // A forked child does not have this mapping. Another mapping may be at the same address.
  if (data_ != nullptr && !in_forked_child()) ::munmap(data_, mapped_);
}

}  // namespace distrun::net
