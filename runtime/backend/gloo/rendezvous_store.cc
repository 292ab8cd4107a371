#include "runtime/backend/gloo/rendezvous_store.h"

#include <algorithm>
#include <stdexcept>

namespace distrun::backend::gloo_plugin {
namespace {

void require(std::int32_t code, const std::string& what) {
  if (code == DISTRUN_BACKEND_OK) return;
  throw std::runtime_error("the job's store did not " + what + " (" +
                           (code == DISTRUN_BACKEND_TIMEOUT ? "in time" : "code " + std::to_string(code)) + ")");
}

}  // namespace

void RendezvousStore::set(const std::string& key, const std::vector<char>& data) {
  require(store_.set(store_.context, key.c_str(), data.data(), data.size()), "take Gloo's address of this rank");
}

std::vector<char> RendezvousStore::get(const std::string& key) {
  std::vector<char> value(4096);
  for (;;) {
    const double seconds = std::max(0.0, std::chrono::duration<double>(deadline_ - Clock::now()).count());
    std::uint64_t size = 0;
    require(store_.get(store_.context, key.c_str(), seconds, value.data(), value.size(), &size),
            "give Gloo's address of member " + key);
    const bool whole = size <= value.size();
    value.resize(size);
    if (whole) return value;
  }
}

void RendezvousStore::wait(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) get(key);
}

void RendezvousStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) { wait(keys); }

}  // namespace distrun::backend::gloo_plugin
