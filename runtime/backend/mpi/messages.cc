#include "runtime/backend/mpi/messages.h"

namespace distrun::backend::mpi_plugin {
namespace {

constexpr std::size_t kByte = static_cast<std::size_t>(DType::kU8);

}  // namespace

Handle* Messages::next_request() {
  requests_.push_back(channel_.process->library().is.no_request);
  return &requests_.back();
}

Status Messages::receive(std::byte* to, std::uint64_t bytes, int from) {
  return in_pieces(bytes, [&](std::uint64_t at, int piece) {
    return channel_.check(channel_.call().Irecv(to + at, piece, channel_.process->library().is.types[kByte], from,
                                                kMessageTag, channel_.comm, next_request()),
                          "MPI_Irecv");
  });
}

Status Messages::send(const std::byte* from, std::uint64_t bytes, int to) {
  return in_pieces(bytes, [&](std::uint64_t at, int piece) {
    return channel_.check(channel_.call().Isend(from + at, piece, channel_.process->library().is.types[kByte], to,
                                                kMessageTag, channel_.comm, next_request()),
                          "MPI_Isend");
  });
}

Status Messages::barrier() {
  return channel_.check(channel_.call().Ibarrier(channel_.comm, next_request()), "MPI_Ibarrier");
}

Status Messages::test() {
  for (; first_open_ < requests_.size(); ++first_open_) {
    int done = 0;
    DISTRUN_RETURN_IF_ERROR(channel_.check(channel_.call().Test(&requests_[first_open_], &done, nullptr), "MPI_Test"));
    if (done == 0) return {};
  }
  return {};
}

}  // namespace distrun::backend::mpi_plugin
