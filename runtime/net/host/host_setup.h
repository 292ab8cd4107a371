// Connects the ranks of one host. The lowest rank, the host's leader, creates the memory of the doorbells and passes it
// to the others:
//   store     leader -> members   its abstract unix socket, or why there is none
//   socket    member -> leader    authenticated by the job's key (secure_socket.h); then a plain kernel socket:
//             both ways           one byte with the outer end of the sender's inbox (and the member's doorbell)
//   mail      leader -> member    kInvite (the memory), kPeers (all doorbells and outer ends), one member at a time:
//                                 descriptors in flight count against the user's limit
//             member -> leader    kProof: the nonce that it read in the memory, and the nonce that it wrote there
//             leader -> members   kVerdict, the same for all
// A member whose part fails reports this to the leader by mail, or through the store before there is mail. So all ranks
// of the host get the same outcome.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/net/host/host_candidates.h"
#include "runtime/net/host/host_link.h"
#include "runtime/net/host/host_mail.h"
#include "runtime/net/host/host_peers.h"
#include "runtime/net/host/shared_memory.h"

namespace distrun::net {

struct ConnectedHost {
  SharedMemory memory;  // contains parts.lines
  HostParts parts;
  HostMail mail;  // reads parts.inbox; it may already hold the next packets of a fast rank
};

// Blocks. Collective over candidates.ranks.
Result<ConnectedHost> set_up_host(const HostLinkOptions& options, const HostCandidates& candidates);

}  // namespace distrun::net
