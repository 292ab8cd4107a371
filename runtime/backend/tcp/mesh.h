// Makes the direct connections between all pairs of a group's members, which the ring's neighbours alone do not have.
// Event-driven, in the wait set's callbacks: nothing here blocks, for a member that comes late may need this one to get
// there. Every member listens and tells its address around the ring (`addresses()`, an all-gather that the owner runs);
// of each pair one member connects and the other accepts, so that everybody does half of it.
// For the holder of the progress token.
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
  // Both get a member's index. `connected`: an authenticated connection. `failed`: there will be none, and
  // why. Neither may destroy the mesh.
  struct Events {
    std::function<void(std::size_t, DataLink)> connected;
    std::function<void(std::size_t, const Status&)> failed;
  };

  // Listens. An error where the descriptors are too few for a connection to every member, or no port is to be had.
  static Result<std::unique_ptr<Mesh>> open(const GroupSpec& group, const Services& services, Protection protection,
                                            Events events);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  // The all-gather of everybody's address; once per mesh, before connect(). The mesh owns its memory.
  [[nodiscard]] Operation addresses() const;
  void connect();
  // Connects and accepts no more. What is half made stays until the mesh is destroyed, and so does the port: the others
  // wait for the cause, and do not take a refused connection or the end of one for it.
  void stop();
  // Whether that world rank is to connect to this member and has not come.
  [[nodiscard]] bool awaits(int rank) const { return refusal(rank).empty(); }

 private:
  Mesh(const GroupSpec& group, const Services& services, Protection protection, Events events);
  [[nodiscard]] net::Hello hello(int to) const;
  [[nodiscard]] std::string refusal(int rank) const;
  [[nodiscard]] std::size_t member(int rank) const;  // size_ if it is none
  [[nodiscard]] std::string address_of(std::size_t peer) const;
  Status listen(const Services& services);
  void on_listener();
  void close_if_complete();
  void try_connect(std::size_t peer);
  void on_connector(std::size_t peer);
  void forget(std::size_t peer);
  void came(std::size_t peer, net::SecureSocket& socket);
  void give_up(std::size_t peer, const Status& why);

  // A pair's connection in the making, on the side that connects.
  struct Attempt {
    std::unique_ptr<net::SecureConnector> connector;  // null: none is under way
    int watched = -1;                                 // its descriptor, which it gives away in the end
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
  // Descriptors held for the connections to come, so that nobody else in this process counts on them.
  std::vector<Fd> places_to_accept_, places_to_connect_;
  std::unique_ptr<net::SecureListener> listener_;  // null once everybody has come
  std::size_t awaited_ = 0;                        // members that connect to this one and have not come yet
  std::vector<bool> here_;                         // those that have
  std::vector<Attempt> attempts_;
  // Of the all-gather.
  std::vector<std::byte> own_, all_;
  std::vector<std::size_t> counts_;
  Segment segment_;
};

}  // namespace distrun::backend::tcp
