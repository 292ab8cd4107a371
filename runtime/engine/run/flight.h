// One backend operation: it is prepared from the tensors of a log entry, and its result is brought into their outputs.
// This is written once for all operations; backends only move and reduce data.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/base/clock.h"
#include "runtime/engine/run/member.h"
#include "runtime/engine/run/process_set.h"
#include "runtime/engine/run/tensor_table.h"

namespace distrun::engine {

// Counts one more operation in flight for its set, as long as it exists.
class Counted {
 public:
  // `active`: the sets that have something in flight. It outlives this.
  Counted(std::vector<ProcessSet*>& active, ProcessSet& set);
  ~Counted();
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::vector<ProcessSet*>& active_;
  ProcessSet& set_;
};

struct Flight {
  int set = 0;
  std::optional<Counted> counted;  // empty for an operation that no backend runs
  backend::Backend* backend = nullptr;
  std::size_t* moves = nullptr;  // the executor's counter of flights of this kind
  backend::Operation operation;
  std::vector<RunTensor> tensors;
  std::vector<backend::Segment> segments;
  std::vector<std::size_t> counts;      // as in Operation
  std::vector<void*> marks;             // as in Operation; the tensors own them
  std::size_t members = 0;              // of the set
  std::unique_ptr<std::byte[]> packed;  // buffer for a backend that cannot use the tensors' own memory
  TimePoint agreed;
  TimePoint started;

  [[nodiscard]] bool is_on_device() const { return operation.device.type != DeviceType::kCpu; }
};

// Fills in everything that `backend` needs to start the operation, and makes outputs and buffers. The flight has its
// tensors already. huge_pages: request them where large outputs are about to be written.
Status prepare(const ProcessSet& set, backend::Backend& backend, bool huge_pages, Flight& flight);
// Call this after the backend has ended the operation without an error. It applies the scales that the backend did not,
// and copies out of the packed buffer.
void unpack(Flight& flight);

}  // namespace distrun::engine
