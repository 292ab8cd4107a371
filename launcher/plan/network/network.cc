#include "launcher/plan/network/network.h"

#include <arpa/inet.h>
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

constexpr std::size_t kMaxInterface = 15;  // IFNAMSIZ without the final zero

enum class AddressKind { kOrdinary, kLoopback, kLinkLocal, kReserved };

// Interfaces that look the same on many hosts, or that reach one host only: bridges of docker and libvirt, interfaces
// of containers, overlay networks. "br-" belongs to docker. br0 is not listed, since it is often a host's only
// interface to the network.
constexpr std::array<std::string_view, 18> kBridges{"docker", "br-",    "virbr", "veth",    "cni",    "flannel",
                                                    "cali",   "cilium", "lxc",   "lxdbr",   "podman", "vnet",
                                                    "kube-",  "weave",  "vmnet", "nerdctl", "dummy",  "tunl"};
constexpr std::array<std::string_view, 7> kTunnels{"tun", "tap", "wg", "tailscale", "ppp", "zt", "ipsec"};

std::optional<IpAddress> parse_ip(const std::string& text) {
  IpAddress out;
  out.v6 = text.find(':') != std::string::npos;
  if (::inet_pton(out.v6 ? AF_INET6 : AF_INET, text.c_str(), out.bytes.data()) != 1) return std::nullopt;
  return out;
}

bool within(const IpAddress& address, const IpAddress& network, int bits) {
  if (address.v6 != network.v6) return false;
  for (std::size_t i = 0; bits > 0; ++i, bits -= 8) {
    const int mask = bits >= 8 ? 0xff : 0xff << (8 - bits) & 0xff;
    if (((address.bytes[i] ^ network.bytes[i]) & mask) != 0) return false;
  }
  return true;
}

bool within(const IpAddress& address, const char* network, int bits) {
  return within(address, *parse_ip(network), bits);
}

AddressKind kind_of(const IpAddress& address) {
  if (within(address, "127.0.0.0", 8) || within(address, "::1", 128)) return AddressKind::kLoopback;
  if (within(address, "169.254.0.0", 16) || within(address, "fe80::", 10)) return AddressKind::kLinkLocal;
  // "This host", multicast and reserved addresses, including the broadcast address.
  if (within(address, "0.0.0.0", 8) || within(address, "224.0.0.0", 3)) return AddressKind::kReserved;
  if (within(address, "::", 128) || within(address, "ff00::", 8)) return AddressKind::kReserved;
  return AddressKind::kOrdinary;
}

bool is_private(const IpAddress& address) {
  return within(address, "10.0.0.0", 8) || within(address, "172.16.0.0", 12) || within(address, "192.168.0.0", 16) ||
         within(address, "100.64.0.0", 10) || within(address, "fc00::", 7);
}

template <std::size_t N>
bool starts_with_any(const std::string& name, const std::array<std::string_view, N>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

int interface_rank(const std::string& name) {
  if (name.starts_with("ib")) return 0;
  // lo may have an address that is no loopback address. It belongs to the host if hosts do routing; otherwise many
  // hosts have the same one.
  if (name == "lo" || starts_with_any(name, kBridges)) return 3;
  return starts_with_any(name, kTunnels) ? 2 : 1;
}

bool is_pattern(const std::string& interface) { return interface.find_first_of("*?[") != std::string::npos; }

bool matches(const NetworkRule& rule, const Candidate& candidate, const IpAddress& address) {
  if (rule.interface.empty()) return within(address, rule.network, rule.bits);
  return ::fnmatch(rule.interface.c_str(), candidate.interface.c_str(), 0) == 0;
}

// lo by its name, or 127.0.0.0/8. A user who writes that means it, since all hosts may be names of this machine. A
// pattern or 0.0.0.0/0 does not ask for it.
bool asks_for_special(const NetworkRule& rule, AddressKind kind) {
  return rule.interface.empty() ? kind_of(rule.network) == kind : !is_pattern(rule.interface);
}

// The kind of an address. The best kinds are the smallest.
using Preference = std::tuple<std::size_t, int, bool, bool>;

// The place of an address in the order of preference, or the reason to reject it.
struct Judgement {
  std::string why;
  Preference order;
};

Judgement judge(const Candidate& candidate, const NetworkFilter& filter) {
  const auto address = parse_ip(candidate.address);
  if (!address) return {.why = "not a numeric address"};
  const AddressKind kind = kind_of(*address);
  std::size_t rule = 0;
  while (rule < filter.rules.size() && !matches(filter.rules[rule], candidate, *address)) ++rule;
  const bool listed = rule < filter.rules.size();
  const bool asked = listed && asks_for_special(filter.rules[rule], kind);
  if (kind == AddressKind::kLoopback && !asked) return {.why = "a loopback address, which other hosts cannot reach"};
  // An IPv6 link-local address needs an interface number, which differs between hosts.
  if (kind == AddressKind::kLinkLocal && (!asked || address->v6)) {
    return {.why = "a link-local address, which works only on one network cable or switch"};
  }
  if (kind == AddressKind::kReserved) return {.why = "not the address of a single host"};
  if (!filter.rules.empty() && !listed) return {.why = "not in --network " + filter.text};
  return {.why = "", .order = {rule, interface_rank(candidate.interface), address->v6, !is_private(*address)}};
}

// Sorts by speed within each kind, since the order of the cards means nothing. An unknown speed counts as the slowest
// known speed of its kind. If no speed is known, the order stays as it is.
void put_best_first(std::vector<std::pair<Judgement, const Candidate*>>& kept) {
  std::map<Preference, int> slowest;
  for (const auto& [judgement, candidate] : kept) {
    if (candidate->speed <= 0) continue;
    int& least = slowest.emplace(judgement.order, candidate->speed).first->second;
    least = std::min(least, candidate->speed);
  }
  const auto rank = [&slowest](const auto& one) {
    const auto& [judgement, candidate] = one;
    return std::pair(judgement.order, -(candidate->speed > 0 ? candidate->speed : slowest[judgement.order]));
  };
  std::stable_sort(kept.begin(), kept.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
}

std::optional<Fault> read_network(std::string_view text, NetworkRule& out) {
  const std::size_t slash = text.find('/');
  const std::string address(text.substr(0, slash));
  const auto parsed = parse_ip(address);
  if (!parsed) return Fault{0, in_quotes(address) + " is not an IPv4 or IPv6 address"};
  const int most = parsed->v6 ? 128 : 32;
  const auto bits = slash == std::string_view::npos ? most : parse_number(text.substr(slash + 1), 0, most);
  if (!bits) {
    return Fault{slash + 1, "expected a number of bits from 0 to " + std::to_string(most) + " here, as in 10.0.0.0/8"};
  }
  out.network = *parsed;
  out.bits = *bits;
  return std::nullopt;
}

std::optional<Fault> read_rule(std::string_view text, NetworkRule& out) {
  if (text.empty()) return Fault{0, "the name of an interface or a network is missing here"};
  // Interface names have no slash or colon, and one of digits and dots is unlikely.
  const bool number = text.find_first_not_of("0123456789.") == std::string_view::npos;
  if (number || text.find_first_of("/:") != std::string_view::npos) return read_network(text, out);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] <= ' ' || text[i] > '~')
      return Fault{i, in_quotes(text.substr(i, 1)) + " cannot be part of an interface's name"};
  }
  out.interface = text;
  if (!is_pattern(out.interface) && text.size() > kMaxInterface) {
    return Fault{kMaxInterface, "the name of an interface has at most 15 characters"};
  }
  return std::nullopt;
}

}  // namespace

std::string to_text(const Candidate& candidate) { return candidate.address + " (" + candidate.interface + ")"; }

Result<NetworkFilter> parse_network(std::string_view text) {
  NetworkFilter filter{.text = std::string(text), .rules = {}};
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    NetworkRule rule;
    if (auto fault = read_rule(text.substr(start, comma - start), rule)) {
      fault->column += start;
      return Status(Errc::kInvalidArgument, caret_error("--network", text, *fault));
    }
    filter.rules.push_back(std::move(rule));
    start = comma + 1;
  }
  return filter;
}

Eligible eligible(const std::vector<Candidate>& candidates, const NetworkFilter& filter) {
  Eligible out;
  std::vector<std::pair<Judgement, const Candidate*>> kept;
  for (const Candidate& candidate : candidates) {
    Judgement judgement = judge(candidate, filter);
    if (judgement.why.empty()) {
      kept.emplace_back(std::move(judgement), &candidate);
    } else {
      out.rejected.push_back({candidate, std::move(judgement.why)});
    }
  }
  put_best_first(kept);
  for (const auto& [judgement, candidate] : kept) {
    if (out.candidates.size() < kMostTried) {
      out.candidates.push_back(*candidate);
    } else {
      out.rejected.push_back({*candidate, "this host has " + std::to_string(kMostTried) +
                                              " better ones. To use it, name it with --network"});
    }
  }
  return out;
}

bool has_network(const std::vector<Candidate>& working, const std::string& address) {
  const auto means_this_host = [](const std::string& text) {
    return text.empty() || text == "*" || text == "::1" || text == "::" || text == "0.0.0.0" ||
           text.starts_with("127.");
  };
  return std::any_of(working.begin(), working.end(), [&](const Candidate& one) {
    return means_this_host(address) ? !means_this_host(one.address) : one.address == address;
  });
}

}  // namespace distrun::launcher
