// The GPU's interpreter and protocols on host threads: random Programs, all builders, all element types and operators,
// against the slow reference with the CPU's arithmetic, bit for bit. Prints "ok" and what it did, or what was wrong.
//
//      interpreter programs|troubles|flags|switched|bulk SEED JOBS
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "bulk_copies.hpp"
#include "core/kernels/kernels.hpp"
#include "core/program/algorithms/algorithms.hpp"
#include "core/program/collective.hpp"
#include "cuda/pull.hpp"
#include "programs.hpp"
#include "ranks.hpp"
#include "require.hpp"
#include "switched_jobs.hpp"

namespace {

using namespace syntony;
using namespace syntony::cuda;

Program any_program(Random& random, std::uint32_t ranks) {
  const auto collective = static_cast<Collective>(below(random, 8));
  const std::uint32_t root =
      collective >= Collective::broadcast ? below(random, ranks) : 0;  // the rooted ones come last
  switch (below(random, 5)) {
    case 0:
      return random_program(random, ranks);
    case 1:
      if (ranks > 1) return fused_rings(random, ranks);
      return random_program(random, ranks);
    case 2:
      if (below(random, 3) == 0) return pull_two_shot(ranks);
      return pull(collective, ranks, root);
    default:
      break;
  }
  for (;;) {
    const Algorithm& algorithm = algorithms()[below(random, static_cast<std::uint32_t>(algorithms().size()))];
    for (const Collective can : algorithm.collectives) {
      if (can == collective) return build(algorithm.name, collective, ranks, root);
    }
  }
}

/// What one group does, job after job, and the expected results.
class Session {
 public:
  Session(Random& random, std::uint32_t ranks) : random_(random), ranks_(ranks) {
    shape_.ranks = ranks;
    shape_.channels = 12;
    shape_.depth = 3 + below(random, 2);
    shape_.slot_bytes = 512U << below(random, 4);
    shape_.line_bytes = 512U << below(random, 3);
  }

  void add() {
    const PreparedProgram program(any_program(random_, ranks_));
    DType dtype{};
    ReduceOp op{};
    const bool sums = reduces(program.program().collective);
    do {
      dtype = static_cast<DType>(below(random_, kDTypes.size()));
      op = static_cast<ReduceOp>(below(random_, kReduceOps.size()));
    } while (!supports(dtype, op) || (sums && op != ReduceOp::sum && is_complex(dtype)));
    if (!sums && !supports(dtype, op)) op = ReduceOp::sum;
    const bool in_place = program.program().in_place && below(random_, 2) == 0;
    const std::vector<std::size_t> elements = sizes(program.program().collective);
    Job job = new_job(program.program(), size_of(dtype), elements, in_place);
    LoweringOptions options;
    options.protocol = static_cast<Protocol>(below(random_, kProtocols));
    options.bulk = options.protocol == Protocol::simple && below(random_, 2) == 0;
    options.blocks = 1 + below(random_, 3);
    options.instances = below(random_, 3);
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      job.forms.push_back(lower(program, rank, dtype, op, elements, shape_, options));
      job.scratch.push_back(new_memory(job.forms.back().scratch_bytes));
    }
    wanted_.push_back(expected(program, dtype, op, elements, job, in_place));
    names_.push_back(program.program().name + " " + std::string(name_of(program.program().collective)) + " " +
                     std::string(name_of(op)) + " of " + std::string(name_of(dtype)) + ", " +
                     std::to_string(elements[0]) + " elements, protocol " +
                     std::to_string(static_cast<int>(options.protocol)) + ", blocks " + std::to_string(options.blocks) +
                     ", instances " + std::to_string(job.forms[0].instances) + (in_place ? ", in place" : ""));
    jobs_.push_back(std::move(job));
  }

  void run_and_check() {
    Ranks group(shape_, 1 + below(random_, 2));
    // A third of the groups begins shortly before whole slots are filled and ll flags repeat.
    if (below(random_, 3) == 0) {
      group.pretend_messages((std::uint64_t{1} << (31 + below(random_, 2))) - 1 - shape_.depth - below(random_, 9));
    }
    group.run(jobs_, 20'000'000'000);
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        const Trouble& trouble = group.trouble(rank);
        require(trouble.kind == Trouble::none,
                "rank " + std::to_string(rank) + " waits for " + std::to_string(trouble.peer) + " in lane " +
                    std::to_string(trouble.lane) + ", instruction " + std::to_string(trouble.instruction) +
                    " of one of 8 jobs, the first of them " + names_[0]);
        for (std::size_t block = 0; block < wanted_[j][rank].size(); ++block) {
          const Bytes& wanted = wanted_[j][rank][block];
          require(wanted.empty() || std::memcmp(jobs_[j].out[rank][block], wanted.data(), wanted.size()) == 0,
                  "block " + std::to_string(block) + " at rank " + std::to_string(rank) + " after " + names_[j]);
        }
      }
    }
  }

 private:
  static bool is_complex(DType dtype) {
    return dtype == DType::complex32 || dtype == DType::complex64 || dtype == DType::complex128;
  }

  std::vector<std::size_t> sizes(Collective collective) {
    const std::vector<std::size_t> some{0, 1, 3, 29, 256, 1000, 4099};
    std::vector<std::size_t> elements(block_count(collective, ranks_));
    const std::size_t common = some[below(random_, static_cast<std::uint32_t>(some.size()))];
    const bool uneven = below(random_, 3) == 0;
    for (std::size_t& count : elements) count = uneven ? below(random_, 700) : common;
    return elements;
  }

  Job new_job(const Program& program, std::size_t element_bytes, const std::vector<std::size_t>& elements,
              bool in_place) {
    Job job;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      auto& input = job.input.emplace_back();
      auto& output = job.output.emplace_back();
      auto& in = job.in.emplace_back();
      auto& out = job.out.emplace_back();
      for (std::uint32_t block = 0; block < elements.size(); ++block) {
        const bool starts = starts_with(program.collective, ranks_, program.root, rank, block);
        const bool ends = ends_with(program.collective, ranks_, program.root, rank, block);
        const std::size_t bytes = elements[block] * element_bytes;
        const std::size_t shift = below(random_, 2) * element_bytes;  // not always at a boundary
        input.push_back(new_memory(starts ? bytes + shift : 0));
        output.push_back(new_memory(ends ? bytes + shift : 0));
        in.push_back(starts ? input.back().get() + shift : nullptr);
        out.push_back(ends ? output.back().get() + shift : nullptr);
        if (starts && ends && in_place) out.back() = in.back();
        for (std::size_t i = 0; starts && i < bytes; ++i) in.back()[i] = static_cast<std::byte>(random_());
      }
    }
    return job;
  }

  std::vector<std::vector<Bytes>> expected(const PreparedProgram& program, DType dtype, ReduceOp op,
                                           const std::vector<std::size_t>& elements, const Job& job,
                                           bool in_place) const {
    std::vector<Buffers> buffers(ranks_);
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      for (std::size_t block = 0; block < elements.size(); ++block) {
        const std::size_t bytes = elements[block] * size_of(dtype);
        const std::byte* const in = job.in[rank][block];
        buffers[rank].input.emplace_back(in, in == nullptr ? in : in + bytes);
        buffers[rank].output.emplace_back(job.out[rank][block] == nullptr ? 0 : bytes);
      }
    }
    run_reference(program, dtype, op, buffers, in_place);
    std::vector<std::vector<Bytes>> wanted(ranks_);
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      for (std::size_t block = 0; block < elements.size(); ++block) {
        const bool aliased = in_place && job.in[rank][block] != nullptr && job.out[rank][block] != nullptr;
        wanted[rank].push_back(aliased ? buffers[rank].input[block] : buffers[rank].output[block]);
      }
    }
    return wanted;
  }

  Random& random_;
  std::uint32_t ranks_;
  ArenaShape shape_;
  std::vector<Job> jobs_;
  std::vector<std::vector<std::vector<Bytes>>> wanted_;  // by job, rank, block
  std::vector<std::string> names_;
};

void run_programs(std::uint64_t seed, int jobs) {
  constexpr std::uint32_t kSizes[] = {2, 3, 4, 8, 2, 5, 1};
  for (int done = 0, turn = 0; done < jobs; ++turn) {
    Random random(seed + static_cast<std::uint64_t>(turn));
    Session session(random, kSizes[turn % 7]);
    const int together = 8;
    for (int i = 0; i < together; ++i) session.add();
    session.run_and_check();
    done += together;
  }
}

/// A rank that never arrives is named by the ranks that wait for it; a group that is told to stop stops.
void run_troubles(std::uint64_t seed, int jobs) {
  Random random(seed);
  for (int turn = 0; turn < jobs; ++turn) {
    const std::uint32_t ranks = 2 + below(random, 3);
    ArenaShape shape{.ranks = ranks, .channels = 8, .depth = 4, .slot_bytes = 1024, .line_bytes = 1024};
    const bool one_sided = below(random, 2) == 0;
    const PreparedProgram program(one_sided ? pull(Collective::all_gather, ranks, 0)
                                            : build("ring", Collective::all_gather, ranks, 0));
    const std::vector<std::size_t> elements(ranks, 100);
    LoweringOptions options;
    options.protocol = static_cast<Protocol>(below(random, kProtocols));
    options.blocks = 1 + below(random, 3);
    Job job;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      job.forms.push_back(lower(program, rank, DType::int32, ReduceOp::sum, elements, shape, options));
      job.scratch.push_back(new_memory(job.forms.back().scratch_bytes));
      auto& memory = job.input.emplace_back();
      job.in.emplace_back(), job.out.emplace_back();
      for (std::uint32_t block = 0; block < ranks; ++block) {
        memory.push_back(new_memory(400));
        job.in.back().push_back(memory.back().get());
        job.out.back().push_back(memory.back().get());
      }
    }
    std::vector<Job> all;
    all.push_back(std::move(job));
    const std::uint32_t absent = below(random, ranks);
    Ranks group(shape, 1);
    if (turn % 2 == 1) group.abort();
    group.run(all, 20'000'000, absent);
    const std::uint32_t next = (absent + 1) % ranks;  // the rank that receives from `absent`, also in a ring
    const Trouble& trouble = group.trouble(next);
    require(trouble.kind == (turn % 2 == 1 ? Trouble::aborted : Trouble::timed_out), "the kind of trouble");
    require(trouble.peer == absent || ranks > 2 || turn % 2 == 1, "who was waited for");
    require(trouble.launch == 1, "the launch that stopped");
    group.run(all, 0, absent);  // a rank in trouble runs nothing more, and so does not hang
  }
}

/// Small messages leave most lines of a slot untouched. Even so, no flag is older than half of the 32-bit range.
void run_flags(std::uint64_t seed, int jobs) {
  Random random(seed);
  for (int turn = 0; turn < jobs; ++turn) {
    const ArenaShape shape{
        .ranks = 2, .channels = 2, .depth = 1 + below(random, 4), .slot_bytes = 1024, .line_bytes = 1024};
    const PreparedProgram program(build("direct", Collective::broadcast, 2, 0));
    const std::vector<std::size_t> elements{1};
    LoweringOptions options;
    options.protocol = Protocol::ll;
    std::vector<Job> all(shape.depth + 1);
    for (Job& job : all) {
      for (std::uint32_t rank = 0; rank < 2; ++rank) {
        job.forms.push_back(lower(program, rank, DType::int32, ReduceOp::sum, elements, shape, options));
        job.scratch.push_back(new_memory(0));
        job.input.emplace_back().push_back(new_memory(4));
        job.in.push_back({job.input.back()[0].get()});
        job.out.push_back(job.in.back());
      }
    }
    Ranks group(shape, 1 + below(random, 2));
    const std::uint64_t half = std::uint64_t{1} << 31;
    group.pretend_messages(half - 2 - shape.depth);
    group.run(all);
    const std::byte* line = group.arena(1) + slot_offset(shape, fifo_index(shape, 0, 0, Protocol::ll));
    for (std::uint32_t i = 0; i < shape.depth * shape.line_bytes / 16; ++i, line += 16) {
      std::uint32_t words[4];
      std::memcpy(words, line, sizeof words);
      require(words[1] == words[3] && words[1] >= half - shape.depth, "a line's flag is " + std::to_string(words[1]));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 4 ? argv[1] : "";
  const std::map<std::string, void (*)(std::uint64_t, int)> all{{"programs", run_programs},
                                                                {"troubles", run_troubles},
                                                                {"flags", run_flags},
                                                                {"switched", run_switched_jobs},
                                                                {"bulk", run_bulk_copies}};
  if (!all.contains(what)) {
    std::fprintf(stderr, "usage: interpreter programs|troubles|flags|switched|bulk SEED JOBS\n");
    return 2;
  }
  const std::uint64_t seed = std::strtoull(argv[2], nullptr, 10);
  const int jobs = std::atoi(argv[3]);
  all.at(what)(seed, jobs);
  std::printf("ok: %d jobs\n", jobs);
  return 0;
}
