// One backend operation: made ready from the tensors of a log entry, and its result brought into their outputs. Written
// once for all operations; the backends only move and reduce.
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

// Its set has one more operation in flight for as long as it lives.
class Counted {
 public:
  // `active`: the sets that have something in flight; outlives this.
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
  std::optional<Counted> counted;  // none for an operation that no backend runs
  backend::Backend* backend = nullptr;
  std::size_t* moves = nullptr;  // the executor's count of flights of this kind
  backend::Operation operation;
  std::vector<RunTensor> tensors;
  std::vector<backend::Segment> segments;
  std::vector<std::size_t> counts;      // as in Operation
  std::vector<void*> marks;             // as in Operation; the tensors own them
  std::size_t members = 0;              // of the set
  std::unique_ptr<std::byte[]> packed;  // in and out of the backend, where it cannot take the tensors' own memory
  TimePoint agreed;
  TimePoint started;

  [[nodiscard]] bool is_on_device() const { return operation.device.type != DeviceType::kCpu; }
};

// Fills in what `backend` needs to start the operation, whose tensors are there already, and makes outputs and buffers.
// huge_pages: ask for them where large outputs are about to be written.
Status prepare(const ProcessSet& set, backend::Backend& backend, bool huge_pages, Flight& flight);
// After the backend has ended it well: scales what the backend did not, and copies out of the packed buffer.
void unpack(Flight& flight);

}  // namespace distrun::engine
