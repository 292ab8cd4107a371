// Lists the addresses of this host, as the kernel reports them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace distrun::net {

// An address of a host: numeric IPv4 or IPv6, without a port.
struct InterfaceAddress {
  std::string interface;
  std::string address;
  int speed = 0;  // of the interface, in Mbit/s; 0 if unknown, as on most virtual machines
  friend bool operator==(const InterfaceAddress&, const InterfaceAddress&) = default;
};

inline constexpr std::size_t kMaxInterfaceAddresses = 256;  // of one host

// Returns the addresses of interfaces that are up and running, in the kernel's order. Loopback is included; the caller
// decides which ones to use. Returns at most kMaxInterfaceAddresses: a host with many containers can have hundreds of
// link-local addresses, which the kernel lists last. `sysfs` is the directory from which the speeds are read.
std::vector<InterfaceAddress> scan_addresses(const std::string& sysfs = "/sys/class/net/");

}  // namespace distrun::net
