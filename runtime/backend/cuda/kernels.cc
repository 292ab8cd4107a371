#include "runtime/backend/cuda/kernels.h"

#include <algorithm>

namespace distrun::backend::cuda_parts {
namespace {

constexpr unsigned kMostBlocks = 1024;  // of threads; if there are more tiles, each block processes several

// Takes the pieces for one launch from `pieces`. All other fields are copied from `like`.
Batch take_batch(std::span<const Piece>& pieces, const Batch& like) {
  Batch batch = like;
  std::uint64_t tiles = 0;
  while (!pieces.empty() && batch.num_pieces < kPieces) {
    const Piece& piece = pieces.front();
    tiles += (piece.count + kTileElements - 1) / kTileElements;
    if (piece.count > 0) {
      batch.pieces[batch.num_pieces] = piece;
      batch.tile_ends[batch.num_pieces++] = static_cast<std::uint32_t>(tiles);
    }
    pieces = pieces.subspan(1);
  }
  return batch;
}

}  // namespace

Status Kernels::load(CuStream stream) {
  stream_ = stream;
  if (const Status status = calls_.check(calls_.cuda.load_module(&module_, image_), "cuModuleLoadData"); !status.ok()) {
    return {status.code(), status.message() + ". The kernels of distrun need a GPU of compute capability 7.5 or newer"};
  }
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    // No operation on GPUs reduces a dtype without an order (TensorTable::check).
    if (!can_reduce(static_cast<DType>(dtype), ReduceOp::kMin)) continue;
    for (const std::string kind : {"pack", "unpack", "combine"}) {
      const std::string name = kind + "_" + wire_type(static_cast<DType>(dtype)).name;
      CuFunction& kernel = functions_[name];
      const CuResult code = calls_.cuda.get_function(&kernel, module_, ("distrun_" + name).c_str());
      DISTRUN_RETURN_IF_ERROR(calls_.check(code, "cuModuleGetFunction"));
    }
  }
  return {};
}

void Kernels::unload() {
  if (module_ != nullptr) calls_.cuda.unload_module(module_);
  module_ = nullptr;
}

Status Kernels::run(const char* kind, const WireType& wire, const kernels::Finish& how,
                    std::span<const Piece> pieces) const {
  Batch like{};
  like.factor = how.factor;
  like.divisor = how.divisor;
  like.scales = how.factor != 1.0 || how.divisor != 1 ? 1 : 0;
  return launch(kind, wire, like, pieces);
}

Status Kernels::combine(const WireType& wire, Combine how, const Piece& piece) const {
  Batch like{};
  like.combine = how;
  return launch("combine", wire, like, {&piece, 1});
}

Status Kernels::launch(const char* kind, const WireType& wire, const Batch& like, std::span<const Piece> pieces) const {
  CuFunction function = functions_.at(std::string(kind) + "_" + wire.name);
  while (!pieces.empty()) {
    Batch batch = take_batch(pieces, like);
    if (batch.num_pieces == 0) continue;
    void* parameters[] = {&batch};
    const unsigned blocks = std::min(batch.tile_ends[batch.num_pieces - 1], kMostBlocks);
    DISTRUN_RETURN_IF_ERROR(
        calls_.check(calls_.cuda.launch(function, blocks, 1, 1, kBlockThreads, 1, 1, 0, stream_, parameters, nullptr),
                     "cuLaunchKernel"));
  }
  return {};
}

}  // namespace distrun::backend::cuda_parts
