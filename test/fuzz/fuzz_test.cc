// Runs every fuzz target on its seeds and on random mutations of them. libFuzzer does the same in long runs.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <fstream>
#include <random>
#include <string>

#include "test/fuzz/targets.h"

extern const char* const kCorpus;

namespace distrun::fuzz {
namespace {

const std::vector<Target>& targets() {
  static const std::vector<Target> all = {
      {"wire", wire, wire_seeds},
      {"probe", probe, probe_seeds},
      {"store", store, store_seeds},
      {"frame", frame, frame_seeds},
      {"handshake", handshake, handshake_seeds},
      {"address", address, address_seeds},
      {"engine", engine, engine_seeds},
      {"agent", agent, agent_seeds},
      {"network", network, network_seeds},
      {"hostlist", hostlist, hostlist_seeds},
      {"hostfile", hostfile, hostfile_seeds},
      {"record", record, record_seeds},
      {"ring", ring, ring_seeds},
      {"roles", roles, roles_seeds},
      {"devices", devices, devices_seeds},
      {"frames", frames, frames_seeds},
      {"host_mail", host_mail, host_mail_seeds},
      {"json", json, json_seeds},
      {"spawner", spawner, spawner_seeds},
  };
  return all;
}

void run(const Target& target, const Bytes& bytes) {
  // A copy of exactly this size, so that AddressSanitizer sees a read past the end.
  const Bytes exact(bytes);
  target.run(reinterpret_cast<const std::uint8_t*>(exact.data()), exact.size());
}

Bytes mutate(Bytes bytes, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  for (std::size_t i = 0, n = 1 + below(4); i < n; ++i) {
    const auto at = static_cast<std::ptrdiff_t>(below(bytes.size() + 1));
    switch (random() % 6) {
      case 0:
        bytes.insert(bytes.begin() + at, static_cast<std::byte>(random()));
        break;
      case 1:
        bytes.erase(bytes.begin() + at, bytes.begin() + std::min<std::ptrdiff_t>(at + 1, std::ssize(bytes)));
        break;
      case 2:
        bytes.resize(below(bytes.size() + 1));
        break;
      case 3:  // values that often break code that reads lengths
        if (at < std::ssize(bytes)) bytes[static_cast<std::size_t>(at)] = random() % 2 ? std::byte{0xff} : std::byte{0};
        break;
      case 4: {
        const Bytes copy = bytes;
        bytes.insert(bytes.begin() + at, copy.begin(), copy.end());
        break;
      }
      default:
        if (at < std::ssize(bytes)) bytes[static_cast<std::size_t>(at)] ^= static_cast<std::byte>(1U << random() % 8);
    }
    if (bytes.size() > 5000) bytes.resize(5000);
  }
  return bytes;
}

// Each line is one input in hexadecimal.
std::vector<Bytes> corpus_of(const Target& target) {
  std::vector<Bytes> out;
  std::ifstream file(std::string(kCorpus) + "/" + target.name + ".hex");
  for (std::string line; std::getline(file, line);) {
    Bytes input;
    for (std::size_t i = 0; i + 1 < line.size(); i += 2) {
      input.push_back(static_cast<std::byte>(std::stoi(line.substr(i, 2), nullptr, 16)));
    }
    out.push_back(std::move(input));
  }
  return out;
}

TEST_CASE("what a fuzzer has found before stays handled", "[fuzz]") {
  const Target& target = GENERATE(from_range(targets()));
  INFO("target " << target.name);
  const std::vector<Bytes> inputs = corpus_of(target);
  CHECK_FALSE(inputs.empty());
  for (const Bytes& input : inputs) run(target, input);
}

TEST_CASE("no parser of outside bytes can be broken by mutated input", "[fuzz]") {
  const Target& target = GENERATE(from_range(targets()));
  INFO("target " << target.name);
  const std::vector<Bytes> seeds = target.seeds();
  std::mt19937 random(2024);
  run(target, {});
  for (const Bytes& seed : seeds) {
    run(target, seed);
    for (std::size_t size = 0; size < seed.size(); ++size) {
      run(target, Bytes(seed.begin(), seed.begin() + static_cast<std::ptrdiff_t>(size)));
    }
  }
  std::vector<Bytes> pool = seeds;
  for (int round = 0; round < 3000; ++round) {
    const Bytes input = mutate(pool[random() % pool.size()], random);
    run(target, input);
    if (round % 10 == 0 && pool.size() < 50) pool.push_back(input);
  }
  SUCCEED();
}

}  // namespace
}  // namespace distrun::fuzz
