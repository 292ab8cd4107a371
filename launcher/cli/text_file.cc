#include "launcher/cli/text_file.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <system_error>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

constexpr std::size_t kLargestText = 16 << 20;

Status unreadable(const std::string& path, const std::string& why) {
  return {Errc::kInvalidArgument, "cannot read " + path + ": " + why};
}

}  // namespace

Result<std::string> read_text(const std::string& path) {
  std::string text;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    std::error_code unknown;
    if (std::filesystem::is_directory(path, unknown)) return unreadable(path, "it is a folder. Name a file");
    std::ifstream file(path, std::ios::binary);
    if (!file) return errno_status("cannot read " + path, errno);
    text.resize(kLargestText + 1);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > kLargestText) return unreadable(path, "it is larger than 16 MiB. Is it the right file?");
  }
  return unix_text(text, path == "-" ? "standard input" : path);
}

}  // namespace distrun::launcher
