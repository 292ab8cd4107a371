// A store server in its own process, for tests whose ranks are forked processes. Fork before starting threads.
#pragma once

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "runtime/base/fd.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/store/store_client.h"
#include "runtime/net/store/store_server.h"

namespace distrun::test {

class StoreProcess {
 public:
  explicit StoreProcess(int size) : size_(size), key_(net::JobKey::generate()) {
    int life[2];
    int address[2];
    REQUIRE(::pipe(life) == 0);
    REQUIRE(::pipe(address) == 0);
    child_ = ::fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      ::close(life[1]);
      serve(life[0], address[1]);
      ::_exit(0);
    }
    ::close(life[0]);
    ::close(address[1]);
    life_.reset(life[1]);
    const Fd reader(address[0]);
    char buffer[256];
    const ssize_t got = ::read(reader.get(), buffer, sizeof(buffer));
    REQUIRE(got > 0);
    address_.assign(buffer, static_cast<std::size_t>(got));
  }
  // The server ends when the last copy of the pipe is closed, at the latest when all ranks have ended.
  ~StoreProcess() {
    life_.reset();
    ::waitpid(child_, nullptr, 0);
  }
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;

  [[nodiscard]] const net::JobKey& key() const { return key_; }
  [[nodiscard]] net::World world(int rank) const {
    return {.rank = rank, .size = size_, .local_rank = rank, .local_size = size_, .job_id = "test", .store = address_};
  }
  [[nodiscard]] Result<std::unique_ptr<net::StoreClient>> connect(int rank, TimePoint deadline) const {
    return net::StoreClient::connect(world(rank), key_, deadline);
  }

 private:
  void serve(int life, int address) const {
    auto server = net::StoreServer::create(key_, {.job_id = "test", .size = size_});
    if (!server.ok()) return;
    const std::string& text = (*server)->address();
    if (::write(address, text.data(), text.size()) < 0) return;
    ::close(address);
    pollfd watched[2] = {{.fd = life, .events = POLLIN, .revents = 0},
                         {.fd = (*server)->fd(), .events = POLLIN, .revents = 0}};
    while (watched[0].revents == 0) {
      if (::poll(watched, 2, -1) > 0) (*server)->progress(Clock::now());
    }
  }

  int size_;
  net::JobKey key_;
  pid_t child_ = -1;
  Fd life_;  // inherited by the ranks
  std::string address_;
};

}  // namespace distrun::test
