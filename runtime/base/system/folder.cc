#include "runtime/base/system/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace distrun {

Folder::Folder(const std::string& path) : directory_(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  struct stat found {};
  if (!directory_.valid()) return;
  if (::fstat(directory_.get(), &found) != 0) found.st_mode = S_IWOTH;  // not known, so not trusted
  const bool ours = found.st_uid == ::geteuid() || found.st_uid == 0;
  trusted_ = ours && (found.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

Folder::Opened Folder::open_to_write(const std::string& name, int how) const {
  const int guarded = trusted_ ? 0 : O_NOFOLLOW | O_NONBLOCK;
  // Do not let open() truncate the file before fstat() has shown that it is a plain file.
  const int cut = trusted_ ? 0 : how & O_TRUNC;
  Opened out{.file = Fd(::openat(directory_.get(), name.c_str(),
                                 (how & ~cut) | O_WRONLY | O_CREAT | O_CLOEXEC | guarded, 0666))};
  if (!out.file.valid()) out.error = errno;
  if (trusted_) return out;
  struct stat found {};
  const bool plain = out.file.valid() ? ::fstat(out.file.get(), &found) == 0 && S_ISREG(found.st_mode)
                                      : out.error != ELOOP && out.error != ENXIO;
  if (!plain) return {.refused = true};
  if (out.file.valid() && cut != 0 && ::ftruncate(out.file.get(), 0) != 0) return {.error = errno};
  return out;
}

}  // namespace distrun
