// A Gloo context whose waits can be ended. Closing or shutting down connections does not end them all: a send that
// Gloo's own thread takes up while its connection breaks is forgotten, and who waits for it waits for ever.
#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/transport/device.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace distrun::backend::gloo_plugin {

class Waits;

// Gloo ends calls and closes its pairs when a member is slow. When a member is too slow is others' to say: the engine
// aborts the group, and end() ends what connects it.
inline constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

class Mesh final : public ::gloo::rendezvous::Context {
 public:
  Mesh(int index, int members);
  // Listens for each other member on a port of its own: [i] is the address for member i, who needs it for connect().
  std::vector<std::string> listen(std::shared_ptr<::gloo::transport::Device> device);
  // Waits until there is a connection. Which of the two listens is decided by their addresses.
  void connect(int member, const std::string& address);
  // For each other member, beginning with the next one, so that not all begin with the same.
  template <class Body>
  void for_each_other(Body body) const {
    for (int next = 1; next < size; ++next) body((rank + next) % size);
  }
  // Ends every wait of a buffer, now and later, with an exception. Any thread, after listen().
  void end_waits();
  // Every wait of connect() too: the group has failed, and its members may look elsewhere. Any thread, after listen().
  void end();

 private:
  std::shared_ptr<Waits> waits_;
};

}  // namespace distrun::backend::gloo_plugin
