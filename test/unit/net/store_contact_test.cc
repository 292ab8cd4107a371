#include "runtime/net/launchers/store_contact.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "runtime/net/launchers/spawner_exchange.h"

namespace distrun::net {
namespace {

StoreContact some_contact() {
  return {.job_id = "slurm.pmix.17.0",
          .key = JobKey::generate(),
          .addresses = {"10.0.0.7", "fd00::7", "127.0.0.1"},
          .port = 40123};
}

TEST_CASE("a meeting survives the exchange", "[net]") {
  const StoreContact contact = some_contact();
  const auto read = parse_store_contact(to_word(contact));
  REQUIRE(read.ok());
  CHECK(read->job_id == contact.job_id);
  CHECK(std::memcmp(read->key.data(), contact.key.data(), JobKey::kBytes) == 0);
  CHECK(read->addresses == contact.addresses);
  CHECK(read->port == contact.port);
  CHECK(with_port("10.0.0.7", 4) == "10.0.0.7:4");
  CHECK(with_port("fd00::7", 4) == "[fd00::7]:4");
}

TEST_CASE("the word fits whatever the host has and the launcher calls the job", "[net]") {
  StoreContact contact = some_contact();
  contact.job_id = "a b=c\n/" + std::string(500, 'x');
  contact.addresses.assign(100, "2001:db8:1234:5678:9abc:def0:1234:5678");
  const std::string word = to_word(contact);
  CHECK(word.size() <= kMaxSharedText);
  CHECK(std::none_of(word.begin(), word.end(), [](char c) { return c == ' ' || c == '=' || c == '\n'; }));
  const auto read = parse_store_contact(word);
  REQUIRE(read.ok());
  CHECK(read->addresses.size() == kMaxContactAddresses);
  CHECK(read->job_id.starts_with("a-b-c--xxx"));
}

TEST_CASE("what is no meeting is refused without showing it", "[net]") {
  const std::string good = to_word(some_contact());
  const std::string key = good.substr(good.find('/', 10) + 1, 2 * JobKey::kBytes);
  for (const std::string& bad :
       {std::string(), std::string("distrun2/job"), good.substr(0, good.size() / 2), good + "/host.name",
        "distrun1/a b/" + key + "/1/127.0.0.1", "distrun1/a/" + key + "/0/127.0.0.1",
        "distrun1/a/" + key + "/70000/127.0.0.1", "distrun1/a/" + key + "/1",
        "distrun1/a/" + key.substr(2) + "/1/127.0.0.1", "distrun1/a/zz" + key.substr(2) + "/1/127.0.0.1"}) {
    const auto read = parse_store_contact(bad);
    INFO(bad);
    REQUIRE_FALSE(read.ok());
    CHECK(read.status().code() == Errc::kProtocol);
    CHECK(read.status().message().find(key.substr(0, 16)) == std::string::npos);
  }
}

}  // namespace
}  // namespace distrun::net
