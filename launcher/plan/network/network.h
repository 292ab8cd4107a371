// Which address of each host the others use: what may be tried, in which order, and which one the probes left. Pure.
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

// So many addresses of a host are tried: the probes of a job have 8 s, and each that is swallowed takes 3 of them.
inline constexpr std::size_t kMostTried = 8;

// What may be tried, by the order of --network, then InfiniBand, ordinary interfaces, tunnels, container bridges; then
// IPv4 before IPv6, private before public addresses, faster before slower interfaces, and as the host lists them. A
// bridge comes last but is tried: whether an address is the same on every host only the probe can tell.
Eligible eligible(const std::vector<Candidate>& candidates, const NetworkFilter& filter);

// Whether this machine's own end of the network works: the address is one of the interfaces that are up and have a
// carrier, which `working` lists. Where no address is known, or it is this machine's own loopback: some other one is.
bool has_network(const std::vector<Candidate>& working, const std::string& address);

// Hosts are told by their number in the job's list, the head (which may be none of them) by -1, the number that a
// launcher has in a Hello.
inline constexpr int kHeadHost = -1;

struct ProbedHost {
  std::string name;
  Eligible addresses;
  std::uint16_t port = 0;  // where it answers probes
};

struct ProbeTarget {
  int host = 0;
  int candidate = 0;    // of that host's eligible ones
  std::string address;  // with its port
  friend bool operator==(const ProbeTarget&, const ProbeTarget&) = default;
};

struct ProbeResult {
  int host = 0;
  int candidate = 0;
  std::string failure;  // why not, for people; empty: reached
  friend bool operator==(const ProbeResult&, const ProbeResult&) = default;
};

// Who tries whom (from, to): everybody everybody up to 32 hosts; above, each its next four in a ring and host 0, both
// ways, so that the number of probes grows with that of the hosts and not with its square.
std::vector<std::pair<int, int>> pairs_to_probe(int hosts);

// What host `from` is to try: all eligible addresses of its pairs, and those of the head, if there is one.
std::vector<ProbeTarget> probe_targets(int from, const std::vector<ProbedHost>& hosts,
                                       const std::optional<ProbedHost>& head);

struct ChosenAddress {
  Candidate candidate;
  std::string reason;  // a sentence, with what was wrong with the better ones
};

struct AddressChoice {
  std::vector<ChosenAddress> hosts;
  std::optional<ChosenAddress> head;  // what all hosts reached of it
};

// For each host the best address that all who tried reached. `reports` is by the host that tried; a probe that nobody
// reports has failed. An error names the hosts that are cut off, each pair that failed with its reason, and the cure.
Result<AddressChoice> choose_addresses(const std::vector<ProbedHost>& hosts, const std::optional<ProbedHost>& head,
                                       const std::vector<std::vector<ProbeResult>>& reports);

}  // namespace distrun::launcher
