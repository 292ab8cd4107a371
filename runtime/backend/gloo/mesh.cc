#include "runtime/backend/gloo/mesh.h"

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <set>
#include <utility>
#include <vector>

#include "runtime/base/annotations.h"

namespace distrun::backend::gloo_plugin {

// The buffers on which the group's thread may wait.
class Waits {
 public:
  void add(::gloo::transport::UnboundBuffer* buffer) {
    const MutexLock lock(mutex_);
    buffers_.insert(buffer);
    if (ended_) end(*buffer);
  }
  void remove(::gloo::transport::UnboundBuffer* buffer) {
    const MutexLock lock(mutex_);
    buffers_.erase(buffer);
  }
  void end_all() {
    const MutexLock lock(mutex_);
    ended_ = true;
    for (::gloo::transport::UnboundBuffer* buffer : buffers_) end(*buffer);
  }

 private:
  static void end(::gloo::transport::UnboundBuffer& buffer) {
    buffer.abortWaitSend();
    buffer.abortWaitRecv();
  }

  Mutex mutex_;
  std::set<::gloo::transport::UnboundBuffer*> buffers_ DISTRUN_GUARDED_BY(mutex_);
  bool ended_ DISTRUN_GUARDED_BY(mutex_) = false;
};

namespace {

using Milliseconds = std::chrono::milliseconds;
using InnerBuffer = ::gloo::transport::UnboundBuffer;

void require(bool completed) {
  if (!completed) throw ::gloo::IoException("the group was aborted");
}

// Gloo's collectives ignore the result of a wait, so an aborted wait throws an exception.
class Buffer final : public InnerBuffer {
 public:
  Buffer(std::unique_ptr<InnerBuffer> inner, std::shared_ptr<Waits> waits)
      : InnerBuffer(inner->ptr, inner->size), inner_(std::move(inner)), waits_(std::move(waits)) {
    waits_->add(inner_.get());
  }
  ~Buffer() override { waits_->remove(inner_.get()); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  bool waitRecv(int* rank, Milliseconds timeout) override {
    require(inner_->waitRecv(rank, timeout));
    return true;
  }
  bool waitSend(int* rank, Milliseconds timeout) override {
    require(inner_->waitSend(rank, timeout));
    return true;
  }
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }
  void send(int member, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    inner_->send(member, slot, offset, bytes);
  }
  void recv(int member, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    inner_->recv(member, slot, offset, bytes);
  }
  void recv(std::vector<int> members, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    inner_->recv(std::move(members), slot, offset, bytes);
  }

 private:
  std::unique_ptr<InnerBuffer> inner_;
  std::shared_ptr<Waits> waits_;
};

// Gloo's connections, with the buffers above.
class Transport final : public ::gloo::transport::Context {
 public:
  Transport(std::shared_ptr<::gloo::transport::Context> inner, std::shared_ptr<Waits> waits)
      : ::gloo::transport::Context(inner->rank, inner->size), inner_(std::move(inner)), waits_(std::move(waits)) {}

  std::unique_ptr<::gloo::transport::Pair>& getPair(int member) override { return inner_->getPair(member); }
  std::unique_ptr<::gloo::transport::Pair>& createPair(int member) override { return inner_->createPair(member); }
  std::unique_ptr<InnerBuffer> createUnboundBuffer(void* data, std::size_t bytes) override {
    return std::make_unique<Buffer>(inner_->createUnboundBuffer(data, bytes), waits_);
  }

 private:
  std::shared_ptr<::gloo::transport::Context> inner_;
  std::shared_ptr<Waits> waits_;
};

}  // namespace

Mesh::Mesh(int index, int members) : ::gloo::rendezvous::Context(index, members), waits_(std::make_shared<Waits>()) {
  setTimeout(kForever);
}

std::vector<std::string> Mesh::listen(std::shared_ptr<::gloo::transport::Device> device) {
  auto transport = device->createContext(rank, size);
  transport->setTimeout(kForever);
  std::vector<std::string> addresses(static_cast<std::size_t>(size));
  for (int member = 0; member < size; ++member) {
    if (member == rank) continue;
    const std::vector<char> bytes = transport->createPair(member)->address().bytes();
    addresses[static_cast<std::size_t>(member)].assign(bytes.begin(), bytes.end());
  }
  device_ = std::move(device);
  transportContext_ = std::make_shared<Transport>(std::move(transport), waits_);
  return addresses;
}

void Mesh::connect(int member, const std::string& address) {
  getPair(member)->connect(std::vector<char>(address.begin(), address.end()));
}

void Mesh::end_waits() { waits_->end_all(); }

// connect() does not wait for a closed pair.
void Mesh::end() {
  for (int member = 0; member < size; ++member) {
    if (member != rank) getPair(member)->close();
  }
  end_waits();
}

}  // namespace distrun::backend::gloo_plugin
