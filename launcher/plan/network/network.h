// Chooses the address of each host that the others connect to: which addresses to try, their order, and which one to
// use after the probes. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/options.h"
#include "runtime/base/link_end.h"
#include "runtime/base/status.h"
#include "runtime/net/bytes/interfaces.h"

namespace distrun::launcher {

using Candidate = net::InterfaceAddress;
inline constexpr std::size_t kMaxCandidates = net::kMaxInterfaceAddresses;

// "10.0.0.7 (eth0)"
std::string to_text(const Candidate& candidate);

// "eth0,ib*,10.0.0.0/8,fd00::/16,192.168.7.1"
Result<NetworkFilter> parse_network(std::string_view text);

struct Rejected {
  Candidate candidate;
  std::string why;
};

struct Eligible {
  std::vector<Candidate> candidates;  // best first
  std::vector<Rejected> rejected;
};

// The number of addresses to try per host. The probes of a job have 8 s, and each probe without an answer takes 3 s.
inline constexpr std::size_t kMostTried = 8;

// The addresses to try. They are sorted by the order of --network, then InfiniBand, ordinary interfaces, tunnels,
// container bridges; then IPv4 before IPv6, private before public, faster before slower interfaces, and last by the
// host's own order. Bridges come last, but are tried: only a probe can tell whether several hosts have the same
// address.
Eligible eligible(const std::vector<Candidate>& candidates, const NetworkFilter& filter);

// True if this machine's own side of the network works. `working` lists the addresses of interfaces that are up and
// have a carrier, and `address` must be one of them. If `address` is unknown or a loopback address, any address in the
// list that is not a loopback address is enough.
bool has_network(const std::vector<Candidate>& working, const std::string& address);

// Hosts are identified by their number in the job's list. The head, which may not be one of them, is -1, as in the
// Hello of a launcher.
inline constexpr int kHeadHost = -1;

struct ProbedHost {
  std::string name;
  Eligible addresses;
  std::uint16_t port = 0;  // port where it answers probes
};

struct ProbeTarget {
  int host = 0;
  int candidate = 0;    // index in the eligible addresses of that host
  std::string address;  // with its port
  friend bool operator==(const ProbeTarget&, const ProbeTarget&) = default;
};

struct ProbeResult {
  int host = 0;
  int candidate = 0;
  std::string failure;               // the reason, for the user; empty: reached
  LinkEnd link = LinkEnd::kUnknown;  // kSilent: no answer came back
  friend bool operator==(const ProbeResult&, const ProbeResult&) = default;
};

// The pairs (from, to) to probe. Up to 32 hosts, every host tries every other host. Above, each host tries its next
// four in a ring, in both directions, and host 0 tries all and is tried by all. So the number of probes grows linearly
// with the hosts.
std::vector<std::pair<int, int>> pairs_to_probe(int hosts);

// The targets of host `from`: all eligible addresses of its pairs, and those of the head if there is one.
std::vector<ProbeTarget> probe_targets(int from, const std::vector<ProbedHost>& hosts,
                                       const std::optional<ProbedHost>& head);

struct ChosenAddress {
  Candidate candidate;
  std::string reason;  // a sentence, also on why better addresses failed
};

struct AddressChoice {
  std::vector<ChosenAddress> hosts;
  std::optional<ChosenAddress> head;  // address of the head that all hosts reached
};

// For each host, chooses the best address that all hosts reached that tried it. `reports` is by the host that tried. A
// probe without a report has failed. The error names the unreachable hosts, each failed pair with its reason, and the
// cure.
Result<AddressChoice> choose_addresses(const std::vector<ProbedHost>& hosts, const std::optional<ProbedHost>& head,
                                       const std::vector<std::vector<ProbeResult>>& reports);

}  // namespace distrun::launcher
