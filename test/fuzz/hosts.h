// Helpers for the targets that parse lists and files of hosts.
#pragma once

#include <string_view>
#include <vector>

#include "launcher/plan/hosts/hosts.h"
#include "runtime/base/status.h"
#include "test/fuzz/targets.h"

namespace distrun::fuzz {

// The host's name and user are safe as separate words of an ssh command line.
void require_safe(const launcher::HostSlots& host);
// All hosts are, and those that are left with slots are the hosts of a job.
void require_safe(std::vector<launcher::HostSlots> hosts);
// The error's text is safe for a terminal: it is bounded and has no control characters except line ends.
void require_sane(const Status& error);

Bytes bytes_of(std::string_view text);

}  // namespace distrun::fuzz
