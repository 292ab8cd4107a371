// What the targets for lists and files of hosts have in common.
#pragma once

#include <string_view>

#include "launcher/plan/hosts/hosts.h"
#include "runtime/base/status.h"
#include "test/fuzz/targets.h"

namespace distrun::fuzz {

// A name and a user that ssh can get as words of their own.
void require_safe(const launcher::HostSlots& host);
// A text for a terminal: bounded, and no control characters but the ends of its lines.
void require_sane(const Status& error);

Bytes bytes_of(std::string_view text);

}  // namespace distrun::fuzz
