#pragma once

#include <memory>

#include "runtime/backend/factory.h"
#include "runtime/backend/hierarchical/layout.h"

namespace distrun::backend {

// Uses shared memory inside each host, and the backend of the setting between_hosts between them. For groups on several
// hosts, where at least one host has several members.
std::unique_ptr<Factory> make_hierarchical_factory(std::size_t piece_bytes = hierarchical::kPieceBytes);

}  // namespace distrun::backend
