// A plug-in as a Backend: on the engine's thread where the plug-in can, on a thread of its own otherwise.
#pragma once

#include <memory>

#include "runtime/backend/factory.h"
#include "runtime/backend/plugin/library.h"

namespace distrun::backend::plugin {

// What the plug-in says of itself for this group.
Offer offer_of(const Library& library, const GroupSpec& group, const Services& services);

// As Factory::mark. Any thread.
Result<std::shared_ptr<void>> mark_of(const std::shared_ptr<const Library>& library, Device device, void* stream);

Result<std::unique_ptr<Backend>> make_backend(std::shared_ptr<const Library> library, const GroupSpec& group,
                                              const Services& services, TimePoint deadline);

}  // namespace distrun::backend::plugin
