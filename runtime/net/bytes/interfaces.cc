#include "runtime/net/bytes/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <memory>

namespace distrun::net {
namespace {

std::string address_text(const sockaddr* address) {
  if (address == nullptr) return {};
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text.data(), text.size());
  } else if (address->sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text.data(), text.size());
  }
  return text.data();
}

// If an interface has no speed, the file contains -1 or cannot be read.
int read_speed(const std::string& file) {
  int speed = 0;
  return std::ifstream(file) >> speed && speed > 0 ? speed : 0;
}

}  // namespace

std::vector<InterfaceAddress> scan_addresses(const std::string& sysfs) {
  ifaddrs* list = nullptr;
  // Without a list there is no address to try. The code that chooses an address reports this.
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<InterfaceAddress> out;
  for (const ifaddrs* item = list; item != nullptr && out.size() < kMaxInterfaceAddresses; item = item->ifa_next) {
    constexpr unsigned kWorks = IFF_UP | IFF_RUNNING;
    if ((item->ifa_flags & kWorks) != kWorks) continue;
    InterfaceAddress candidate{.interface = item->ifa_name, .address = address_text(item->ifa_addr)};
    const bool known = std::find(out.begin(), out.end(), candidate) != out.end();
    if (!candidate.address.empty() && !known) out.push_back(std::move(candidate));
  }
  std::map<std::string, int> speeds;
  for (InterfaceAddress& one : out) {
    const auto [speed, is_new] = speeds.emplace(one.interface, 0);
    if (is_new) speed->second = read_speed(sysfs + one.interface + "/speed");
    one.speed = speed->second;
  }
  return out;
}

}  // namespace distrun::net
