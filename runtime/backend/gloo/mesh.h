// A Gloo context whose waits can be ended. Closing or shutting down connections does not end them all: a send that
// Gloo's own thread takes up while its connection breaks is forgotten, and who waits for it waits for ever.
#pragma once

#include <gloo/rendezvous/context.h>

#include <chrono>
#include <memory>

namespace distrun::backend::gloo_plugin {

class Waits;

// Gloo ends calls and closes its pairs when a member is slow. When a member is too slow is the engine's to say: it
// aborts the group.
inline constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

class Mesh final : public ::gloo::rendezvous::Context {
 public:
  Mesh(int index, int members);
  // After connectFullMesh(): buffers that are made from now on can be ended.
  void make_abortable();
  // Ends every wait, now and later, with an exception. Any thread.
  void end_waits();

 private:
  std::shared_ptr<Waits> waits_;
};

}  // namespace distrun::backend::gloo_plugin
