// launcher/plan/network/network.h: --network from the command line, and the addresses of a host that it allows.
#include "launcher/plan/network/network.h"

#include <string>

#include "runtime/net/bytes/wire.h"
#include "test/fuzz/targets.h"

namespace distrun::fuzz {

int network(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto filter = launcher::parse_network(text);
  if (!filter.ok()) {
    require(filter.status().message().size() < 2000, "an error text is bounded");
    return 0;
  }
  // The candidates that an agent reports are also bytes from outside.
  const std::vector<launcher::Candidate> candidates = {
      {"eth0", "10.0.0.7"}, {"lo", "127.0.0.1"}, {"ib0", "fd00::7"}, {"docker0", "172.17.0.1"}, {text, text}};
  const launcher::Eligible result = launcher::eligible(candidates, *filter);
  require(result.candidates.size() + result.rejected.size() == candidates.size(), "each address is judged once");
  return 0;
}

std::vector<Bytes> network_seeds() {
  std::vector<Bytes> seeds;
  for (const char* text : {"eth0", "ib*,eth[0-9]", "10.0.0.0/8,192.168.1.7", "fd00::/16", "::/0", "127.0.0.0/8,lo"}) {
    const auto bytes = net::as_bytes(text);
    seeds.emplace_back(bytes.begin(), bytes.end());
  }
  return seeds;
}

}  // namespace distrun::fuzz
