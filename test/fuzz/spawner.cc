// runtime/net/launchers/pmi_message.h and meeting.h: texts that ranks receive through another launcher's exchange.
#include <string>

#include "runtime/net/bytes/wire.h"
#include "runtime/net/launchers/meeting.h"
#include "runtime/net/launchers/pmi_message.h"
#include "test/fuzz/targets.h"

namespace distrun::fuzz {

int spawner(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto words = net::parse_pmi(text); words.ok()) require(words->contains("cmd"), "a message has a command");
  const auto meeting = net::parse_meeting(text);
  if (!meeting.ok()) return 0;
  require(!meeting->addresses.empty() && meeting->port != 0, "there is somewhere to connect to");
  const auto again = net::parse_meeting(net::to_word(*meeting));
  require(again.ok() && again->addresses == meeting->addresses, "a meeting survives writing and reading");
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
