#include "cuda/executor.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cuda/kernels/kernel.hpp"

namespace syntony::cuda {
namespace {

ArenaShape checked(const ArenaShape& shape, std::uint32_t rank) {
  if (rank >= shape.ranks) {
    throw std::invalid_argument("rank " + std::to_string(rank) + " is not one of " + std::to_string(shape.ranks));
  }
  if (shape.channels == 0 || shape.depth == 0) throw std::invalid_argument("a group needs a channel and a message");
  for (const std::uint32_t bytes : {shape.slot_bytes, shape.line_bytes}) {
    if (bytes == 0 || bytes % kLineBytes != 0) {
      throw std::invalid_argument("a FIFO's slot has " + std::to_string(bytes) + " bytes; it needs a multiple of " +
                                  std::to_string(kLineBytes));
    }
  }
  return shape;
}

std::uint32_t blocks_for_a_rank(int device, std::uint32_t ranks_on_device, bool bulk) {
  if (ranks_on_device == 0) throw std::invalid_argument("at least this rank is on the GPU");
  const OnDevice here(device);
  int processors = 0;
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "asking for the processors");
  return static_cast<std::uint32_t>(processors * blocks_of_a_processor(bulk)) / ranks_on_device;
}

template <class T>
std::size_t table_bytes(const std::vector<T>& rows) {
  return (rows.size() * sizeof(T) + 15) / 16 * 16;
}

std::size_t tables_bytes(const KernelForm& form) {
  return table_bytes(form.lanes) + table_bytes(form.instructions) + table_bytes(form.ends) + table_bytes(form.slots) +
         table_bytes(form.dependencies);
}

LoweringOptions within(LoweringOptions options, const Executor& executor) {
  const std::uint32_t blocks = options.bulk ? executor.bulk_blocks() : executor.blocks();
  options.blocks = options.blocks == 0 ? blocks : std::min(options.blocks, blocks);
  return options;
}

}  // namespace

Executor::Executor(int device, std::uint32_t rank, const ArenaShape& shape, std::uint32_t ranks_on_device)
    : device_(device),
      rank_(rank),
      shape_(checked(shape, rank)),
      ranks_on_device_(ranks_on_device),
      blocks_(blocks_for_a_rank(device, ranks_on_device, false)),
      arena_(device, arena_bytes(shape)),
      arenas_(device, shape.ranks * sizeof(std::byte*)),
      last_(device) {}

Executor::~Executor() {
  // Launches still running use the arena and the words.
  if (last_stream_) static_cast<void>(cudaEventSynchronize(last_.handle()));
}

std::uint32_t Executor::bulk_blocks() const {
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_), "asking for the architecture");
  if (major < 9) {
    throw std::invalid_argument("bulk copies need Hopper or later (sm_90), and GPU " + std::to_string(device_) +
                                " is of sm_" + std::to_string(major) + "x");
  }
  return blocks_for_a_rank(device_, ranks_on_device_, true);
}

void Executor::connect(std::span<std::byte* const> arenas) {
  if (arenas.size() != shape_.ranks) {
    throw std::invalid_argument("the group has " + std::to_string(shape_.ranks) + " ranks, and " +
                                std::to_string(arenas.size()) + " arenas came");
  }
  if (arenas[rank_] != arena()) throw std::invalid_argument("the arena of this rank is not the one it has");
  const OnDevice here(device_);
  for (std::uint32_t peer = 0; peer < shape_.ranks; ++peer) {
    cudaPointerAttributes found{};
    check(cudaPointerGetAttributes(&found, arenas[peer]), "looking at a peer's arena");
    if (found.type != cudaMemoryTypeDevice) {
      throw std::invalid_argument("the arena of rank " + std::to_string(peer) + " is not memory of a GPU");
    }
    if (found.device == device_) continue;
    const cudaError_t status = cudaDeviceEnablePeerAccess(found.device, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
      static_cast<void>(cudaGetLastError());  // clears the error: this is the desired state
    } else {
      check(status, "reaching the GPU of rank " + std::to_string(peer));
    }
  }
  arenas_.write(std::as_bytes(arenas));
  connected_ = true;
}

void Executor::launch(const LaunchPlan& plan, std::span<std::byte* const> pointers, cudaStream_t stream) {
  const KernelForm& form = plan.form();
  if (!connected_ && shape_.ranks > 1) throw std::invalid_argument("connect() comes before the first launch");
  if (pointers.size() != form.bases.size()) {
    throw std::invalid_argument("the plan has " + std::to_string(form.bases.size()) + " bases, and " +
                                std::to_string(pointers.size()) + " pointers came");
  }
  Launch launch;
  launch.tables = plan.tables();
  launch.shape = shape_;
  launch.rank = rank_;
  launch.number = launches_ + 1;
  launch.arenas = reinterpret_cast<std::byte* const*>(arenas_.data());
  launch.abort = words_.abort_word();
  launch.trouble = words_.trouble_words();
  launch.bulk = form.bulk;
  launch.timeout = static_cast<std::uint64_t>(timeout_.count());
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    const Base& base = form.bases[i];
    const bool own_scratch = base.space == Space::scratch && base.rank == rank_;
    launch.bases[i] = pointers[i] == nullptr && own_scratch ? plan.scratch() : pointers[i];
    const bool missing = launch.bases[i] == nullptr && form.slices > 0 && !own_scratch;
    if (missing || reinterpret_cast<std::uintptr_t>(launch.bases[i]) % size_of(form.dtype) != 0) {
      throw std::invalid_argument("pointer " + std::to_string(i) + " (block " + std::to_string(base.block) +
                                  " of rank " + std::to_string(base.rank) + ") is " +
                                  (missing ? "missing" : "not at the boundary of an element"));
    }
  }

  const OnDevice here(device_);
  const bool captured = is_capturing(stream);
  if (!captured && last_stream_ && *last_stream_ != stream) last_.precede(stream);
  run_lanes(launch, stream);
  ++launches_;
  if (captured) return;
  last_.record(stream);
  last_stream_ = stream;
}

void Executor::wait() const {
  if (last_stream_) last_.synchronize();
}

LaunchPlan::LaunchPlan(const Executor& executor, const PreparedProgram& program, DType dtype, ReduceOp op,
                       std::span<const std::size_t> elements, LoweringOptions options)
    : form_(lower(program, executor.rank(), dtype, op, elements, executor.shape(), within(options, executor))),
      memory_(executor.device(), tables_bytes(form_)),
      scratch_(executor.device(), form_.scratch_bytes),
      tables_(form_.tables()) {
  std::size_t offset = 0;
  tables_.lanes = place(form_.lanes, offset);
  tables_.instructions = place(form_.instructions, offset);
  tables_.ends = place(form_.ends, offset);
  tables_.slots = place(form_.slots, offset);
  tables_.dependencies = place(form_.dependencies, offset);
}

template <class T>
const T* LaunchPlan::place(const std::vector<T>& rows, std::size_t& offset) {
  const std::size_t at = offset;
  offset += table_bytes(rows);
  if (rows.empty()) return nullptr;
  memory_.write(std::as_bytes(std::span(rows)), at);
  return reinterpret_cast<const T*>(memory_.data() + at);
}

}  // namespace syntony::cuda
