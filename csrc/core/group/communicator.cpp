#include "core/group/communicator.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/group/clock_offset.hpp"
#include "core/group/fabric.hpp"
#include "core/group/group.hpp"
#include "core/group/regroup.hpp"
#include "core/group/selector.hpp"
#include "core/group/tuner.hpp"
#include "core/kernels/kernels.hpp"
#include "core/log.hpp"
#include "core/progress/progress_engine.hpp"

namespace syntony {
namespace {

constexpr std::uint64_t kSharedProgram = 1;  // in place of a Program's hash

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Error::Kind::invalid, sentence); }

/// Memory for staged blocks, each at its own aligned offset.
class Staging {
 public:
  explicit Staging(std::size_t bytes) : memory_(bytes) {}
  std::byte* room(std::size_t bytes) {
    std::byte* place = memory_.data() + used_;
    used_ += bytes;
    return place;
  }
  [[nodiscard]] std::vector<std::byte> release() { return std::move(memory_); }

 private:
  std::vector<std::byte> memory_;
  std::size_t used_ = 0;
};

std::size_t input_bytes(const std::vector<Block>& blocks, std::size_t element_bytes) {
  std::size_t bytes = 0;
  for (const Block& block : blocks) bytes += block.input != nullptr ? block.elements * element_bytes : 0;
  return bytes;
}

/// The factor of a premultiplied sum is applied to a copy, or in place where input and output are one.
void apply_factor(std::vector<Block>& blocks, DType dtype, double factor, Staging& staging, bool to_copy) {
  for (Block& block : blocks) {
    if (block.input == nullptr) continue;
    std::byte* scaled =
        block.input == block.output && !to_copy ? block.output : staging.room(block.elements * size_of(dtype));
    scale(dtype, scaled, block.input, block.elements, factor);
    block.input = scaled;
  }
}

/// Programs are proven for disjoint buffers, for shared ones, or for both: bring the buffers into a form that fits.
void fit_memory(std::vector<Block>& blocks, const Program& program, std::size_t element_bytes, Staging& staging) {
  for (Block& block : blocks) {
    if (block.input == nullptr || block.output == nullptr || block.elements == 0) continue;
    const bool shared = block.input == block.output;
    const std::size_t bytes = block.elements * element_bytes;
    if (shared && !program.in_place) {
      std::byte* copy = staging.room(bytes);
      std::memcpy(copy, block.input, bytes);
      block.input = copy;
    } else if (!shared && !program.out_of_place) {
      std::memcpy(block.output, block.input, bytes);
      block.input = block.output;
    }
  }
}

struct Range {
  const std::byte* begin;
  const std::byte* end;
  [[nodiscard]] bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

/// Does one block's output overlap another's input? An executor could overwrite what it has still to read. (A block's
/// own input may be its output: that is an in-place call.)
bool crossing(const std::vector<Block>& blocks, std::size_t element_bytes) {
  if (blocks.size() < 2) return false;
  std::vector<std::pair<Range, const Block*>> read;
  for (const Block& block : blocks) {
    if (block.input != nullptr && block.elements > 0)
      read.push_back({{block.input, block.input + block.elements * element_bytes}, &block});
  }
  return std::ranges::any_of(blocks, [&](const Block& written) {
    const Range target{written.output, written.output + written.elements * element_bytes};
    return written.output != nullptr && std::ranges::any_of(read, [&](const auto& entry) {
             const bool in_place = entry.second == &written && written.input == written.output;
             return !in_place && target.overlaps(entry.first);
           });
  });
}

void stage_all(std::vector<Block>& blocks, std::size_t element_bytes, Staging& staging) {
  for (Block& block : blocks) {
    if (block.input == nullptr || block.elements == 0) continue;
    const std::size_t bytes = block.elements * element_bytes;
    std::byte* copy = staging.room(bytes);
    std::memcpy(copy, block.input, bytes);
    block.input = copy;
  }
}

std::shared_ptr<Work> start(Group& group, Group::Launch launch, const CallOptions& options) {
  if (!options.async) {
    group.run(std::move(launch));
    return nullptr;
  }
  std::shared_ptr<Work> work = group.launch(std::move(launch));
  group.engine()->submitted();
  return work;
}

std::shared_ptr<Work> start(Group& group, std::vector<Group::Launch> parts, const CallOptions& options) {
  std::shared_ptr<Work> whole = group.launch(std::move(parts));
  if (options.async) {
    group.engine()->submitted();
    return whole;
  }
  whole->wait();
  return nullptr;
}

/// The parts of an operation, each with the next elements of all blocks, together at most `partition` bytes.
std::vector<std::vector<Block>> cut(const std::vector<Block>& blocks, std::size_t blocks_at_once, std::size_t partition,
                                    std::size_t element_bytes) {
  const std::size_t longest = blocks.empty() ? 0 : std::ranges::max(blocks, {}, &Block::elements).elements;
  const std::size_t most = std::max<std::size_t>(1, partition / (element_bytes * blocks_at_once));
  std::vector<std::vector<Block>> parts;
  std::size_t first = 0;
  do {  // one even of nothing: ranks wait for each other
    std::vector<Block>& part = parts.emplace_back(blocks);
    for (Block& block : part) {
      const std::size_t begin = std::min(first, block.elements);
      if (block.input != nullptr) block.input += begin * element_bytes;
      if (block.output != nullptr) block.output += begin * element_bytes;
      block.elements = std::min(block.elements - begin, most);
    }
    first += most;
  } while (first < longest);
  return parts;
}

std::vector<std::uint32_t> job_ranks_of(const CommunicatorOptions& options, const Bootstrap& bootstrap) {
  std::vector<std::uint32_t> job_ranks = options.job_ranks;
  if (job_ranks.empty()) {
    job_ranks.resize(bootstrap.size());
    std::iota(job_ranks.begin(), job_ranks.end(), 0U);
  }
  if (job_ranks.size() != bootstrap.size()) {
    refuse("job_ranks has " + std::to_string(job_ranks.size()) + " numbers for the " +
           std::to_string(bootstrap.size()) + " ranks of the group");
  }
  return job_ranks;
}

/// "4 ranks on 2 hosts (0 1 | 2 3)"
std::string describe_boxes(const std::vector<std::vector<std::uint32_t>>& boxes) {
  std::size_t ranks = 0;
  std::string lists;
  for (const std::vector<std::uint32_t>& box : boxes) {
    if (ranks > 0) lists += " |";
    for (const std::uint32_t rank : box) lists += (lists.empty() ? "" : " ") + std::to_string(rank);
    ranks += box.size();
  }
  return std::to_string(ranks) + " ranks on " + std::to_string(boxes.size()) + " hosts (" + lists + ")";
}

}  // namespace

Communicator::Communicator(std::shared_ptr<ProgressEngine> engine, Bootstrap& bootstrap,
                           const CommunicatorOptions& options)
    : timeout_(options.timeout), tuner_(options.tuner), members_(bootstrap.size()) {
  std::iota(members_.begin(), members_.end(), 0U);
  const auto begin = Work::Clock::now();
  std::vector<std::uint32_t> job_ranks = job_ranks_of(options, bootstrap);
  set_log_rank(job_ranks[bootstrap.rank()]);
  auto fabric = std::make_unique<Fabric>(
      bootstrap, engine->doorbell(), begin + options.timeout,
      [&](const Tuner::Boxes& boxes) { return tuner_ ? tuner_->metadata(bootstrap.rank(), boxes) : std::string(); });
  selector_ = std::make_unique<Selector>(fabric->size(), fabric->boxes());
  engine->shared_with(std::ranges::max(fabric->boxes(), {}, &std::vector<std::uint32_t>::size).size());
  group_ = std::make_unique<Group>(std::move(engine), std::move(fabric), options.name, std::move(job_ranks));
  tune();
  if (Recorder::entries_wanted() > 0) group_->recorder()->set_clock_offset(clock_offset_to_rank_0(*this));
  log(LogLevel::info, [&] {
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Work::Clock::now() - begin);
    return "group " + options.name + ": " + describe_boxes(boxes()) + ", made in " + std::to_string(took.count()) +
           " ms";
  });
}

void Communicator::tune() {
  if (!tuner_) return;
  Tuning tuning = tuner_->agreed(boxes(), metadata());
  for (auto& [name, program] : tuning.programs) add_program(name, std::move(program));
  for (SizeTable& table : tuning.tables) set_size_ranges(table.name, table.collective, std::move(table.ranges));
}

Communicator::~Communicator() {
  if (group_->engine()->forked()) {  // a child of fork() has neither the threads nor a place in the group
    [[maybe_unused]] auto* group = group_.release();
  }
}

std::shared_ptr<Communicator> Communicator::split(std::optional<std::uint64_t> color, std::int64_t key,
                                                  CommunicatorOptions options) {
  return regroup(std::move(options), [&](Regroup& regrouping) { return regrouping.split(color, key); });
}

std::shared_ptr<Communicator> Communicator::shrink(std::span<const std::uint32_t> excluded,
                                                   CommunicatorOptions options) {
  for (const std::uint32_t gone : excluded) {
    if (gone >= size())
      refuse("cannot shrink by rank " + std::to_string(gone) + ": the group has " + std::to_string(size()) + " ranks");
    if (gone == rank()) refuse("rank " + std::to_string(gone) + " cannot exclude itself when a group shrinks");
  }
  auto group = regroup(std::move(options), [&](Regroup& regrouping) {
    regrouping.shrink(excluded);
    return true;
  });
  shutdown();
  return group;
}

template <typename Choose>
std::shared_ptr<Communicator> Communicator::regroup(CommunicatorOptions options, const Choose& choose) {
  if (options.timeout.count() <= 0) options.timeout = timeout_;
  if (!options.tuner) options.tuner = tuner_;
  const std::scoped_lock one_at_a_time(regrouping_);
  Regroup regrouping(*group_, ++regroupings_, Work::Clock::now() + options.timeout);
  if (!choose(regrouping)) return nullptr;
  for (const std::uint32_t member : regrouping.members()) {
    options.job_ranks.push_back(recorder()->identity().members[member]);
  }
  auto group = std::make_shared<Communicator>(group_->engine(), regrouping, options);
  group->members_ = regrouping.members();
  return group;
}

std::uint32_t Communicator::rank() const { return group_->fabric().rank(); }
std::uint32_t Communicator::size() const { return group_->fabric().size(); }
const std::vector<std::vector<std::uint32_t>>& Communicator::boxes() const { return group_->fabric().boxes(); }
std::uint64_t Communicator::sequence() const { return group_->sequence(); }
const std::shared_ptr<Recorder>& Communicator::recorder() const { return group_->recorder(); }
std::exception_ptr Communicator::error() const { return group_->error(); }
void Communicator::abort(const std::string& why) { group_->abort(why); }
void Communicator::shutdown() { group_->shutdown(); }
void Communicator::set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

Lifetime Communicator::lifetime(const CallOptions& options) const {
  const std::chrono::milliseconds timeout = options.timeout.count() > 0 ? options.timeout : timeout_.load();
  const auto now = Work::Clock::now();
  return {now, now + timeout};
}

std::shared_ptr<Work> Communicator::finish(std::shared_ptr<Work> work, const CallOptions& options) const {
  if (options.async) {
    group_->engine()->submitted();
  } else {
    work->wait();
  }
  return work;
}

std::shared_ptr<Work> Communicator::run(Collective collective, DType dtype, ReduceOp op, std::uint32_t root,
                                        std::vector<Block> blocks, const CallOptions& options, const Scaling& scaling,
                                        bool even) {
  return call(collective, dtype, op, root, std::move(blocks), options, scaling, even, {});
}

std::shared_ptr<Work> Communicator::all_reduce_together(DType dtype, ReduceOp op, std::vector<Block> buffers,
                                                        const CallOptions& options, const Scaling& scaling) {
  const std::size_t element_bytes = size_of(dtype);
  std::size_t elements = 0;
  for (const Block& buffer : buffers) elements += buffer.elements;
  auto packed = std::make_shared<std::vector<std::byte>>(elements * element_bytes);
  std::byte* room = packed->data();
  for (const Block& buffer : buffers) {
    if (buffer.elements > 0) std::memcpy(room, buffer.input, buffer.elements * element_bytes);
    room += buffer.elements * element_bytes;
  }
  const Block whole{.input = packed->data(), .output = packed->data(), .elements = elements};
  return call(Collective::all_reduce, dtype, op, 0, {whole}, options, scaling, true,
              [packed, element_bytes, buffers = std::move(buffers)] {
                const std::byte* sums = packed->data();
                for (const Block& buffer : buffers) {
                  if (buffer.elements > 0) std::memcpy(buffer.output, sums, buffer.elements * element_bytes);
                  sums += buffer.elements * element_bytes;
                }
              });
}

std::shared_ptr<Work> Communicator::call(Collective collective, DType dtype, ReduceOp op, std::uint32_t root,
                                         std::vector<Block> blocks, const CallOptions& options, const Scaling& scaling,
                                         bool even, std::function<void()> finally) {
  if (root >= size()) {
    refuse("invalid root rank " + std::to_string(root) + " for " + std::string(name_of(collective)) +
           ": the group has " + std::to_string(size()) + " ranks");
  }
  if (blocks.size() != block_count(collective, size())) {
    refuse(std::string(name_of(collective)) + " over " + std::to_string(size()) + " ranks takes " +
           std::to_string(block_count(collective, size())) + " blocks, not " + std::to_string(blocks.size()));
  }
  if (reduces(collective)) {
    if (!supports(dtype, op)) {
      refuse(std::string(name_of(op)) + " of " + std::string(name_of(dtype)) + " has no meaning");
    }
    if ((scaling.average || scaling.factor != 1.0) && op != ReduceOp::sum)
      refuse("only a sum can be averaged or weighted");
    if (scaling.average && (dtype == DType::boolean || dtype == DType::float8_e8m0fnu))
      refuse("an average of " + std::string(name_of(dtype)) + " has no meaning");
  }
  const std::size_t element_bytes = size_of(dtype);
  // Where ranks know only their own sizes nobody can relay, and nobody can say how many parts there are.
  const bool own_sizes_only = !even && collective == Collective::all_to_all;
  if (own_sizes_only && options.partition > 0) {
    refuse("an all_to_all with uneven sizes cannot be partitioned: each rank knows only its own sizes");
  }
  const std::string algorithm =
      own_sizes_only && options.algorithm == "auto" ? "direct" : asked(collective, options.algorithm);
  const bool weighted = scaling.factor != 1.0;
  const bool crossed = crossing(blocks, element_bytes);
  const std::size_t blocks_at_once = blocks.size() / (collective == Collective::all_to_all ? size() : 1);

  // Of the whole call: parts that are alike may come from calls that are not.
  const bool alike = even && options.partition == 0;
  const std::uint64_t counts = alike || own_sizes_only ? 0 : counts_of(blocks);

  const auto prepare = [&](std::vector<Block> part, Staging& staging) {
    std::size_t elements = 0;
    if (even) {
      for (const Block& block : part) elements = std::max(elements, block.elements);
      elements *= blocks_at_once;
    } else if (!own_sizes_only) {
      for (const Block& block : part) elements += block.elements;
    }
    Group::Launch launch;
    const std::size_t known_bytes = even ? elements * element_bytes : 0;
    Selector::Selection selection = selector_->select(collective, root, known_bytes, algorithm);
    launch.program = std::move(selection.program);
    launch.shared = selection.shared;
    const Program& program = launch.program->program();
    if (own_sizes_only && (launch.shared || launch.program->needs_size_matrix())) {
      refuse("algorithm " +
             (launch.shared ? std::string(kSharedAlgorithm) + " goes through all blocks in common rounds"
                            : program.name + " relays data between other ranks") +
             ", so it needs every pair's size; "
             "use `direct` for an all_to_all with uneven sizes");
    }
    const bool fits = launch.shared || program.in_place;
    staging = Staging(weighted || crossed || !fits ? input_bytes(part, element_bytes) : 0);
    if (weighted) apply_factor(part, dtype, scaling.factor, staging, crossed);
    if (crossed && !weighted) stage_all(part, element_bytes, staging);
    launch.uneven = !even;
    launch.descriptor.elements = elements;
    launch.descriptor.counts = counts;
    launch.descriptor.program = launch.shared ? kSharedProgram : launch.program->hash();
    launch.descriptor.root = root;
    launch.descriptor.collective = collective;
    launch.descriptor.dtype = dtype;
    launch.descriptor.op = op;
    launch.descriptor.average = scaling.average ? 1 : 0;
    launch.blocks = std::move(part);
    launch.priority = priority_of(options);
    launch.lifetime = lifetime(options);
    launch.keep_alive = options.keep_alive;
    return launch;
  };
  const auto fit = [&](Group::Launch& launch, Staging& staging) {
    if (!launch.shared) fit_memory(launch.blocks, launch.program->program(), element_bytes, staging);
    launch.storage = staging.release();
  };

  if (options.partition == 0 || finally) {  // what is packed is small anyway
    Staging staging(0);
    Group::Launch launch = prepare(std::move(blocks), staging);
    fit(launch, staging);
    launch.finally = std::move(finally);
    return start(*group_, std::move(launch), options);
  }
  std::vector<Group::Launch> parts;
  std::vector<Staging> stagings;
  for (std::vector<Block>& part : cut(blocks, blocks_at_once, options.partition, element_bytes)) {
    parts.push_back(prepare(std::move(part), stagings.emplace_back(0)));
  }
  for (std::size_t i = 0; i < parts.size(); ++i)
    fit(parts[i], stagings[i]);  // no part's input lies in another's output
  return start(*group_, std::move(parts), options);
}

std::shared_ptr<Work> Communicator::barrier(const CallOptions& options) {
  Group::Launch launch;
  launch.shared = group_->fabric().shared_rounds(priority_of(options).value_or(Priority::normal)) != nullptr;
  launch.program = selector_->select(Collective::all_reduce, 0, 1, "direct").program;
  launch.storage.resize(1);
  launch.blocks = {{launch.storage.data(), launch.storage.data(), 1}};
  launch.descriptor.program = launch.shared ? kSharedProgram : launch.program->hash();
  launch.descriptor.op = ReduceOp::bor;
  launch.descriptor.barrier = 1;
  launch.priority = priority_of(options);
  launch.lifetime = lifetime(options);
  return start(*group_, std::move(launch), options);
}

std::shared_ptr<Work> Communicator::send(const std::byte* data, std::size_t bytes, std::uint32_t destination,
                                         std::uint64_t tag, const CallOptions& options) {
  if (destination >= size()) {
    refuse("cannot send to rank " + std::to_string(destination) + ": the group has " + std::to_string(size()) +
           " ranks");
  }
  OutgoingMessage message;
  message.data = data;
  message.bytes = bytes;
  message.destination = destination;
  message.tag = tag;
  message.lifetime = lifetime(options);
  message.keep_alive = options.keep_alive;
  return finish(group_->send(std::move(message)), options);
}

std::shared_ptr<Work> Communicator::receive(std::byte* data, std::size_t bytes, int source, std::uint64_t tag,
                                            const CallOptions& options) {
  if (source < kAnySource || source >= static_cast<int>(size())) {
    refuse("cannot receive from rank " + std::to_string(source) + ": the group has " + std::to_string(size()) +
           " ranks");
  }
  PostedReceive receive;
  receive.data = data;
  receive.bytes = bytes;
  receive.source = source;
  receive.tag = tag;
  receive.lifetime = lifetime(options);
  receive.keep_alive = options.keep_alive;
  return finish(group_->receive(std::move(receive)), options);
}

void Communicator::add_program(const std::string& name, Program program) {
  selector_->add(name, std::move(program), group_->fabric().shape());
}

void Communicator::set_size_ranges(const std::string& name, Collective collective, std::vector<SizeRange> ranges) {
  selector_->set_size_ranges(name, collective, std::move(ranges));
}

std::string Communicator::asked(Collective collective, const std::string& algorithm) const {
  const bool sums = collective == Collective::all_reduce || collective == Collective::reduce_scatter;
  return algorithm == "auto" && sums && canonical_ ? "pairwise" : algorithm;
}

std::pair<std::string, std::string> Communicator::choice(Collective collective, std::uint32_t root, std::size_t bytes,
                                                         const std::string& algorithm) {
  return selector_->choice(collective, root, bytes, asked(collective, algorithm));
}

const std::vector<std::string>& Communicator::metadata() const { return group_->fabric().metadata(); }

std::shared_ptr<const PreparedProgram> Communicator::program_for(Collective collective, std::uint32_t root,
                                                                 std::size_t bytes, const std::string& algorithm) {
  return selector_->select(collective, root, bytes, asked(collective, algorithm)).program;
}

}  // namespace syntony
