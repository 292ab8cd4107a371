#include "launcher/spawn/executable.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "runtime/base/fd.h"

namespace distrun::launcher {
namespace {

constexpr std::string_view kMark = "\xEF\xBB\xBF";  // UTF-8's byte order mark
constexpr std::string_view kElf =
    "\x7F"
    "ELF";

std::string_view without_mark(std::string_view head) {
  return head.starts_with(kMark) ? head.substr(kMark.size()) : head;
}

// A field of two bytes of an ELF header; 0 if the header is not whole. Its byte order is that of the file's machine.
int elf_field(std::string_view head, std::size_t offset) {
  if (head.size() < sizeof(Elf32_Ehdr)) return 0;
  const auto byte = [head](std::size_t at) { return static_cast<int>(static_cast<unsigned char>(head[at])); };
  const bool big = byte(EI_DATA) == ELFDATA2MSB;
  return big ? byte(offset) << 8 | byte(offset + 1) : byte(offset + 1) << 8 | byte(offset);
}

// The offsets are the same in ELF of 32 bits.
int machine_of(std::string_view head) { return elf_field(head, offsetof(Elf64_Ehdr, e_machine)); }
int type_of(std::string_view head) { return elf_field(head, offsetof(Elf64_Ehdr, e_type)); }
bool is_big_endian(std::string_view head) { return head.size() > EI_DATA && head[EI_DATA] == ELFDATA2MSB; }

std::string name_of_machine(int machine) {
  switch (machine) {
    case EM_PPC:
      return "32-bit POWER";
    case EM_MIPS:
      return "MIPS";
    case EM_SPARCV9:
      return "SPARC";
    case EM_IA_64:
      return "Itanium";
    case 258:  // EM_LOONGARCH, which old headers lack
      return "LoongArch";
    case EM_X86_64:
      return "x86-64";
    case EM_386:
      return "32-bit x86";
    case EM_AARCH64:
      return "ARM64 (aarch64)";
    case EM_ARM:
      return "32-bit ARM";
    case EM_PPC64:
      return "POWER";
    case EM_RISCV:
      return "RISC-V";
    case EM_S390:
      return "IBM Z";
    default:
      return "machine number " + std::to_string(machine);
  }
}

std::string why_no_script(std::string_view head, int error) {
  if (head.starts_with(kMark)) return "it has a byte order mark before #!. Save it without one";
  const std::size_t end = head.find('\n');
  if (end == std::string_view::npos && head.size() >= kFileHead) {
    return "its #! line is too long for Linux. It may have " + std::to_string(kFileHead - 1) +
           " bytes; write #!/usr/bin/env and the program's name";
  }
  const std::string_view line = head.substr(2, end == std::string_view::npos ? end : end - 2);
  const std::size_t begin = std::min(line.find_first_not_of(" \t"), line.size());
  const std::string program(line.substr(begin, line.find_first_of(" \t", begin) - begin));
  if (line.ends_with('\r')) {
    return "its #! line ends with a carriage return, as files from Windows do. Remove them: sed -i 's/\\r$//' FILE";
  }
  if (program.empty()) return "its #! line names no program";
  if (error == EACCES) return "its #! line names " + program + ", which this user may not execute";
  return "its #! line names " + program + ", which " + (error == ENOENT ? "does not exist" : "cannot be executed");
}

}  // namespace

FileForm form_of(std::string_view head) noexcept {
  if (without_mark(head).starts_with("#!")) return FileForm::kScript;
  if (head.starts_with(kElf)) return FileForm::kMachineCode;
  return head.find('\0') == std::string_view::npos ? FileForm::kText : FileForm::kOther;
}

std::string head_of(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string head(kFileHead, '\0');
  const ssize_t n = file.valid() ? ::read(file.get(), head.data(), head.size()) : 0;
  head.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  return head;
}

std::string why_not_executed(std::string_view head, int error, int host_machine) {
  const FileForm form = form_of(head);
  if (error != ENOEXEC && error != ENOENT && error != EACCES && error != ELIBBAD) return {};
  if (form == FileForm::kScript) return why_no_script(head, error);
  if (form == FileForm::kMachineCode && error == ENOENT) {
    return "the program loader that it needs does not exist here. It was built for another system";
  }
  if (error == EACCES) return {};
  if (form == FileForm::kMachineCode) {
    if (type_of(head) == ET_REL) return "it is an object file (.o) of a compiler. Link it to a program first";
    if (type_of(head) == ET_CORE) return "it is a core file: the memory of a program that has crashed";
    const int machine = machine_of(head);
    if (machine == EM_PPC64 && machine == host_machine && is_big_endian(head)) {
      return "it is a program for big-endian POWER, and this host is little-endian";
    }
    if (machine == 0 || machine == host_machine) return "it begins as a program (ELF) does, but it is broken";
    return "it is a program for " + name_of_machine(machine) + ", and this host is " + name_of_machine(host_machine);
  }
  return form == FileForm::kOther ? "it is neither a program for this host nor a text" : "";
}

std::string why_not_executed(const std::string& path, int error) {
  return why_not_executed(head_of(path), error, machine_of(head_of("/proc/self/exe")));
}

}  // namespace distrun::launcher
