// Files that the kernel refuses to execute: which of them a shell may read as text, and what is wrong with the others.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace distrun::launcher {

// The number of bytes at the start of a file that the kernel looks at (BINPRM_BUF_SIZE). A #! line must fit.
constexpr std::size_t kFileHead = 256;

enum class FileForm {
  kText,         // without a #! line: a shell reads it, as every shell does with such a file
  kScript,       // begins with #!, perhaps after a byte order mark
  kMachineCode,  // ELF
  kOther,        // bytes that are no text
};

// Judges a file by its first kFileHead bytes. Safe between fork and exec: no memory, no locks.
FileForm form_of(std::string_view head) noexcept;

// The first bytes of a file, at most kFileHead; empty if it cannot be read.
std::string head_of(const std::string& path);

// Why execve failed with `error` for a file that begins with `head`, and what to do; empty if the error says it all.
// `host_machine` is the number of the host's own kind of machine in ELF (EM_X86_64).
std::string why_not_executed(std::string_view head, int error, int host_machine);

// The same for a file of this host.
std::string why_not_executed(const std::string& path, int error);

}  // namespace distrun::launcher
