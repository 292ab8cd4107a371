// Makes the direct connections between all pairs of a group's members. (The ring connects only neighbours.) It is
// event-driven by callbacks of the wait set. Nothing blocks here, because a late member may need this one to make
// progress first. Every member listens and sends its address around the ring (`addresses()`, an all-gather that the
// owner runs). In each pair, one member connects and the other accepts, so that every member connects to half of the
// others.
// Only the holder of the progress token calls this.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/backend/factory.h"
#include "runtime/backend/protection.h"
#include "runtime/net/secure/secure_connector.h"
#include "runtime/net/secure/secure_socket.h"

namespace distrun::backend::tcp {

class Mesh {
 public:
  // Both callbacks get a member's index. `connected`: its authenticated connection. `failed`: the reason why there is
  // no connection. The callbacks may not destroy the mesh.
  struct Events {
    std::function<void(std::size_t, DataLink)> connected;
    std::function<void(std::size_t, const Status&)> failed;
  };

  // Starts to listen. Fails if there are too few descriptors for a connection to every member, or if there is no free
  // port.
  static Result<std::unique_ptr<Mesh>> open(const GroupSpec& group, const Services& services, Protection protection,
                                            Events events);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  // The all-gather of all members' addresses. Run it once per mesh, before connect(). The mesh owns its memory.
  [[nodiscard]] Operation addresses() const;
  void connect();
  // Stops connecting and accepting. Unfinished connections and the port stay open until the mesh is destroyed. The
  // other members wait for the cause, and must not see a refused or closed connection before it.
  void stop();
  // Whether this world rank must connect to this member and has not done so yet.
  [[nodiscard]] bool awaits(int rank) const { return refusal(rank).empty(); }

 private:
  Mesh(const GroupSpec& group, const Services& services, Protection protection, Events events);
  [[nodiscard]] net::Hello hello(int to) const;
  [[nodiscard]] std::string refusal(int rank) const;
  [[nodiscard]] std::size_t member(int rank) const;  // size_ if it is not a member
  [[nodiscard]] std::string address_of(std::size_t peer) const;
  Status listen(const Services& services);
  void on_listener();
  void close_if_complete();
  void try_connect(std::size_t peer);
  void on_connector(std::size_t peer);
  void forget(std::size_t peer);
  void came(std::size_t peer, net::SecureSocket& socket);
  void give_up(std::size_t peer, const Status& why);

  // An attempt to connect to a member. Used on the side that connects.
  struct Attempt {
    std::unique_ptr<net::SecureConnector> connector;  // null: no attempt is running
    int watched = -1;  // the connector's descriptor; remembered, because the connector gives it away
    int made = 0;
  };

  const GroupSpec group_;
  const std::size_t size_, index_;
  const net::JobKey& key_;
  const std::string job_id_;
  const double host_timeout_;  // seconds
  net::WaitSet& wait_set_;
  const Protection protection_;
  const Events events_;
  // Reserved descriptors for the connections to come, so that no other code of this process uses them up.
  std::vector<Fd> places_to_accept_, places_to_connect_;
  std::unique_ptr<net::SecureListener> listener_;  // null after all members have connected
  std::size_t awaited_ = 0;                        // members that must connect to this one and have not done so yet
  std::vector<bool> here_;                         // by member: has it connected
  std::vector<Attempt> attempts_;
  // Buffers of the all-gather.
  std::vector<std::byte> own_, all_;
  std::vector<std::size_t> counts_;
  Segment segment_;
};

}  // namespace distrun::backend::tcp
