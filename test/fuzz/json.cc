// runtime/base/json.h and its users: TF_CONFIG and SM_HOSTS.
#include "runtime/base/json.h"

#include "runtime/net/launchers/platform_tasks.h"
#include "test/fuzz/hosts.h"

namespace distrun::fuzz {

int json(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto read = parse_json(text);
  if (read) require(read->kind != Json::Kind::kObject || read->names.size() == read->values.size(), "each has a name");
  for (const char* variable : {"TF_CONFIG", "SM_HOSTS", "JAX_NUM_PROCESSES"}) {
    const auto tasks = net::platform_tasks({{variable, text}});
    if (!tasks) continue;
    require(tasks->count > 1, "one task is nothing to speak of");
    require(tasks->variable == variable, "it is the variable that names them");
  }
  return 0;
}

std::vector<Bytes> json_seeds() {
  return {
      bytes_of(
          R"({"cluster": {"chief": ["h1:1"], "worker": ["h2:2", "h3:3"]}, "task": {"type": "worker", "index": 0}})"),
      bytes_of(
          R"({"cluster": {"worker": {"0": "h1:1", "4": "h2:2"}}, "task": {"type": "worker"}, "x": [1, null, {}]})"),
      bytes_of(R"(["algo-1", "algo-2"])"),
      bytes_of("16"),
  };
}

}  // namespace distrun::fuzz
