// Fuzz targets: one function for each parser of bytes from outside, with libFuzzer's signature. The unit test fuzz_test
// runs each on its seeds, its corpus (corpus/<name>.hex) and random mutations of the seeds, with any compiler.
// scripts/fuzz runs libFuzzer for longer, and can add its findings to the corpus. A target aborts if an invariant
// fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace distrun::fuzz {

using Bytes = std::vector<std::byte>;

struct Target {
  std::string name;
  int (*run)(const std::uint8_t* data, std::size_t size);
  std::vector<Bytes> (*seeds)();
};

int wire(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> wire_seeds();
int store(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> store_seeds();
int frame(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> frame_seeds();
int handshake(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> handshake_seeds();
int probe(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> probe_seeds();
int address(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> address_seeds();
int engine(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> engine_seeds();
int agent(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> agent_seeds();
int devices(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> devices_seeds();
int record(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> record_seeds();
int ring(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> ring_seeds();
int roles(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> roles_seeds();
int network(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> network_seeds();
int hostlist(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> hostlist_seeds();
int hostfile(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> hostfile_seeds();
int spawner(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> spawner_seeds();
int frames(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> frames_seeds();
int json(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> json_seeds();
int host_mail(const std::uint8_t* data, std::size_t size);
std::vector<Bytes> host_mail_seeds();

// Throws, which ends a libFuzzer run and fails the unit test.
void require(bool holds, const char* invariant);

inline std::span<const std::byte> as_span(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}

}  // namespace distrun::fuzz
