// The backends that a session has chosen, and the reasons: query("why") and query("why", json=True). Pure.
#pragma once

#include <string>
#include <vector>

#include "runtime/backend/select.h"

namespace distrun::api {

struct Choice {
  int process_set = 0;
  DeviceType device = DeviceType::kCpu;
  backend::Selection selection;
};

// "process set 0: cpu: shm (memory shared on one host); not tcp: lower score (50 < 80)".
std::string to_text(const Choice& choice);

// A JSON list; docs/reference/python.md has an example.
std::string to_json(const std::vector<Choice>& choices);

}  // namespace distrun::api
