// The path of a process that carries an agent, from the kernel's table of connections.
#include "launcher/spawn/carrier_path.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "runtime/net/bytes/socket.h"

namespace distrun::launcher {
namespace {

constexpr std::string_view kHead =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

std::string line(const std::string& to, const std::string& state, const std::string& queued, const std::string& again) {
  return "   2: FE00630A:9C40 " + to + " " + state + " " + queued + ":00000000 01:00000D31 " + again +
         "     0        0 4711 2 0000000000000000 51 4 30 10 -1\n";
}

std::vector<std::string> found(const std::string& lines) {
  std::vector<std::string> out;
  for (const net::Address& address : not_acknowledged(std::string(kHead) + lines, {4711})) {
    out.push_back(net::to_string(address));
  }
  return out;
}

TEST_CASE("a connection whose large bytes are sent again and again is found with its other end") {
  CHECK(found(line("0100630A:0016", "01", "00000600", "00000004")) == std::vector<std::string>{"10.99.0.1:22"});
  CHECK(found(line("000099FD000000000000000001000000:0016", "01", "00000600", "00000004")) ==
        std::vector<std::string>{"[fd99::1]:22"});
}

TEST_CASE("other connections say nothing about the path") {
  CHECK(found(line("0100630A:0016", "01", "00000600", "00000000")).empty());  // sent for the first time
  CHECK(found(line("0100630A:0016", "01", "00000064", "00000004")).empty());  // a small packet
  CHECK(found(line("0100630A:0016", "02", "00000600", "00000004")).empty());  // not connected yet
  CHECK(found("nonsense\n\n 1: x y z\n").empty());
  const std::string lost = line("0100630A:0016", "01", "00000600", "00000004");
  CHECK(not_acknowledged(lost, {1, 2}).empty());  // of another process
}

TEST_CASE("a process without such a connection has no fault on its path") {
  CHECK(path_of_carrier(::getpid()) == LinkEnd::kUnknown);
  CHECK(path_of_carrier(-1) == LinkEnd::kUnknown);
}

}  // namespace
}  // namespace distrun::launcher
