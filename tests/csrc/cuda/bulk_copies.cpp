#include "bulk_copies.hpp"

#include <cstring>
#include <random>
#include <string>

#include "cuda/device/bulk.hpp"
#include "cuda/device/combination.hpp"
#include "programs.hpp"
#include "ranks.hpp"
#include "require.hpp"

namespace syntony::cuda {
namespace {

constexpr std::size_t kBeside = 64;

struct Target {
  Memory memory;
  std::byte* begin;
};

void copy_once(Random& random, HostBulk& engine) {
  const std::size_t bytes = below(random, 10) == 0 ? below(random, 64) : below(random, 12 * BulkStages::kBytes);
  const std::size_t shift = below(random, 16);
  const std::uint32_t destinations = 1 + below(random, 3);
  const bool unlike = below(random, 8) == 0;  // one of them is elsewhere between two boundaries
  const Memory source = new_memory(bytes + 2 * kBeside);
  for (std::size_t i = 0; i < bytes + kBeside; ++i) source.get()[i] = static_cast<std::byte>(random());
  std::vector<Target> targets;
  Combination combination;
  combination.sources = 1;
  combination.destinations = destinations;
  combination.bytes = bytes;
  combination.pointers[0] = source.get() + shift;
  for (std::uint32_t d = 0; d < destinations; ++d) {
    Memory memory = new_memory(bytes + 2 * kBeside);
    std::byte* const begin = memory.get() + kBeside / 2 + (d == 0 && unlike ? shift + 1 : shift);
    targets.push_back({std::move(memory), begin});
    combination.pointers[1 + d] = begin;
  }
  const std::uint32_t threads = 1 + below(random, 2);
  std::barrier<> barrier(threads);
  std::vector<std::thread> block;
  for (std::uint32_t thread = 0; thread < threads; ++thread) {
    block.emplace_back([&, thread] { bulk_copy(HostMachine(thread, threads, barrier, &engine), combination); });
  }
  for (std::thread& thread : block) thread.join();
  for (const Target& target : targets) {
    require(std::memcmp(target.begin, combination.pointers[0], bytes) == 0, std::to_string(bytes) + " copied bytes");
    require(target.begin[-1] == std::byte{0} && target.begin[bytes] == std::byte{0}, "a byte beside the copy");
  }
}

}  // namespace

void run_bulk_copies(std::uint64_t seed, int jobs) {
  Random random(seed);
  const auto engine = std::make_unique<HostBulk>();
  for (int turn = 0; turn < jobs; ++turn) copy_once(random, *engine);
}

}  // namespace syntony::cuda
