// The host's side of a plug-in's group, for tests below the plug-in's table. It records the status of each token.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/backend/plugin/plugin_side.h"

namespace distrun::test {

struct Record {
  std::map<std::uint64_t, Status> done;
  bool twice = false;  // a token was completed again

  [[nodiscard]] std::string outcome(std::uint64_t token) const {
    const auto found = done.find(token);
    if (found == done.end()) return "in flight";
    return found->second.ok() ? "ok" : found->second.message();
  }
  backend::plugin::Host host() {
    static const distrun_backend_host table = {.struct_size = sizeof(distrun_backend_host),
                                               .version = DISTRUN_BACKEND_VERSION,
                                               .complete = &note_complete,
                                               .peer_lost = nullptr,
                                               .mac = nullptr};
    return {&table, reinterpret_cast<distrun_backend_host_group*>(this)};
  }

 private:
  static void note_complete(distrun_backend_host_group* group, std::uint64_t token, std::int32_t code,
                            const char* message) {
    auto& record = *reinterpret_cast<Record*>(group);
    record.twice = record.twice || record.done.contains(token);
    record.done[token] = code == 0 ? Status() : Status(static_cast<Errc>(code), message == nullptr ? "" : message);
  }
};

}  // namespace distrun::test
