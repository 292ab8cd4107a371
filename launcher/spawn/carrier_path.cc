#include "launcher/spawn/carrier_path.h"

#include <arpa/inet.h>
#include <poll.h>

#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "runtime/net/bytes/ack_watch.h"

namespace distrun::launcher {
namespace {

// Few, because sshd counts connections without a login.
constexpr int kSmallPackets = 5;
constexpr double kSmallPacketSeconds = 1;
constexpr std::string_view kEstablished = "01";

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> out;
  for (std::size_t at = line.find_first_not_of(' '); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    out.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(' ', end);
  }
  return out;
}

std::optional<std::uint64_t> number(std::string_view text, int base) {
  std::uint64_t out = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out, base);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return out;
}

// "0101630A:0016": each group of four bytes of the address is a number in this machine's byte order.
std::optional<net::Address> address_of(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon != 8 && colon != 32) return std::nullopt;
  std::array<std::uint32_t, 4> bytes{};
  for (std::size_t i = 0; i < colon / 8; ++i) {
    const auto group = number(text.substr(8 * i, 8), 16);
    if (!group) return std::nullopt;
    bytes[i] = static_cast<std::uint32_t>(*group);
  }
  const auto port = number(text.substr(colon + 1), 16);
  std::array<char, INET6_ADDRSTRLEN> host{};
  const int family = colon == 8 ? AF_INET : AF_INET6;
  if (!port || ::inet_ntop(family, bytes.data(), host.data(), host.size()) == nullptr) return std::nullopt;
  return net::Address{.host = host.data(), .port = static_cast<std::uint16_t>(*port)};
}

std::set<std::uint64_t> sockets_of(pid_t pid) {
  constexpr std::string_view kSocket = "socket:[";
  std::set<std::uint64_t> out;
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/" + std::to_string(pid) + "/fd", error);
  if (error) return out;
  for (const auto& file : files) {
    const std::string target = std::filesystem::read_symlink(file.path(), error).string();
    if (error || !target.starts_with(kSocket)) continue;
    const auto inode = number(std::string_view(target).substr(kSocket.size(), target.size() - kSocket.size() - 1), 10);
    if (inode) out.insert(*inode);
  }
  return out;
}

bool small_packet_passes(const net::Address& to) {
  const auto fd = net::begin_connect(to);
  return fd.ok() && net::wait_ready(fd->get(), POLLOUT, deadline_after(kSmallPacketSeconds)).ok() &&
         net::finish_connect(fd->get()).ok() && !net::has_retransmitted(fd->get());
}

}  // namespace

// A line: number, own address, other address, state, bytes to send:received, timer:when, retransmissions, user, probes,
// inode.
std::vector<net::Address> not_acknowledged(std::string_view table, const std::set<std::uint64_t>& inodes) {
  std::vector<net::Address> out;
  while (!table.empty()) {
    const std::string_view line = table.substr(0, table.find('\n'));
    table.remove_prefix(std::min(line.size() + 1, table.size()));
    const auto words = words_of(line);
    if (words.size() < 10 || words[3] != kEstablished) continue;
    const auto unsent = number(words[4].substr(0, words[4].find(':')), 16);
    const auto again = number(words[6], 16);
    const auto inode = number(words[9], 10);
    if (!unsent || !again || !inode || *unsent <= net::AckWatch::kSmall || *again == 0) continue;
    if (!inodes.contains(*inode)) continue;
    if (auto address = address_of(words[2])) out.push_back(*std::move(address));
  }
  return out;
}

LinkEnd path_of_carrier(pid_t pid) {
  const std::set<std::uint64_t> inodes = sockets_of(pid);
  for (const char* table : {"tcp", "tcp6"}) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/net/" + table);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (const net::Address& to : not_acknowledged(text, inodes)) {
      for (int i = 0; i < kSmallPackets; ++i) {
        if (!small_packet_passes(to)) return LinkEnd::kSilent;
      }
      return LinkEnd::kLargeSilent;
    }
  }
  return LinkEnd::kUnknown;
}

}  // namespace distrun::launcher
