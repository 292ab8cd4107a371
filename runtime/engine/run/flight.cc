#include "runtime/engine/run/flight.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "runtime/base/system/huge_pages.h"
#include "runtime/engine/readiness/parts.h"
#include "runtime/engine/run/stand_in.h"

namespace distrun::engine {
namespace {

// Elements as the backend gets them. The counts, and everything else about a flight's operation, are in these.
std::size_t sent_elements(const Tensor& tensor, std::span<const std::int64_t> shape) {
  const Signature& s = tensor.signature();
  return static_cast<std::size_t>(num_elements(shape)) * sent_as(s.kind, s.reduce, s.dtype).count;
}
std::size_t count_of(const Tensor& tensor) { return sent_elements(tensor, tensor.signature().shape); }

const std::byte* input_of(const Tensor& tensor) { return tensor.input_memory(); }
std::byte* output_of(const Tensor& tensor) { return tensor.output_memory(); }

// The tensors of one call share a mark.
std::vector<void*> marks_of(const std::vector<RunTensor>& tensors) {
  std::vector<void*> marks;
  for (const RunTensor& one : tensors) {
    void* mark = one.tensor->submission().mark.get();
    if (mark != nullptr && (marks.empty() || marks.back() != mark)) marks.push_back(mark);
  }
  return marks;
}

std::size_t row_elements(const Tensor& tensor) {
  return sent_elements(tensor, std::span(tensor.signature().shape).subspan(1));
}

Status wrong_sizes(std::size_t sizes, const ProcessSet& set, const Tensor& tensor) {
  return {Errc::kProtocol, "the decision log gives " + std::to_string(sizes) + " sizes for an " +
                               std::string(name_of(tensor.signature().kind)) + " of " +
                               std::to_string(set.members.size()) +
                               " ranks. This is a bug in distrun, please report it"};
}

// For a backend that does not scale. The inputs are scaled before it runs, its results afterwards by finish_part(). A
// scaled average is also divided there, because rounding twice would give another result.
void take_scales(backend::Operation& operation) {
  if (operation.postscale != 1.0 && operation.reduce == ReduceOp::kAverage) operation.reduce = ReduceOp::kSum;
  operation.prescale = operation.postscale = 1.0;
}

// Makes the output of an operation whose rows come from all members. `dims`: number of rows of each member.
Status make_output(Tensor& tensor, backend::Backend& backend, const std::vector<std::int64_t>& dims) {
  const auto rows = sum_of_rows(dims, tensor.signature());
  if (!rows)
    return {Errc::kProtocol, "the decision log has impossible sizes. This is a bug in distrun, please report it"};
  Shape shape = tensor.signature().shape;
  shape.front() = *rows;
  Output& output = tensor.output();
  output.bytes = static_cast<std::size_t>(num_elements(shape)) * size_of(tensor.signature().dtype);
  auto memory = backend.allocate(tensor.submission().device, output.bytes, {});
  if (!memory.ok()) {
    return memory.status().with_context("the output of " + std::string(name_of(tensor.signature().kind)) + " '" +
                                        tensor.submission().name + "'");
  }
  output.shape = std::move(shape);
  output.first_dims = dims;
  output.gathered = *std::move(memory);
  return {};
}

// Fills in the output of a reducescatter: this member's share.
void describe_share(const ProcessSet& set, Tensor& tensor) {
  Output& output = tensor.output();
  output.shape = tensor.signature().shape;
  output.shape.front() = share_of(output.shape.front(), set.members.size(), static_cast<std::size_t>(set.index));
  output.bytes = static_cast<std::size_t>(num_elements(output.shape)) * size_of(tensor.signature().dtype);
}

// Packs all tensors into one buffer, which is scaled on the way in and out.
Status pack(Flight& flight, bool huge_pages) {
  const DType dtype = flight.operation.dtype;
  std::size_t count = 0;
  for (const backend::Segment& one : flight.segments) count += one.count;
  auto memory = backend::make_buffer(count * size_of(dtype), "the buffer in which small tensors are reduced together");
  if (!memory.ok()) return memory.status();
  flight.packed = *std::move(memory);
  if (huge_pages) prefer_huge_pages(flight.packed.get(), count * size_of(dtype));
  std::byte* to = flight.packed.get();
  for (const backend::Segment& one : flight.segments) {
    backend::scale(dtype, flight.operation.prescale, one.in, to, one.count);
    to += one.count * size_of(dtype);
  }
  flight.segments.assign(1, {flight.packed.get(), flight.packed.get(), count});
  take_scales(flight.operation);
  return {};
}

// Only reductions have scales, so a broadcast is never packed.
Status segments_as_input(const ProcessSet& set, const backend::Backend& backend, bool huge_pages, Flight& flight) {
  const Signature& signature = flight.tensors.front().tensor->signature();
  if (traits_of(signature.kind).has_root) flight.operation.root = set.index_of(signature.root);
  flight.segments.reserve(flight.tensors.size());
  for (const RunTensor& one : flight.tensors) {
    flight.segments.push_back({input_of(*one.tensor), output_of(*one.tensor), count_of(*one.tensor)});
  }
  const bool scaled = flight.operation.prescale != 1.0 || flight.operation.postscale != 1.0;
  const bool direct = flight.segments.size() == 1 && !scaled;
  return backend.capabilities().scatter_gather || direct ? Status() : pack(flight, huge_pages);
}

Status segment_of_allgather(const ProcessSet& set, backend::Backend& backend, Flight& flight) {
  Tensor& tensor = *flight.tensors.front().tensor;
  const auto& dims = flight.tensors.front().first_dims;
  if (dims.size() != set.members.size()) return wrong_sizes(dims.size(), set, tensor);
  const auto row = row_elements(tensor);
  for (const std::int64_t dim : dims) flight.counts.push_back(static_cast<std::size_t>(dim) * row);
  DISTRUN_RETURN_IF_ERROR(make_output(tensor, backend, dims));
  flight.segments.push_back({input_of(tensor), tensor.output().gathered.get(), count_of(tensor)});
  return {};
}

Status segment_of_alltoall(const ProcessSet& set, backend::Backend& backend, Flight& flight) {
  Tensor& tensor = *flight.tensors.front().tensor;
  const std::size_t members = set.members.size();
  const auto rows = rows_of(flight.tensors.front().first_dims, members);
  if (rows.size() != members * members) {
    return wrong_sizes(flight.tensors.front().first_dims.size(), set, tensor);
  }
  const auto row = row_elements(tensor);
  const auto self = static_cast<std::size_t>(set.index);
  std::vector<std::int64_t> received;
  std::size_t sent = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    flight.counts.push_back(static_cast<std::size_t>(rows[i]) * row);
    if (i / members == self) sent += flight.counts.back();
    if (i % members == self) received.push_back(rows[i]);
  }
  DISTRUN_RETURN_IF_ERROR(make_output(tensor, backend, received));
  flight.segments.push_back({input_of(tensor), tensor.output().gathered.get(), sent});
  return {};
}

Status segment_of_reducescatter(const ProcessSet& set, const backend::Backend& backend, Flight& flight) {
  Tensor& tensor = *flight.tensors.front().tensor;
  describe_share(set, tensor);
  const auto row = row_elements(tensor);
  const std::int64_t rows = tensor.signature().shape.front();
  for (std::size_t i = 0; i < set.members.size(); ++i) {
    flight.counts.push_back(static_cast<std::size_t>(share_of(rows, set.members.size(), i)) * row);
  }
  flight.segments.push_back({input_of(tensor), output_of(tensor), count_of(tensor)});
  if (backend.capabilities().scatter_gather) return {};
  // The backend gets a scaled copy. unpack() finishes the result where it arrives.
  const double prescale = flight.operation.prescale;
  take_scales(flight.operation);
  if (prescale == 1.0) return {};
  const std::size_t bytes = payload_bytes(tensor.signature());
  auto memory = backend::make_buffer(bytes, "the scaled input of reducescatter '" + tensor.submission().name + "'");
  if (!memory.ok()) return memory.status();
  flight.packed = *std::move(memory);
  backend::scale(flight.operation.dtype, prescale, input_of(tensor), flight.packed.get(), count_of(tensor));
  flight.segments.front().in = flight.packed.get();
  return {};
}

Status describe_segments(const ProcessSet& set, backend::Backend& backend, bool huge_pages, Flight& flight) {
  const OpTraits& traits = traits_of(flight.operation.kind);
  switch (traits.output) {
    case OpOutput::kNone:
      break;
    case OpOutput::kAsInput:
      return segments_as_input(set, backend, huge_pages, flight);
    case OpOutput::kGathered:
      return traits.has_splits ? segment_of_alltoall(set, backend, flight) : segment_of_allgather(set, backend, flight);
    case OpOutput::kShare:
      return segment_of_reducescatter(set, backend, flight);
  }
  return {};
}

// Most outputs are new memory, because a framework makes one for each operation.
void advise_on_output(const Tensor& tensor) {
  const Output& output = tensor.output();
  if (output.gathered) return prefer_huge_pages(output.gathered.get(), output.bytes);
  if (output_of(tensor) == input_of(tensor)) return;
  const bool share = traits_of(tensor.signature().kind).output == OpOutput::kShare;
  prefer_huge_pages(output_of(tensor), share ? output.bytes : payload_bytes(tensor.signature()));
}

// Finishes a part of the backend's result: applies what the backend did not do to `from`, and writes the output.
void finish_part(const Flight& flight, const Tensor& tensor, const std::byte* from, std::size_t count) {
  const Signature& all = flight.tensors.front().tensor->signature();
  const ReduceOp left = all.reduce == flight.operation.reduce ? ReduceOp::kSum : all.reduce;
  backend::finish(flight.operation.dtype, left, all.postscale, flight.members, from, output_of(tensor), count);
}

}  // namespace

Counted::Counted(std::vector<ProcessSet*>& active, ProcessSet& set) : active_(active), set_(set) {
  if (set.in_flight == 0) active.push_back(&set);
  ++set.in_flight;
}

Counted::~Counted() {
  if (--set_.in_flight == 0) std::erase(active_, &set_);
}

Status prepare(const ProcessSet& set, backend::Backend& backend, bool huge_pages, Flight& flight) {
  for (const RunTensor& one : flight.tensors) {
    if (one.tensor->is_stand_in()) DISTRUN_RETURN_IF_ERROR(fill_stand_in(*one.tensor, backend));
  }
  const Tensor& first = *flight.tensors.front().tensor;
  const Signature& signature = first.signature();
  flight.operation = {.kind = signature.kind,
                      .dtype = sent_as(signature.kind, signature.reduce, signature.dtype).dtype,
                      .device = first.submission().device,
                      .reduce = signature.reduce,
                      .prescale = signature.prescale,
                      .postscale = signature.postscale};
  Status status = describe_segments(set, backend, huge_pages, flight);
  flight.members = set.members.size();
  flight.operation.segments = flight.segments;
  flight.operation.counts = flight.counts;
  flight.marks = marks_of(flight.tensors);
  flight.operation.marks = flight.marks;
  if (huge_pages && status.ok() && !flight.is_on_device()) {
    for (const RunTensor& one : flight.tensors) advise_on_output(*one.tensor);
  }
  return status;
}

// Needed only if the backend did not scale, or used the packed buffer.
void unpack(Flight& flight) {
  const Signature& all = flight.tensors.front().tensor->signature();
  if (traits_of(all.kind).output == OpOutput::kShare && all.postscale != flight.operation.postscale) {
    const Tensor& tensor = *flight.tensors.front().tensor;
    finish_part(flight, tensor, output_of(tensor), tensor.output().bytes / size_of(flight.operation.dtype));
  }
  if (traits_of(all.kind).output != OpOutput::kAsInput || !flight.packed) return;
  const std::byte* from = flight.packed.get();
  for (const RunTensor& one : flight.tensors) {
    const std::size_t count = count_of(*one.tensor);
    finish_part(flight, *one.tensor, from, count);
    from += count * size_of(flight.operation.dtype);
  }
}

}  // namespace distrun::engine
