// Connects the ranks of one host. The lowest rank (the leader) makes the memory of the doorbells and hands it over:
//   store     leader -> members   its abstract unix socket, or why there is none
//   socket    member -> leader    authenticated by the job's key (secure_socket.h); then in the clear, the kernel's:
//             both ways           one byte with the outer end of the own inbox (and the member's doorbell)
//   mail      leader -> member    kInvite (the memory), kPeers (everybody's doorbell and box), one member at a time:
//                                 descriptors under way count against the user's limit
//             member -> leader    kProof: the nonce it read in the memory, and the one that it wrote there
//             leader -> members   kVerdict, the same for all
// A part that fails is told to the leader (by mail, or through the store before there is mail), so that all ranks of
// the host get the same outcome.
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
  SharedMemory memory;  // of parts.lines
  HostParts parts;
  HostMail mail;  // of parts.inbox; a fast rank's next packets may be in it already
};

// Blocks. Collective over candidates.ranks.
Result<ConnectedHost> set_up_host(const HostLinkOptions& options, const HostCandidates& candidates);

}  // namespace distrun::net
