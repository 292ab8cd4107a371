// Choosing and making the backends of one process set: offers are exchanged, every member selects from all offers, sets
// the choice up, and the outcome is exchanged too: a backend that one member cannot set up is dropped by all, with its
// reason, and the next is tried. Nobody can end up on another backend than the rest.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/factory.h"
#include "runtime/backend/select.h"
#include "runtime/base/clock.h"

namespace distrun::api {

struct ChosenBackend {
  std::unique_ptr<backend::Backend> backend;
  backend::Selection selection;
};

using backend::Factories;

// By member. Collective over the group; once for all device types.
using Offers = std::vector<std::vector<backend::Offer>>;
Result<Offers> exchange_offers(const backend::GroupSpec& group, const Factories& factories,
                               const backend::Services& services, TimePoint deadline);

// Collective over the group. `hosts[i]` names member i's host for the texts. kUnsupported, on all members alike and
// without waiting for any, where no backend can have the device's tensors. Each backend that is tried has until
// `deadline`, and no less than the setting start_timeout: what one has used up is not the next one's failure.
Result<ChosenBackend> choose_backend(DeviceType device, Offers offers, const backend::GroupSpec& group,
                                     const Factories& factories, const backend::Services& services,
                                     const std::vector<std::string>& hosts, TimePoint deadline);

// How the keys begin that these two leave in the store for the group of that id.
std::vector<std::string> set_up_keys(const std::string& group);

// One rank's offers as they travel through the store. Bounded and checked on the way in.
std::string encode_offers(const std::vector<backend::Offer>& offers);
Result<std::vector<backend::Offer>> decode_offers(const std::string& bytes);

}  // namespace distrun::api
