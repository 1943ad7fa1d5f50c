#include "switched_jobs.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "core/program/collective.hpp"
#include "cuda/switches/switched.hpp"
#include "programs.hpp"
#include "require.hpp"
#include "switched_ranks.hpp"

namespace syntony::cuda {
namespace {

using Bytes = std::vector<std::byte>;

/// Small integers: exact in every order.
void fill(Random& random, DType dtype, std::byte* to, std::size_t elements) {
  visit_format(dtype, [&](auto format) {
    using Format = decltype(format);
    using Storage = typename Format::Storage;
    for (std::size_t i = 0; i < elements; ++i) {
      const std::uint32_t value = below(random, 9);
      if constexpr (std::is_arithmetic_v<typename Format::Wide>) {  // no switch adds complex numbers
        store_element(to + i * sizeof(Storage), Format::narrow(static_cast<typename Format::Wide>(value)));
      }
    }
  });
}

Bytes summed(DType dtype, ReduceOp op, const std::vector<const std::byte*>& parts, std::size_t elements) {
  Bytes sum(elements * size_of(dtype));
  visit_format(dtype, [&](auto format) {
    using Format = decltype(format);
    using Storage = typename Format::Storage;
    for (std::size_t at = 0; at < sum.size(); at += sizeof(Storage)) {
      auto wide = Format::widen(load_element<Storage>(parts[0] + at));
      for (std::size_t k = 1; k < parts.size(); ++k) {
        wide = Format::apply(op, wide, Format::widen(load_element<Storage>(parts[k] + at)));
      }
      store_element(sum.data() + at, Format::narrow(wide));
    }
  });
  return sum;
}

/// One collective of all ranks, with memory of its own and a guard byte behind it.
struct SwitchedJob {
  SwitchedJob(Random& random, const NvlsShape& shape) {
    constexpr Collective kCollectives[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter};
    const Collective collective = kCollectives[below(random, 3)];
    DType dtype{};
    ReduceOp op{};
    do {
      dtype = static_cast<DType>(below(random, kDTypes.size()));
      op = static_cast<ReduceOp>(below(random, kReduceOps.size()));
    } while (switch_kind(dtype, op) == SwitchKind::none);
    const std::size_t elements = below(random, 3) == 0 ? below(random, 5) : below(random, 600);
    const std::size_t block = elements * size_of(dtype);
    in_place = below(random, 2) == 0;
    const std::size_t given = collective == Collective::reduce_scatter ? shape.ranks : 1;
    const std::size_t kept = collective == Collective::all_gather ? shape.ranks : 1;
    name = std::string(name_of(collective)) + " " + std::string(name_of(op)) + " of " + std::to_string(elements) + " " +
           std::string(name_of(dtype)) + (in_place ? ", in place" : "");
    for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
      const std::size_t shift = below(random, 3) * size_of(dtype);  // not always at a boundary
      memory.push_back(new_memory(std::max(given, kept) * block + shift + 1));
      memory.push_back(new_memory(kept * block + shift + 1));
      std::byte* input = memory[2 * rank].get() + shift;
      std::byte* output = memory[2 * rank + 1].get() + shift;
      if (in_place) {
        output = input;
        if (collective == Collective::all_gather) input += rank * block;
        if (collective == Collective::reduce_scatter) output += rank * block;
      }
      fill(random, dtype, input, given * elements);
      inputs.push_back(input);
      NvlsLaunch launch = switched(shape, rank, collective, dtype, op, elements);
      launch.input = input;
      launch.output = output;
      launches.push_back(launch);
    }
    for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
      Bytes& result = wanted.emplace_back();
      if (collective == Collective::all_gather) {
        for (const std::byte* input : inputs) result.insert(result.end(), input, input + block);
        continue;
      }
      std::vector<const std::byte*> parts;
      for (const std::byte* input : inputs) {
        parts.push_back(input + (collective == Collective::reduce_scatter ? rank * block : 0));
      }
      result = summed(dtype, op, parts, elements);
    }
  }

  void check() const {
    for (std::size_t rank = 0; rank < launches.size(); ++rank) {
      const std::byte* const output = launches[rank].output;
      require(std::memcmp(output, wanted[rank].data(), wanted[rank].size()) == 0,
              name + " at rank " + std::to_string(rank));
      require(in_place || output[wanted[rank].size()] == std::byte{0}, "a byte behind the output of " + name);
    }
  }

  std::string name;
  bool in_place = false;
  std::vector<Memory> memory;
  std::vector<const std::byte*> inputs;
  std::vector<NvlsLaunch> launches;
  std::vector<Bytes> wanted;
};

void run_group(Random& random) {
  NvlsShape shape;
  shape.ranks = 2 + below(random, below(random, 4) == 0 ? 7 : 2);
  shape.blocks = 1 + below(random, 3);
  shape.slot_bytes = 128U << below(random, 4);
  std::vector<SwitchedJob> jobs;
  std::vector<std::vector<NvlsLaunch>> launches;
  for (int i = 0; i < 6; ++i) {
    jobs.emplace_back(random, shape);
    launches.push_back(jobs.back().launches);
  }
  SwitchedRanks group(shape, 1 + below(random, 2));
  group.run(launches, 20'000'000'000);
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
    require(group.trouble(rank).kind == Trouble::none, "nobody waits for nobody");
  }
  for (const SwitchedJob& job : jobs) job.check();
}

void run_without_one(Random& random) {
  NvlsShape shape;
  shape.ranks = 2 + below(random, 3);
  shape.blocks = 1;
  shape.slot_bytes = 1024;
  const std::uint32_t absent = below(random, shape.ranks), other = (absent + 1) % shape.ranks;
  SwitchedRanks group(shape, 1);
  std::vector<std::byte> bytes(64 * shape.ranks);
  std::vector<NvlsLaunch> launches;
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
    launches.push_back(switched(shape, rank, Collective::all_reduce, DType::float32, ReduceOp::sum, 16));
    launches.back().input = launches.back().output = bytes.data() + 64 * rank;
  }
  group.run({launches}, 20'000'000, absent);
  require(group.trouble(other).kind == Trouble::timed_out && group.trouble(other).peer == absent, "who was waited for");
  group.run({launches}, 0, absent);  // a rank in trouble runs nothing more, and so does not hang
}

/// Requests for what no switch supports are rejected.
void run_refusals() {
  const NvlsShape shape{.ranks = 2};
  const auto refused = [&](Collective collective, DType dtype, ReduceOp op, const NvlsShape& with) {
    try {
      static_cast<void>(switched(with, 0, collective, dtype, op, 1));
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  require(refused(Collective::all_to_all, DType::float32, ReduceOp::sum, shape), "all_to_all is refused");
  require(refused(Collective::all_reduce, DType::float8_e5m2, ReduceOp::sum, shape), "fp8 is refused");
  require(refused(Collective::all_reduce, DType::float32, ReduceOp::max, shape), "max of floats is refused");
  require(refused(Collective::all_gather, DType::float32, ReduceOp::sum, {.ranks = 64, .slot_bytes = 128}),
          "slots too small are refused");
  require(!refused(Collective::all_gather, DType::float8_e5m2, ReduceOp::sum, shape), "bytes are bytes");
}

}  // namespace

void run_switched_jobs(std::uint64_t seed, int jobs) {
  Random random(seed);
  run_refusals();
  for (int turn = 0; turn < jobs; ++turn) run_group(random);
  for (int turn = 0; turn < 4; ++turn) run_without_one(random);
}

}  // namespace syntony::cuda
