// A plug-in as a Backend. It runs on the engine's thread if the plug-in allows this, otherwise on its own thread.
#pragma once

#include <memory>

#include "runtime/backend/factory.h"
#include "runtime/backend/plugin/library.h"

namespace distrun::backend::plugin {

// The plug-in's answer for this group, as an Offer.
Offer offer_of(const Library& library, const GroupSpec& group, const Services& services);

// See Factory::mark. Any thread.
Result<std::shared_ptr<void>> mark_of(const std::shared_ptr<const Library>& library, Device device, void* stream);

Result<std::unique_ptr<Backend>> make_backend(std::shared_ptr<const Library> library, const GroupSpec& group,
                                              const Services& services, TimePoint deadline);

}  // namespace distrun::backend::plugin
