// Messages to the user about hosts that have gone silent. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/clock.h"

namespace distrun::launcher {

// In the order of the job. Three or more hosts with consecutive numbers are folded: "h1, h4 to h6".
std::string host_list(const std::vector<std::string>& hosts);

// `hosts` are some of `all` hosts. "host h2 has been silent for 3.5 s; it is given up after 30 s (--host-timeout)"
std::string silent_report(const std::vector<std::string>& hosts, std::size_t all, Duration silence, Duration limit);
// "host h2 is back after 6 s"
std::string back_report(const std::vector<std::string>& hosts, Duration silent_for);
// "host h2 is lost: " or "hosts h6 to h10 are silent (5 of 10): ", and then the reason.
std::string lost_report(const std::vector<std::string>& hosts, std::size_t all, const std::string& why);

// "nothing has come from there for 30 s"
std::string silence_text(Duration silence);

// Whether the network of this machine has failed, and not the other hosts.
enum class OwnNetwork {
  kWorks,
  kNoCarrier,  // no working interface has the address of the job
  kAllSilent,  // several other hosts, and all of them, are silent
};
OwnNetwork judge_own_network(std::size_t silent, std::size_t others, bool carrier);
// "this machine's own network is gone: ..."
std::string own_network_report(OwnNetwork how, Duration silence);

}  // namespace distrun::launcher
