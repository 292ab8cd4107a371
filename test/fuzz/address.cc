// parse_address() in runtime/net/bytes/socket.h. Addresses come from the environment, the command line and the store.
#include <string>

#include "runtime/net/bytes/socket.h"
#include "runtime/net/bytes/wire.h"
#include "test/fuzz/targets.h"

namespace distrun::fuzz {

int address(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto parsed = net::parse_address(text);
  if (!parsed.ok()) {
    require(parsed.status().message().size() < 400, "an error text is bounded");
    return 0;
  }
  const auto again = net::parse_address(net::to_string(*parsed));
  require(again.ok() && *again == *parsed, "an address survives being written and read");
  return 0;
}

std::vector<Bytes> address_seeds() {
  std::vector<Bytes> seeds;
  for (const char* text : {"127.0.0.1:80", "[::1]:443", "node-1.example.org:1", "unix:@distrun-x", "[v6", "a:b:c"}) {
    const auto bytes = net::as_bytes(text);
    seeds.emplace_back(bytes.begin(), bytes.end());
  }
  return seeds;
}

}  // namespace distrun::fuzz
