#include "core/group/communicator.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/group/fabric.hpp"
#include "core/group/group.hpp"
#include "core/group/rail_balance.hpp"
#include "core/group/regroup.hpp"
#include "core/group/staging.hpp"
#include "core/in_network/aggregation_thread.hpp"
#include "core/process/log.hpp"
#include "core/progress/progress_engine.hpp"
#include "core/selection/tuner.hpp"

namespace syntony {
namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Error::Kind::invalid, sentence); }

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
      bootstrap, engine->doorbell(), after(options.timeout),
      [&](const Tuner::Boxes& boxes) { return tuner_ ? tuner_->metadata(bootstrap.rank(), boxes) : std::string(); });
  selector_ = std::make_unique<Selector>(fabric->size(), fabric->boxes(), fabric->crowded());
  if (fabric->crowded()) engine->crowd();
  group_ = std::make_unique<Group>(std::move(engine), std::move(fabric), options.name, std::move(job_ranks));
  if (group_->fabric().rails() > 1 && size() > 2) {
    const auto windows = static_cast<std::uint32_t>((group_->fabric().shape().windows - 1) / kPriorities);
    balance_ = std::make_unique<RailBalance>(size(), windows, recorder()->wires());
  }
  tune();
  log(LogLevel::info, [&] {
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Work::Clock::now() - begin);
    return "group " + options.name + ": " + describe_boxes(boxes()) + ", made in " + std::to_string(took.count()) +
           " ms";
  });
}

void Communicator::tune() {
  if (!tuner_) return;
  Tuning tuning = tuner_->agreed(boxes(), metadata());
  if (!tuning.levels.empty()) set_levels(std::move(tuning.levels));
  selector_->set_aggregation(tuning.aggregation.by_rank);
  group_->set_aggregation(std::move(tuning.aggregation));
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
  Regroup regrouping(*group_, ++regroupings_, after(options.timeout));
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
std::vector<std::vector<std::uint32_t>> Communicator::boxes() const { return group_->fabric().boxes(); }
bool Communicator::crowded() const { return group_->fabric().crowded(); }
std::uint64_t Communicator::sequence() const { return group_->sequence(); }
const std::shared_ptr<Recorder>& Communicator::recorder() const { return group_->recorder(); }
std::exception_ptr Communicator::error() const { return group_->error(); }
void Communicator::abort(const std::string& why) { group_->abort(why); }
void Communicator::shutdown() { group_->shutdown(); }
void Communicator::set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

Lifetime Communicator::lifetime(const CallOptions& options) const {
  const std::chrono::milliseconds timeout = options.timeout.count() > 0 ? options.timeout : timeout_.load();
  const auto now = Work::Clock::now();
  return {now, now + std::min(timeout, kLongestTimeout)};
}

std::shared_ptr<Work> Communicator::finish(std::shared_ptr<Work> work, const CallOptions& options) const {
  if (options.async) {
    group_->engine()->unattended();
  } else {
    group_->wait(*work);
  }
  return work;
}

std::shared_ptr<Work> Communicator::run(Call call) {
  call.validate(size());
  const bool crossed = crossing(call);
  // Decided for the whole call: equal parts may come from unequal calls.
  const bool alike = call.even && call.options.partition == 0;
  const std::uint64_t counts = alike || call.own_sizes_only() ? 0 : counts_of(call.blocks);
  if (call.options.partition == 0 || size() == 1) {  // alone, nothing waits between parts
    StagedCall whole = staged(std::move(call), crossed, counts);
    fit(whole);
    if (balance_) balance(whole);
    return submit(std::move(whole));
  }
  std::vector<StagedCall> parts;
  for (Call& part : cut(call, size())) parts.push_back(staged(std::move(part), crossed, counts));
  for (StagedCall& part : parts) fit(part);
  return submit(std::move(parts));
}

Selector::Selection Communicator::choose(const Call& call) {
  // If ranks know only their own sizes, none of them can relay.
  const std::string& named = call.options.algorithm;
  const bool automatic = named == "auto";
  if (automatic && size() == 1) return {nullptr, Selector::Selection::Way::shared};
  const std::string algorithm = !automatic ? named : call.own_sizes_only() ? "direct" : asked(call.collective, named);
  Selector::Selection selection = selector_->select(call.collective, call.root, call.known_bytes(size()), algorithm);
  if (selection.in_network() && !aggregated_as(call)) {
    if (automatic) return selector_->select_own(call.collective, call.root, call.known_bytes(size()));
    refuse("algorithm in_network adds float32, float16, bfloat16, float64 and int32, and nothing but sums; this is " +
           std::string(name_of(call.op)) + " of " + std::string(name_of(call.dtype)));
  }
  if (call.own_sizes_only() && (selection.shared() || selection.program->needs_size_matrix())) {
    refuse("algorithm " +
           (selection.shared() ? std::string(kSharedAlgorithm) + " goes through all blocks in common rounds"
                               : selection.program->program().name + " relays data between other ranks") +
           ", so it needs every pair's size; "
           "use `direct` for an all_to_all with uneven sizes");
  }
  return selection;
}

StagedCall Communicator::staged(Call&& call, bool crossed, std::uint64_t counts) {
  Selector::Selection selection = choose(call);
  StagedCall staged = stage(std::move(call), std::move(selection), size(), crossed, counts);
  staged.lifetime = lifetime(staged.call.options);
  staged.call.options.priority = priority_of(staged.call.options);
  return staged;
}

void Communicator::balance(StagedCall& staged) {
  const Call& call = staged.call;
  const bool concerned = call.collective == Collective::all_reduce && call.known_bytes(size()) >= RailBalance::kLarge &&
                         call.options.algorithm == "auto" && !canonical_ &&
                         call.options.priority.value_or(Priority::normal) == Priority::normal &&
                         selector_->own_choice(call.collective) && !staged.selection.in_network();
  if (!concerned) return;
  if (const std::shared_ptr<RailBalance::Comparison> comparison = balance_->due()) {
    Call gather{.collective = Collective::all_gather, .dtype = DType::float64};
    for (double& left : comparison->all) {
      const bool ours = &left - comparison->all.data() == rank();
      gather.blocks.push_back({ours ? reinterpret_cast<const std::byte*>(&comparison->mine) : nullptr,
                               reinterpret_cast<std::byte*>(&left), 1});
    }
    gather.options.algorithm = "direct";
    gather.options.async = true;
    gather.options.priority = Priority::normal;
    gather.options.keep_alive = comparison;
    const std::shared_ptr<Work> work = group_->launch(this->staged(std::move(gather), false, 0));
    balance_->launched(work->descriptor().sequence, comparison);
  }
  staged.reconsidered = [this](std::uint64_t sequence) -> std::optional<Selector::Selection> {
    const std::optional<Shares> shares = balance_->shares(sequence);
    if (!shares) return std::nullopt;
    return selector_->select_shares(*shares);
  };
}

std::shared_ptr<Work> Communicator::submit(StagedCall&& staged) {
  if (size() == 1 && staged.selection.shared()) {  // not a Program requested by name
    const bool async = staged.call.options.async;
    std::shared_ptr<Work> work = group_->run_alone(std::move(staged));
    return async ? work : nullptr;
  }
  if (!staged.call.options.async) {
    group_->run(std::move(staged));
    return nullptr;
  }
  return group_->start(std::move(staged));
}

std::shared_ptr<Work> Communicator::submit(std::vector<StagedCall> parts) {
  const CallOptions options = parts.front().call.options;
  std::shared_ptr<Work> whole = finish(group_->launch(std::move(parts)), options);
  return options.async ? whole : nullptr;
}

std::shared_ptr<Work> Communicator::all_reduce_together(Call call) {
  struct Packed {
    std::vector<std::byte> memory;
    std::shared_ptr<const void> owner;  // of the buffers
  };
  const std::size_t element_bytes = call.element_bytes();
  std::size_t elements = 0;
  for (const Block& buffer : call.blocks) elements += buffer.elements;
  const auto packed = std::make_shared<Packed>(std::vector<std::byte>(elements * element_bytes),
                                               std::exchange(call.options.keep_alive, nullptr));
  std::byte* const memory = packed->memory.data();
  std::size_t used = 0;
  for (const Block& buffer : call.blocks) {
    const std::size_t bytes = buffer.elements * element_bytes;
    if (bytes > 0) std::memcpy(memory + std::exchange(used, used + bytes), buffer.input, bytes);
  }
  call.options.keep_alive = packed;
  call.options.partition = 0;  // packed data is small anyway
  std::vector<Block> buffers = std::exchange(call.blocks, {{memory, memory, elements}});
  call.validate(size());
  StagedCall together = staged(std::move(call), false, 0);
  fit(together);
  together.unpacked = std::move(buffers);
  return submit(std::move(together));
}

std::shared_ptr<Work> Communicator::barrier(const CallOptions& options) {
  StagedCall barrier;
  barrier.storage.resize(1);
  barrier.call = {.op = ReduceOp::bor, .blocks = {{barrier.storage.data(), barrier.storage.data(), 1}}};
  barrier.call.options = options;
  barrier.call.options.priority = priority_of(options);
  barrier.selection = selector_->select(Collective::all_reduce, 0, 1, "direct");
  if (group_->fabric().shared_rounds(priority_of(options).value_or(Priority::normal)) != nullptr) {
    barrier.selection.way = Selector::Selection::Way::shared;
  }
  barrier.descriptor.program = barrier.selection.fingerprint();
  barrier.descriptor.op = barrier.call.op;
  barrier.descriptor.barrier = 1;
  barrier.lifetime = lifetime(options);
  return submit(std::move(barrier));
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

void Communicator::add_program(const std::string& name, std::shared_ptr<const Program> program) {
  selector_->add(name, std::move(program), group_->fabric().shape());
}

void Communicator::set_size_ranges(const std::string& name, Collective collective, std::vector<SizeRange> ranges) {
  selector_->set_size_ranges(name, collective, std::move(ranges));
}

void Communicator::set_levels(std::vector<std::vector<std::uint32_t>> levels) {
  selector_->set_levels(std::move(levels));
}

void Communicator::set_shares(std::vector<std::uint32_t> shares) { selector_->set_shares(std::move(shares)); }

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
