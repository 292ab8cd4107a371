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
  int speed = 0;  // of the interface, in Mbit/s; 0: not known, as of most virtual machines
  friend bool operator==(const InterfaceAddress&, const InterfaceAddress&) = default;
};

inline constexpr std::size_t kMaxInterfaceAddresses = 256;  // of one host

// Of interfaces that are up and running, in the kernel's order, loopback included: who uses them judges them. At most
// kMaxInterfaceAddresses; a host of many containers has link-local ones by the hundred, which come last.
// `sysfs` is where the kernel tells the speeds.
std::vector<InterfaceAddress> scan_addresses(const std::string& sysfs = "/sys/class/net/");

}  // namespace distrun::net
