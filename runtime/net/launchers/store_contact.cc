#include "runtime/net/launchers/store_contact.h"

#include <arpa/inet.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace distrun::net {
namespace {

constexpr std::string_view kMark = "distrun1";
constexpr std::size_t kMaxJobId = 96;  // a Hello takes 128
constexpr std::size_t kMaxAddress = 45;
constexpr std::size_t kHexKey = 2 * JobKey::kBytes;

Status bad_contact(const std::string& why) {
  return {Errc::kProtocol, "rank 0 sent facts about the job that this rank cannot read (" + why +
                               "). Use the same version of distrun on all ranks"};
}

bool is_numeric(const std::string& address) {
  std::array<unsigned char, 16> bytes{};
  const bool v6 = address.find(':') != std::string::npos;
  return address.size() <= kMaxAddress && ::inet_pton(v6 ? AF_INET6 : AF_INET, address.c_str(), bytes.data()) == 1;
}

// A launcher's name for a job may contain any character. Replaces those that an exchange might not carry by '-'.
std::string plain(const std::string& text) {
  std::string out = text.substr(0, kMaxJobId);
  std::replace_if(
      out.begin(), out.end(),
      [](unsigned char c) { return c > 126 || (std::isalnum(c) == 0 && c != '.' && c != '_' && c != '@'); }, '-');
  return out;
}

std::string_view take_until(std::string_view& text, char end) {
  const std::string_view out = text.substr(0, text.find(end));
  text.remove_prefix(std::min(out.size() + 1, text.size()));
  return out;
}

Result<JobKey> parse_key(std::string_view hex) {
  std::array<unsigned char, JobKey::kBytes> bytes{};
  std::size_t length = 0;
  const bool read = hex.size() == kHexKey && ::sodium_hex2bin(bytes.data(), bytes.size(), hex.data(), hex.size(),
                                                              nullptr, &length, nullptr) == 0;
  auto key = read && length == bytes.size() ? JobKey::from_bytes(bytes.data(), bytes.size())
                                            : Result<JobKey>(bad_contact("the key"));
  ::sodium_memzero(bytes.data(), bytes.size());
  return key;
}

}  // namespace

std::string with_port(const std::string& address, std::uint16_t port) {
  const bool v6 = address.find(':') != std::string::npos;
  return (v6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

std::string to_word(const StoreContact& contact) {
  std::array<char, kHexKey + 1> hex{};
  ::sodium_bin2hex(hex.data(), hex.size(), contact.key.data(), JobKey::kBytes);
  std::string out =
      std::string(kMark) + "/" + plain(contact.job_id) + "/" + hex.data() + "/" + std::to_string(contact.port);
  const std::size_t count = std::min(contact.addresses.size(), kMaxContactAddresses);
  for (std::size_t i = 0; i < count; ++i) out += "/" + contact.addresses[i];
  ::sodium_memzero(hex.data(), hex.size());
  return out;
}

Result<StoreContact> parse_store_contact(std::string_view word) {
  if (take_until(word, '/') != kMark) return bad_contact("they do not begin with " + std::string(kMark));
  const std::string job_id(take_until(word, '/'));
  if (job_id.size() > kMaxJobId || job_id != plain(job_id)) return bad_contact("the name of the job");
  auto key = parse_key(take_until(word, '/'));
  if (!key.ok()) return key.status();
  StoreContact out{.job_id = job_id, .key = *key, .addresses = {}, .port = 0};
  const std::string_view port = take_until(word, '/');
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (error != std::errc() || end != port.data() + port.size() || out.port == 0) return bad_contact("the port");
  while (!word.empty() && out.addresses.size() < kMaxContactAddresses) {
    out.addresses.emplace_back(take_until(word, '/'));
    if (!is_numeric(out.addresses.back())) return bad_contact("an address");
  }
  if (!word.empty() || out.addresses.empty()) return bad_contact("the addresses");
  return out;
}

}  // namespace distrun::net
