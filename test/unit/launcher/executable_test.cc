#include "launcher/spawn/executable.h"

#include <elf.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace distrun::launcher {
namespace {

using namespace std::string_literals;

std::string elf_for(int machine, int type = ET_EXEC) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = static_cast<Elf64_Half>(type);
  header.e_machine = static_cast<Elf64_Half>(machine);
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

// The fields of a machine that writes the high byte first.
std::string big_endian_elf(int machine, int type = ET_EXEC) {
  std::string out = elf_for(machine, type);
  out[EI_DATA] = ELFDATA2MSB;
  std::swap(out[16], out[17]);
  std::swap(out[18], out[19]);
  return out;
}

TEST_CASE("a program of a machine with the other byte order is named, and what is no program") {
  const auto why = [](const std::string& head) { return why_not_executed(head, ENOEXEC, EM_X86_64); };
  CHECK(why(big_endian_elf(EM_PPC64)) == "it is a program for POWER, and this host is x86-64");
  CHECK(why(big_endian_elf(EM_S390)) == "it is a program for IBM Z, and this host is x86-64");
  CHECK(why(big_endian_elf(EM_MIPS)) == "it is a program for MIPS, and this host is x86-64");
  CHECK(why(elf_for(258)) == "it is a program for LoongArch, and this host is x86-64");
  CHECK(why_not_executed(big_endian_elf(EM_PPC64), ENOEXEC, EM_PPC64).find("big-endian") != std::string::npos);
  CHECK(why(elf_for(EM_X86_64, ET_REL)).find("it is an object file (.o) of a compiler") == 0);
  CHECK(why(elf_for(EM_AARCH64, ET_REL)).find("it is an object file (.o) of a compiler") == 0);
  CHECK(why(big_endian_elf(EM_S390, ET_REL)).find("it is an object file") == 0);
  CHECK(why(elf_for(EM_X86_64, ET_CORE)).find("it is a core file") == 0);
}

TEST_CASE("only text without a #! line is for a shell") {
  CHECK(form_of("") == FileForm::kText);
  CHECK(form_of("echo hi\n") == FileForm::kText);
  CHECK(form_of("echo \xC3\xBC\n") == FileForm::kText);
  CHECK(form_of("#!/bin/sh\n") == FileForm::kScript);
  CHECK(form_of("\xEF\xBB\xBF#!/bin/sh\n") == FileForm::kScript);
  CHECK(form_of("\x7F"
                "ELF junk") == FileForm::kMachineCode);
  CHECK(form_of(elf_for(EM_AARCH64)) == FileForm::kMachineCode);
  CHECK(form_of("MZ\0\0"s) == FileForm::kOther);
}

TEST_CASE("the reason names what is wrong with the file") {
  const auto why = [](const std::string& head, int error) { return why_not_executed(head, error, EM_X86_64); };
  CHECK(why(elf_for(EM_AARCH64), ENOEXEC) == "it is a program for ARM64 (aarch64), and this host is x86-64");
  CHECK(why(elf_for(EM_X86_64), ENOEXEC).ends_with("it is broken"));
  CHECK(why("\x7F"
            "ELF echo hi\n",
            ENOEXEC)
            .ends_with("it is broken"));
  CHECK(why(elf_for(EM_X86_64), ENOENT).starts_with("the program loader that it needs does not exist"));
  CHECK(why("MZ\0\0"s, ENOEXEC) == "it is neither a program for this host nor a text");
  CHECK(why("#!/" + std::string(300, 'x'), ENOEXEC).starts_with("its #! line is too long for Linux. It may have 255"));
  CHECK(why("#!/opt/gone/python -u\n", ENOENT) == "its #! line names /opt/gone/python, which does not exist");
  CHECK(why("#! /opt/python\n", EACCES) == "its #! line names /opt/python, which this user may not execute");
  CHECK(why("#!/bin/sh\r\necho\r\n", ENOENT).starts_with("its #! line ends with a carriage return"));
  CHECK(why("#!\n", ENOEXEC) == "its #! line names no program");
  CHECK(why("\xEF\xBB\xBF#!/bin/sh\n", ENOEXEC).starts_with("it has a byte order mark before #!"));
  CHECK(why("echo hi\n", EACCES).empty());
  CHECK(why("#!/bin/sh\n", ENOMEM).empty());
}

TEST_CASE("a file of this host that cannot be read has no reason") {
  CHECK(head_of("/nonexistent/file").empty());
  CHECK(why_not_executed("/nonexistent/file", ENOENT).empty());
  CHECK(head_of("/proc/self/exe").size() == kFileHead);
}

}  // namespace
}  // namespace distrun::launcher
