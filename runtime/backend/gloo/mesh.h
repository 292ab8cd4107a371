// A Gloo context whose waits can be ended. Closing or shutting down connections does not end all waits. If a connection
// breaks while Gloo's thread starts a send, Gloo forgets the send, and the wait for it never ends.
#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/transport/device.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace distrun::backend::gloo_plugin {

class Waits;

// Gloo's timeout, which is never reached. With a shorter one, Gloo ends calls and closes its pairs when a member is
// slow. distrun decides this itself: the engine aborts the group, and during the set-up end() closes the connections.
inline constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

class Mesh final : public ::gloo::rendezvous::Context {
 public:
  Mesh(int index, int members);
  // Listens for each other member on a separate port. Element [i] is the address for member i, which needs it for
  // connect().
  std::vector<std::string> listen(std::shared_ptr<::gloo::transport::Device> device);
  // Waits until the connection is made. The two addresses decide which side listens.
  void connect(int member, const std::string& address);
  // Calls `body` for each other member. Starts with the next member, so that not all members start with the same one.
  template <class Body>
  void for_each_other(Body body) const {
    for (int next = 1; next < size; ++next) body((rank + next) % size);
  }
  // Ends every wait on a buffer with an exception, also later waits. Any thread, after listen().
  void end_waits();
  // Ends the waits of connect() as well: the attempt has failed, and its members may try again. Any thread, after
  // listen().
  void end();

 private:
  std::shared_ptr<Waits> waits_;
};

}  // namespace distrun::backend::gloo_plugin
