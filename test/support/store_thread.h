// A real StoreServer on its own thread, run as the launcher's loop runs it. For tests whose ranks are threads.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/annotations.h"
#include "runtime/base/fd.h"
#include "runtime/net/store/store_client.h"
#include "runtime/net/store/store_server.h"

namespace distrun::test {

class StoreThread {
 public:
  explicit StoreThread(int size, const std::string& bind_address = "unix:@", std::size_t max_bytes = 64U << 20)
      : size_(size) {
    auto server = net::StoreServer::create(
        key_, {.bind_address = bind_address, .job_id = "test-job", .size = size, .max_bytes = max_bytes});
    if (!server.ok()) throw std::runtime_error(server.status().message());
    server_ = *std::move(server);
    address_ = server_->address();
    thread_ = std::thread([this] { run(); });
  }
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;
  ~StoreThread() { stop(); }

  // Acts as if the launcher died: connections end without a message. It is also how a test ends the server.
  void stop() {
    if (!thread_.joinable()) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(stop_.get(), &one, sizeof(one));
    thread_.join();
    server_.reset();
  }

  [[nodiscard]] const net::JobKey& key() const { return key_; }
  [[nodiscard]] net::World world(int rank) const {
    net::World world;
    world.rank = world.local_rank = rank;
    world.size = world.local_size = size_;
    world.job_id = "test-job";
    world.store = address_;
    return world;
  }
  // Opens the connection of one rank. Throws if it is refused.
  [[nodiscard]] std::unique_ptr<net::StoreClient> connect(int rank) const {
    auto client = net::StoreClient::connect(world(rank), key_, deadline_after(40));
    if (!client.ok()) throw std::runtime_error(client.status().message());
    return *std::move(client);
  }

  void publish(const net::JobEvent& event) {
    const MutexLock lock(mutex_);
    server_->publish(event);
  }
  // Waits until a notice satisfies `fits` and returns it. Throws after 40 s.
  net::StoreNotice wait_for(const std::function<bool(const net::StoreNotice&)>& fits) {
    const MutexLock lock(mutex_);
    const TimePoint deadline = deadline_after(40);
    for (;;) {
      for (const auto& notice : notices_) {
        if (fits(notice)) return notice;
      }
      if (Clock::now() > deadline) throw std::runtime_error("the notice did not come");
      changed_.wait_until(mutex_, deadline);
    }
  }

 private:
  void run() {
    for (;;) {
      pollfd items[2] = {{.fd = server_->fd(), .events = POLLIN, .revents = 0},
                         {.fd = stop_.get(), .events = POLLIN, .revents = 0}};
      ::poll(items, 2, -1);
      if (items[1].revents != 0) return;
      const MutexLock lock(mutex_);
      server_->progress(Clock::now());
      for (auto& notice : server_->take_notices()) notices_.push_back(std::move(notice));
      changed_.notify_all();
    }
  }

  const int size_;
  const net::JobKey key_ = net::JobKey::generate();
  const Fd stop_ = Fd(::eventfd(0, EFD_CLOEXEC));
  std::string address_;
  // progress() and publish() alternate under the mutex; fd() and the address never change.
  std::unique_ptr<net::StoreServer> server_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<net::StoreNotice> notices_ DISTRUN_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace distrun::test
