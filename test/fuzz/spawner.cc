// runtime/net/launchers/pmi_message.h and store_contact.h: texts that ranks receive through another launcher's
// exchange.
#include <string>

#include "runtime/net/bytes/wire.h"
#include "runtime/net/launchers/pmi_message.h"
#include "runtime/net/launchers/store_contact.h"
#include "test/fuzz/targets.h"

namespace distrun::fuzz {

int spawner(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto words = net::parse_pmi(text); words.ok()) require(words->contains("cmd"), "a message has a command");
  const auto contact = net::parse_store_contact(text);
  if (!contact.ok()) return 0;
  require(!contact->addresses.empty() && contact->port != 0, "there is somewhere to connect to");
  const auto again = net::parse_store_contact(net::to_word(*contact));
  require(again.ok() && again->addresses == contact->addresses, "a meeting survives writing and reading");
  return 0;
}

std::vector<Bytes> spawner_seeds() {
  const std::string key(2 * net::JobKey::kBytes, 'a');
  std::vector<Bytes> seeds;
  for (const std::string& text : {std::string("cmd=get_result rc=0 msg=success value=x"),
                                  "distrun1/17.0/" + key + "/40000/10.0.0.7/fd00::7", std::string("cmd=barrier_out")}) {
    const auto bytes = net::as_bytes(text);
    seeds.emplace_back(bytes.begin(), bytes.end());
  }
  return seeds;
}

}  // namespace distrun::fuzz
