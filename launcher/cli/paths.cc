#include "launcher/cli/paths.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <utility>

#include "launcher/spawn/agent_spawner.h"

namespace distrun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libdistrun.so";
// The last one is that of a build tree.
constexpr std::array<const char*, 5> kLibraryFolders = {"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu",
                                                        "runtime/api"};

// Returns zeros if there is no library.
std::pair<time_t, long> installed_at(const fs::path& root) {
  for (const char* folder : kLibraryFolders) {
    struct stat info {};
    if (::stat((root / folder / kLibrary).c_str(), &info) == 0) return {info.st_ctim.tv_sec, info.st_ctim.tv_nsec};
  }
  return {};
}

// Folders that may contain lib/ or include/. A prefix has them itself. A wheel has them in
// <prefix>/lib/pythonX.Y/site-packages/distrun, or in <prefix>/distrun after `pip install --target`.
std::vector<fs::path> roots() {
  const fs::path bin = fs::path(own_program()).parent_path();
  std::vector<fs::path> out = {bin.parent_path()};
  std::error_code error;
  for (const char* lib : {"lib", "lib64"}) {  // Fedora's Python uses lib64
    for (const auto& entry : fs::directory_iterator(bin.parent_path() / lib, error)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("python3") || name.starts_with("pypy3")) {
        out.push_back(entry.path() / "site-packages" / "distrun");
        out.push_back(entry.path() / "dist-packages" / "distrun");
      }
    }
  }
  out.push_back(bin.parent_path() / "distrun");
  // Installations of several Pythons and of cmake may share one bin folder. The program there belongs to the newest
  // one.
  std::stable_sort(out.begin(), out.end(),
                   [](const fs::path& a, const fs::path& b) { return installed_at(a) > installed_at(b); });
  return out;
}

Status not_found(const std::string& file, const std::string& below) {
  std::string text = file + " was not found. Install distrun again. distrun looked in " + below + " of";
  for (const fs::path& root : roots()) text += " " + root.string();
  return {Errc::kUnsupported, text};
}

std::string first_existing(const std::vector<std::string>& below, const std::string& file) {
  std::error_code error;
  for (const fs::path& root : roots()) {
    for (const std::string& directory : below) {
      const fs::path candidate = root / directory / file;
      if (fs::exists(candidate, error)) return fs::canonical(candidate, error).string();
    }
  }
  return {};
}

// Escapes as pkg-config does. A shell, make or shlex that reads the words again gets the path back.
std::string escaped(const std::string& path) {
  std::string out;
  for (const char c : path) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || static_cast<unsigned char>(c) >= 0x80;
    if (!plain && std::string_view("/._-+,:=@%^~").find(c) == std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string own_program() { return own_binary(); }

std::vector<std::string> libraries() {
  std::vector<std::string> out;
  std::error_code error;
  for (const fs::path& root : roots()) {
    for (const char* folder : kLibraryFolders) {
      const std::string found = fs::canonical(root / folder / kLibrary, error).string();
      // lib64 may be a link to lib.
      if (!found.empty() && std::find(out.begin(), out.end(), found) == out.end()) out.push_back(found);
    }
  }
  return out;
}

std::string library_path() {
  const std::vector<std::string> all = libraries();
  return all.empty() ? "" : all.front();
}

std::vector<std::string> plug_in_files() {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::path(library_path()).parent_path() / "plugins", error)) {
    out.push_back(entry.path().string());
  }
  return out;
}

// Prefers an installation. A virtual environment may lie inside a source tree, whose headers may have another version.
std::string include_directory() {
  std::string header = first_existing({"include"}, "distrun/distrun.h");
  if (header.empty()) {
    header = first_existing({"../runtime/api/include", "../../runtime/api/include"}, "distrun/distrun.h");
  }
  return header.empty() ? "" : fs::path(header).parent_path().parent_path().string();
}

Result<std::string> compiler_flags() {
  const std::string directory = include_directory();
  if (directory.empty()) return not_found("distrun/distrun.h", "include");
  // An installation has the C++ wrapper beside the C header. A source tree has it in another folder.
  const fs::path wrapper = fs::path(directory) / "../../../bindings/cpp/include";
  std::error_code error;
  const bool source_tree = fs::exists(wrapper / "distrun/distrun.hpp", error);
  return "-I" + escaped(directory) + (source_tree ? " -I" + escaped(fs::canonical(wrapper, error).string()) : "");
}

Result<std::string> linker_flags() {
  const std::string library = library_path();
  if (library.empty()) return not_found(kLibrary, "lib, lib64");
  const std::string directory = escaped(fs::path(library).parent_path().string());
  return "-L" + directory + " -Wl,-rpath," + directory + " -ldistrun";
}

}  // namespace distrun::launcher
