// The addresses of this host as the kernel lists them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace distrun::net {

// An address of a host: numeric IPv4 or IPv6, without a port.
struct InterfaceAddress {
  std::string interface;
  std::string address;
  friend bool operator==(const InterfaceAddress&, const InterfaceAddress&) = default;
};

inline constexpr std::size_t kMaxInterfaceAddresses = 256;  // of one host

// Of interfaces that are up and running, in the kernel's order, loopback included: who uses them judges them. At most
// kMaxInterfaceAddresses; a host of many containers has link-local ones by the hundred, which come last.
std::vector<InterfaceAddress> scan_addresses();

}  // namespace distrun::net
