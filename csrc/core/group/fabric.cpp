#include "core/group/fabric.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "core/group/agreement.hpp"
#include "core/libfabric/libfabric_port.hpp"
#include "core/one_host/shared_rounds.hpp"
#include "core/one_host/shared_way.hpp"
#include "core/process/host.hpp"
#include "core/process/log.hpp"
#include "core/process/usable_cpus.hpp"
#include "core/recorder/recorder.hpp"
#include "core/shm/shm_board.hpp"
#include "core/shm/shm_segment.hpp"
#include "core/shm/shm_transport.hpp"
#include "core/sip_hash.hpp"
#include "core/sizes.hpp"
#include "core/tcp/tcp_control.hpp"
#include "core/tcp/tcp_transport.hpp"
#include "core/tcp/tcp_wire.hpp"
#include "core/tls/tls_library.hpp"
#include "core/ucx/ucx_port.hpp"

namespace syntony {
namespace {

/// Incremented when the meaning of shared memory or of introductions changes but not their size.
constexpr std::uint32_t kSharedVersion = 6;
constexpr std::uint32_t kOperationsInFlight = 2;  // per priority
constexpr std::uint32_t kMostChannels = 32;
constexpr std::uint32_t kFewestChannels = 4;
constexpr std::uint32_t kFewRanks = 16;        // whose groups may have larger buffers
constexpr std::uint32_t kStreamBudget = 2048;  // channels x pairs of ranks, to bound the address space

/// Appends a field to a blob: length, ':', bytes.
void put(std::string& blob, std::string_view field) { blob += std::to_string(field.size()) + ":" + std::string(field); }

std::string_view take(std::string_view& blob, int from) {
  std::size_t length = 0;
  const auto [end, fault] = std::from_chars(blob.data(), blob.data() + blob.size(), length);
  const auto header = static_cast<std::size_t>(end - blob.data());
  if (fault != std::errc() || header >= blob.size() || blob[header] != ':' || length > blob.size() - header - 1) {
    throw Error(Error::Kind::system,
                "rank " + std::to_string(from) +
                    " introduced itself in a form that is not ours "
                    "(is it another version of Syntony?)",
                {from});
  }
  const std::string_view field = blob.substr(header + 1, length);
  blob.remove_prefix(header + 1 + length);
  return field;
}

std::uint64_t number(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string text_of(const SipHash& hash) { return std::to_string(hash[0]) + "." + std::to_string(hash[1]); }

/// Derived from what the ranks know apart from the tokens that they exchange.
SipKey known_secret(const Bootstrap& bootstrap) {
  const char* secret = std::getenv("SYNTONY_SECRET");
  return sip_key_of(bootstrap.secret() + ":" + (secret == nullptr ? "" : secret));
}

/// A key that everybody can learn keeps nothing from anybody.
void require_encryption(const Bootstrap& bootstrap) {
  (void)TlsLibrary::get();
  const char* const secret = std::getenv("SYNTONY_SECRET");
  if (!bootstrap.secret().empty() || (secret != nullptr && *secret != '\0')) return;
  throw Error(
      Error::Kind::invalid,
      "SYNTONY_ENCRYPTION=tls needs a secret, because who reads what ranks exchange while they meet would learn "
      "the keys: set SYNTONY_SECRET to one random value at all ranks of the job (openssl rand -hex 16 makes one)");
}

/// Proves that the author of `token` knows the secret.
std::string sign_of(const SipKey& known, const Token& token) {
  return text_of(sip_hash(known, "syntony rank " + text_of(token)));
}

/// What ranks must have in common to read each other's memory and messages: the version of the TCP messages and the
/// sizes of the structures in shared memory.
std::string memory_layout() {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const std::uint64_t size :
       {sizeof(AbortRecord), sizeof(BoardLine), sizeof(BoardProgress), sizeof(Post), sizeof(SlotLine),
        sizeof(StageBuffer), sizeof(Descriptor), sizeof(FrameHeader), sizeof(BufferAddress), kRememberedOperations,
        kPostSlots, kLongestPost, StageBuffer::kInlineBytes}) {
    hash = (hash ^ size) * 0x100000001b3ULL;
  }
  return std::to_string(kWireVersion) + "." + std::to_string(kSharedVersion) + "." + std::to_string(hash % 1'000'000);
}

/// CPUs, and the ranks that they are for.
struct Processors {
  std::uint64_t cpus = std::numeric_limits<std::uint64_t>::max();
  std::uint32_t ranks = 0;

  /// One more rank, which may use so many of them.
  void take(std::uint64_t usable) {
    cpus = std::min(cpus, usable);
    ++ranks;
  }
  [[nodiscard]] bool too_few() const { return ranks > cpus; }
};

constexpr std::uint32_t usual_slot(std::uint32_t ranks) { return ranks <= kFewRanks ? 128U << 10U : 64U << 10U; }

StreamShape shape_for(std::uint32_t ranks) {
  StreamShape shape;
  shape.ranks = ranks;
  shape.channels = std::clamp(kStreamBudget / (ranks * ranks), kFewestChannels, kMostChannels);
  shape.slot_bytes = static_cast<std::uint32_t>(environment_number("SYNTONY_SLOT_BYTES", usual_slot(ranks)));
  constexpr std::uint32_t kSmallest = 4096, kLargest = 16_MiB, kUnit = 64;
  if (shape.slot_bytes < kSmallest || shape.slot_bytes > kLargest || shape.slot_bytes % kUnit != 0) {
    throw Error(Error::Kind::invalid, "SYNTONY_SLOT_BYTES=" + std::to_string(shape.slot_bytes) +
                                          " must be a multiple of 64 between 4096 and 16777216");
  }
  shape.windows = kPriorities * kOperationsInFlight + 1;
  constexpr std::uint32_t kLeastCredit = 4096, kMostCredit = 1U << 30U;
  const std::uint64_t credit = environment_number("SYNTONY_CREDIT", shape.credit);
  if (credit < kLeastCredit || credit > kMostCredit) {
    throw Error(Error::Kind::invalid,
                "SYNTONY_CREDIT=" + std::to_string(credit) + " must be a number of bytes between 4096 and 1073741824");
  }
  shape.credit = static_cast<std::uint32_t>(credit);
  return shape;
}

/// Over TCP, where credits take a round trip: with 4 frames of 64 KiB on their way, a fast wire waits for them. 16
/// would leave the caches before they are summed. Of short frames that is nothing: Programs of many chunks send those,
/// and a credit takes long where it queues behind data of the other way.
StreamShape over_tcp(StreamShape shape, std::uint32_t longest_slice) {
  if (shape.ranks <= kFewRanks) {
    shape.depth *= 2;
    shape.short_frames = 4 * shape.depth;
  }
  shape.slot_bytes = longest_slice;
  return shape;
}

/// Of ranks that reach each other over TCP only. Of more of them, several send to one at the same time, and what all
/// have on their way there delays everything else (4 hosts, slots of 512 and 128 KiB, ms: all_reduce of 16 MiB at 500
/// Mbit/s 424 and 409, at 1 Gbit/s 219 to 252 and 205; 8 hosts, all_to_all of 16 MiB at 500 Mbit/s 385 and 242; at 10
/// Gbit/s, where processors are the limit, up to 5 % more).
std::uint32_t longest_over_tcp(const StreamShape& shape) {
  constexpr std::uint32_t kFew = 3, kLongest = 512_KiB;
  return shape.ranks > kFew || shape.slot_bytes != usual_slot(shape.ranks) ? shape.slot_bytes : kLongest;
}

/// Between two of the ranks that have published these endpoints, where they are the most.
std::size_t most_sockets(const std::vector<std::string>& published, const TcpOptions& options) {
  if (options.flows > 0) return options.flows;
  std::vector<TcpEndpoints> endpoints;
  for (const std::string& text : published) endpoints.push_back(TcpEndpoints::parse(text));
  std::size_t most = 1;
  for (const TcpEndpoints& one : endpoints) {
    for (const TcpEndpoints& other : endpoints) {
      if (&one != &other) most = std::max<std::size_t>(most, one.flows_with(other));
    }
  }
  return most;
}

std::size_t most_rails(const std::vector<std::string>& published) {
  std::size_t most = 1;
  for (const std::string& text : published) most = std::max(most, TcpEndpoints::parse(text).rails);
  return most;
}

std::string wanted_transport() {
  const char* const variable = std::getenv("SYNTONY_TRANSPORT");
  std::string wanted = variable == nullptr || *variable == '\0' ? "tcp" : variable;
  if (wanted == "tcp" || wanted == "ucx" || wanted == "libfabric" || wanted == "auto") return wanted;
  throw Error(Error::Kind::invalid,
              "SYNTONY_TRANSPORT=" + wanted + " is not a transport between hosts: there are tcp, ucx, libfabric, auto");
}

/// Not 0: rails are balanced (rail_balance.hpp).
std::uint64_t balance_wanted() { return environment_number("SYNTONY_BALANCE", 1); }

/// What ranks must have in common, by name.
using Settings = std::vector<std::pair<std::string, std::string>>;

Settings settings_of(const StreamShape& shape) {
  return {{"Syntony's protocol version", memory_layout()},
          {"SYNTONY_SLOT_BYTES", std::to_string(shape.slot_bytes)},
          {"SYNTONY_CREDIT", std::to_string(shape.credit)},
          {"SYNTONY_TRANSPORT", wanted_transport()},
          {"SYNTONY_BALANCE", std::to_string(balance_wanted())},
          {"SYNTONY_ENCRYPTION", TcpOptions::encryption_wanted()},
          {"SYNTONY_TRACE_ENTRIES", std::to_string(Recorder::entries_wanted())},
          {"SYNTONY_WAIT_WARNING", std::to_string(Fabric::wait_warning().count())}};
}

std::string settings_text(const Settings& settings) {
  std::string text;
  for (const auto& [_, value] : settings) put(text, value);
  return text;
}

/// Takes them from the front of a rank's introduction.
void compare(const Settings& settings, std::string_view& their, int from, std::uint32_t self) {
  for (const auto& [setting, value] : settings) {
    const std::string_view theirs = take(their, from);
    if (theirs == value) continue;
    throw Error(Error::Kind::mismatch,
                "rank " + std::to_string(from) + " has " + setting + "=" + std::string(theirs) + " and rank " +
                    std::to_string(self) + " " + value + ": they must be equal",
                {from, static_cast<int>(self)});
  }
}

}  // namespace

Fabric::Fabric(Bootstrap& bootstrap, const Doorbell& doorbell, std::chrono::steady_clock::time_point deadline,
               const std::function<std::string(const Boxes&)>& metadata)
    : rank_(bootstrap.rank()), size_(bootstrap.size()), by_peer_(size_, nullptr) {
  UniqueFd entrance;
  const std::vector<ShmMember> box = understand(introduce(bootstrap, doorbell, entrance), known_secret(bootstrap));
  const auto name = [this](std::uint32_t rank) { return name_of_rank(rank); };
  TcpOptions options;
  std::optional<TcpListener> listener;
  std::vector<std::string> published;
  Wires wires;
  if (hosts_ > 1) {
    const auto listen = [&] {
      options = TcpOptions::from_environment();
      if (options.encrypts) require_encryption(bootstrap);
      return listener.emplace(options).published();
    };
    published = agree(bootstrap, "tcp", listen, name);
    wires = choose_wires(bootstrap);
  }
  const auto connect = [&] {
    // The rest of the time is for the agreement, in which a rank that waits in vain for a connection learns why.
    const auto connected_by = deadline - (deadline - std::chrono::steady_clock::now()) / 8;
    meet_on_host(box, std::move(entrance), doorbell, connected_by);
    if (listener) meet_across_hosts(*std::move(listener), options, published, std::move(wires), connected_by);
    return metadata(boxes());
  };
  metadata_ = agree(bootstrap, "connected", connect, name);
  if (std::ranges::all_of(metadata_, &std::string::empty)) metadata_ = std::vector<std::string>();
}

Fabric::Boxes Fabric::boxes() const {
  Boxes boxes(hosts_);
  for (std::uint32_t rank = 0; rank < size_; ++rank) boxes[box_of_[rank]].push_back(rank);
  return boxes;
}

std::chrono::seconds Fabric::wait_warning() {
  constexpr std::uint64_t kDefault = 60, kLongest = 86400;
  const std::uint64_t wanted = environment_number("SYNTONY_WAIT_WARNING", kDefault);
  if (wanted > kLongest) {
    throw Error(Error::Kind::invalid, "SYNTONY_WAIT_WARNING=" + std::to_string(wanted) + " must be from 0 to " +
                                          std::to_string(kLongest) + " seconds");
  }
  return std::chrono::seconds(wanted);
}

std::vector<std::string> Fabric::introduce(Bootstrap& bootstrap, const Doorbell& doorbell, UniqueFd& entrance) {
  const auto bring = [&] {
    shape_ = shape_for(size_);
    const std::string unix_address = fresh_unix_address();
    const Token token = random_token();
    const SipKey known = known_secret(bootstrap);
    entrance = ShmSegment::listen(unix_address);
    std::string blob = settings_text(settings_of(shape_));
    const CpuSet cpus = allowed_cpus();
    for (const std::string& field :
         {host_key(), host_name(), std::to_string(::getpid()), std::to_string(token[0]), std::to_string(token[1]),
          unix_address, doorbell.address(), sign_of(known, token), std::to_string(usable_cpus()),
          std::to_string(cpus.count), text_of(sip_hash(known, boot_id() + cpus.bits))}) {
      put(blob, field);
    }
    return blob;
  };
  return agree(bootstrap, "introduce", bring, [](std::uint32_t rank) { return "rank " + std::to_string(rank); });
}

std::vector<ShmMember> Fabric::understand(std::span<const std::string> introductions, const SipKey& known) {
  longest_slice_ = shape_.slot_bytes;
  const Settings settings = settings_of(shape_);
  const std::string ours = settings_text(settings);
  std::vector<Member> members;
  members.reserve(size_);
  processes_.reserve(size_);
  std::unordered_map<std::string_view, std::uint32_t> names, box_of_host;
  std::unordered_map<std::uint32_t, Processors> of_boxes;
  std::unordered_map<std::string_view, Processors> of_machines;
  for (const std::string& blob : introductions) {
    const int from = static_cast<int>(members.size());
    std::string_view their = blob;
    if (their.starts_with(ours)) {
      their.remove_prefix(ours.size());
    } else {
      compare(settings, their, from, rank_);
    }
    Member member;
    const auto next_box = static_cast<std::uint32_t>(box_of_host.size());
    box_of_.push_back(box_of_host.try_emplace(take(their, from), next_box).first->second);
    const std::string_view host_name = take(their, from);
    member.process = static_cast<pid_t>(number(take(their, from)));
    member.token[0] = number(take(their, from));
    member.token[1] = number(take(their, from));
    member.entrance = take(their, from);
    member.doorbell = take(their, from);
    if (take(their, from) != sign_of(known, member.token)) {
      throw Error(Error::Kind::mismatch,
                  "rank " + std::to_string(from) + " does not know the secret of rank " + std::to_string(rank_) +
                      ": SYNTONY_SECRET should be set to one value at all ranks, or at none",
                  {from, static_cast<int>(rank_)});
    }
    of_boxes[box_of_.back()].take(number(take(their, from)));
    const std::uint64_t cpus = number(take(their, from));
    of_machines[take(their, from)].take(cpus);
    const auto [host, fresh] = names.try_emplace(host_name, static_cast<std::uint32_t>(names.size()));
    if (fresh) host_names_.emplace_back(host_name);
    processes_.emplace_back(member.process, host->second);
    members.push_back(member);
  }
  hosts_ = box_of_host.size();
  const auto too_few = [](const auto& entry) { return entry.second.too_few(); };
  crowded_ = std::ranges::any_of(of_boxes, too_few) || std::ranges::any_of(of_machines, too_few);
  token_ = sip_hash(known, text_of(members[0].token));
  std::vector<ShmMember> box;
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    const Member& member = members[rank];
    if (box_of_[rank] != box_of_[rank_]) continue;
    box.push_back({rank, member.process, std::string(member.entrance), std::string(member.doorbell)});
  }
  return box;
}

// With `auto`, UCX is chosen if all ranks have the hardware it is better for; if not, the others learn which rank lacks
// it.
Fabric::Wires Fabric::choose_wires(Bootstrap& bootstrap) const {
  const std::string wanted = wanted_transport();
  const auto decided = [&](const std::string& which, const std::string& why) {
    log(LogLevel::info,
        [&] { return "transport between hosts: " + which + " (SYNTONY_TRANSPORT=" + wanted + why + ")"; });
  };
  if (wanted == "tcp") {
    decided("tcp", "");
    return {};
  }
  if (TcpOptions::encryption_wanted() == "tls") {
    if (wanted == "auto") {
      decided("tcp", ", which can encrypt");
      return {};
    }
    throw Error(Error::Kind::invalid,
                "SYNTONY_TRANSPORT=" + wanted + " cannot encrypt: with SYNTONY_ENCRYPTION=tls it must be tcp");
  }
  constexpr char kNot = '-', kHere = '+';  // followed by the reason why not, or the address
  std::shared_ptr<Port> port;
  const auto open = [&]() -> std::string {
    if (wanted == "auto" && !has_rdma()) return kNot + std::string("has no RDMA device in /sys/class/infiniband");
    try {
      port = wanted == "libfabric" ? open_libfabric_port() : open_ucx_port();
    } catch (const Error& error) {
      if (wanted == "auto") return kNot + std::string(error.what());
      throw Error(error.kind(), "SYNTONY_TRANSPORT=" + wanted + ": " + std::string(error.what()));
    }
    return kHere + port->address();
  };
  std::vector<std::string> told =
      agree(bootstrap, "wires", open, [this](std::uint32_t rank) { return name_of_rank(rank); });
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    if (told[rank].front() == kHere) {
      told[rank].erase(0, 1);
      continue;
    }
    decided("tcp", "; " + name_of_rank(rank) + ": " + told[rank].substr(1));
    return {};
  }
  decided(wanted == "auto" ? "ucx" : wanted, "; " + port->name() + "; control stays on tcp");
  return {std::move(port), std::move(told)};
}

Fabric::~Fabric() {
  planes_.clear();
  shared_rounds_ = {};
  transports_.clear();
}

void Fabric::meet_on_host(const std::vector<ShmMember>& box, UniqueFd entrance, const Doorbell& doorbell,
                          std::chrono::steady_clock::time_point deadline) {
  if (box.size() == 1) return;
  std::vector<pid_t> processes;
  for (const ShmMember& member : box) processes.push_back(member.process);
  segment_ = std::make_unique<ShmSegment>(box, rank_, std::move(entrance), doorbell, shape_, deadline);
  planes_.push_back(std::make_unique<ShmBoard>(*segment_, rank_, processes));
  auto transport = std::make_unique<ShmTransport>(*segment_, rank_);
  const auto ranks = static_cast<std::uint32_t>(box.size());
  const unsigned looks = ranks <= usable_cpus() ? SharedRounds::kTravels : 1;
  for (const Priority priority : kMostUrgentFirst) {
    if (hosts_ > 1) break;
    shared_rounds_[index_of(priority)] =
        std::make_unique<SharedRounds>(*segment_, *transport, rank_, processes, priority, looks, swaps_stages(ranks));
  }
  transports_.push_back(std::move(transport));
  for (const ShmMember& member : box) {
    if (member.rank != rank_) by_peer_[member.rank] = transports_.back().get();
  }
}

void Fabric::meet_across_hosts(TcpListener listener, const TcpOptions& options,
                               const std::vector<std::string>& published, Wires wires,
                               std::chrono::steady_clock::time_point deadline) {
  std::vector<std::uint32_t> others, remote;
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    if (rank != rank_) others.push_back(rank);
    if (box_of_[rank] != box_of_[rank_]) remote.push_back(rank);
  }
  const GroupIdentity identity{.token = token_, .group = GroupMarks(token_).group, .rank = rank_, .ranks = size_};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  // If this fails, all sockets are closed before the others are told why; they would otherwise wait for this rank's.
  auto meeting = std::make_unique<TcpMeeting>(std::move(listener), options, identity, published, others, left);
  std::vector<TcpPeer> peers = meeting->connect_control(TcpControl::neighbours(rank_, size_, remote));
  auto control = std::make_unique<TcpControl>(identity, peers, meeting.get(), remote);
  std::unique_ptr<Transport> transport;
  if (wires.port) {
    transport = wires.port->connect(shape_, identity, remote, wires.addresses);
  } else {
    if (hosts_ == size_) longest_slice_ = longest_over_tcp(shape_);
    if (hosts_ == size_ && balance_wanted() != 0) rails_ = most_rails(published);
    if (longest_slice_ > shape_.slot_bytes) sockets_ = most_sockets(published, options);
    transport =
        std::make_unique<TcpTransport>(over_tcp(shape_, longest_slice_), identity, peers, meeting.get(), remote);
  }
  if (Recorder::entries_wanted() > 0) {
    control->compare_clocks();
    clock_offset_ = control->clock_offset();
  }
  meeting_ = std::move(meeting);
  planes_.push_back(std::move(control));
  transports_.push_back(std::move(transport));
  for (const std::uint32_t rank : remote) by_peer_[rank] = transports_.back().get();
}

FrameHeader Fabric::header() const {
  const GroupMarks marks(token_);
  FrameHeader header;
  header.token = marks.token;
  header.group = marks.group;
  return header;
}

std::string Fabric::secret() const { return text_of(sip_hash(token_, "syntony regroup")); }

const Error* Fabric::refused() const {
  return meeting_ != nullptr && meeting_->broken_by() ? &*meeting_->broken_by() : nullptr;
}

std::string Fabric::name_of_rank(std::uint32_t rank) const {
  const auto& [process, host] = processes_[rank];
  return "rank " + std::to_string(rank) + " (process " + std::to_string(process) + " on " + host_names_[host] + ")";
}

std::vector<int> Fabric::data_descriptors() const {
  std::vector<int> all;
  for (const std::unique_ptr<Transport>& transport : transports_) {
    all.insert(all.end(), transport->descriptors().begin(), transport->descriptors().end());
  }
  return all;
}

std::vector<int> Fabric::control_descriptors() const {
  std::vector<int> all;
  for (const std::unique_ptr<ControlPlane>& plane : planes_) {
    all.insert(all.end(), plane->descriptors().begin(), plane->descriptors().end());
  }
  return all;
}

}  // namespace syntony
