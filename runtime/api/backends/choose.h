// Chooses and makes the backends of one process set. The members exchange offers, and each selects from all offers.
// Each member sets up the choice, and the members exchange the results. If one member cannot set a backend up, all
// members drop it with that reason and try the next one. So all members always have the same backend.
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

// By member. exchange_offers() is collective over the group. Call it once for all device types.
using Offers = std::vector<std::vector<backend::Offer>>;
Result<Offers> exchange_offers(const backend::GroupSpec& group, const Factories& factories,
                               const backend::Services& services, TimePoint deadline);

// Collective over the group. `hosts[i]` is the name of member i's host, for the texts. kUnsupported: no backend can
// take tensors on this device. All members get this result, without waiting for one another. Each backend may use the
// time until `deadline`, and at least the setting start_timeout, so that a slow one does not make the next one fail.
Result<ChosenBackend> choose_backend(DeviceType device, Offers offers, const backend::GroupSpec& group,
                                     const Factories& factories, const backend::Services& services,
                                     const std::vector<std::string>& hosts, TimePoint deadline);

// The prefixes of the keys that these two functions leave in the store for this group.
std::vector<std::string> set_up_keys(const std::string& group);

// The encoding of one rank's offers in the store. Decoding checks all sizes and values.
std::string encode_offers(const std::vector<backend::Offer>& offers);
Result<std::vector<backend::Offer>> decode_offers(const std::string& bytes);

}  // namespace distrun::api
