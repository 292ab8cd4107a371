// The limit for --encrypt and --checksum on one core: how fast records are sealed and opened, without a network.
//     record_bench [BYTES]      size of a record; default 131072, the largest that the tcp backend sends
// Prints, for sealing and for opening, the median of 15 rounds in GB/s, with the slowest and the fastest.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/net/secure/record_cipher.h"

namespace {

using namespace distrun;  // NOLINT(google-build-using-namespace)

constexpr int kRounds = 15;
constexpr std::size_t kPerRound = std::size_t{64} << 20;

double seconds_since(TimePoint start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void print(const std::string& what, std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  std::printf("%-36s %6.2f GB/s (%.2f to %.2f)\n", what.c_str(), rates[rates.size() / 2], rates.front(), rates.back());
}

void measure(const net::RecordSuite& suite, std::size_t bytes) {
  const std::size_t records = std::max(kPerRound / bytes, std::size_t{1});
  const net::NoiseKey key{};
  net::RecordCipher sealing(suite, key);
  net::RecordCipher opening(suite, key);
  const std::vector<std::byte> plain(bytes, std::byte{3});
  std::vector<std::vector<std::byte>> sealed(records, plain);
  std::vector<net::RecordTag> tags(records);
  std::vector<double> seals;
  std::vector<double> opens;
  for (int round = 0; round < kRounds; ++round) {
    const double done = static_cast<double>(records * bytes) / 1e9;
    TimePoint start = Clock::now();
    for (std::size_t i = 0; i < records; ++i) {
      if (!sealing.seal(plain, sealed[i].data(), tags[i])) std::abort();
    }
    seals.push_back(done / seconds_since(start));
    start = Clock::now();
    for (std::size_t i = 0; i < records; ++i) {
      if (!opening.open(sealed[i], tags[i])) std::abort();
    }
    opens.push_back(done / seconds_since(start));
  }
  print(to_string(suite) + ", seal", seals);
  print(to_string(suite) + ", open", opens);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : std::size_t{128} << 10;
  if (bytes == 0) {
    std::fprintf(stderr, "usage: record_bench [BYTES]\n");
    return 64;
  }
  for (const bool aes : {true, false}) {
    if (aes && !net::aes_available()) continue;
    for (const bool encrypts : {true, false}) measure({.encrypts = encrypts, .aes = aes}, bytes);
  }
  return 0;
}
