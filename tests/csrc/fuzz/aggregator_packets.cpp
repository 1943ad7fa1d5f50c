// Packets of a bad worker at aggregators above one another, of which the lower one shares its slots: its own job may
// fail, the sums of an honest job that goes the same way stay right.
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>

#include "core/in_network/aggregation_client.hpp"
#include "emulation/aggregator/aggregator.hpp"
#include "fuzz/target.hpp"

namespace syntony::fuzz {
namespace {

using Kind = AggregationPacket::Kind;

constexpr std::size_t kSlotBytes = 256;
constexpr Token kHonest{21, 22};
constexpr std::uint64_t kBad = 0xfedcba9876543210;  // of seeds; the job of the day has another one
constexpr std::uint8_t kAgainAndMarked = AggregationPacket::kAgain | AggregationPacket::kMarked;
constexpr std::uint64_t kEvery = 500;  // inputs between two sums of the honest job, and two bad jobs

/// An aggregator that serves on a thread of its own.
class Serving {
 public:
  explicit Serving(bool shared)
      : aggregator_({.slots = 16, .slot_bytes = kSlotBytes, .tenants = 4, .shared = shared}), thread_([this] {
          try {
            aggregator_.run([this] { return !over_; });
          } catch (const std::exception& error) {
            fault(std::string("the aggregator gave up: ") + error.what());
          }
        }) {}
  ~Serving() {
    over_ = true;
    thread_.join();
  }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  [[nodiscard]] TcpAddress door() const { return aggregator_.address(); }

 private:
  Aggregator aggregator_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

class Tree {
 public:
  Tree() : packets_(server_.door(), 0, kLongestDatagram) {
    join(honest_, kHonest);
    next_job();
  }

  static std::unique_ptr<Tree>& only() {
    static auto* only = new std::unique_ptr<Tree>(new Tree);
    return *only;
  }

  /// The job that is attacked, as new.
  void next_job() {
    for (auto& worker : bad_) worker.reset();
    token_ = {++jobs_, kBad + jobs_};
    join(bad_, token_);
  }

  void throw_at_both(const AggregationPacket& head, std::span<const std::byte> payload) {
    AggregationPacket packet = head;
    if (packet.token == kBad) packet.token = token_[1];
    for (const TcpAddress& door : {switch_.door(), server_.door()}) {
      const Datagrams::Message message{packet, payload.data(), &door};
      packets_.send({&message, 1});
    }
  }

  void require_right_sums() {
    both([this](std::size_t rank) {
      std::array<float, 300> data{};
      data.fill(static_cast<float>(rank + 1));
      auto* bytes = reinterpret_cast<std::byte*>(data.data());
      honest_[rank]->all_reduce(NumberFormat::float32, DType::float32, bytes, bytes, data.size(),
                                std::chrono::seconds(60), [] {});
      for (const float element : data) require(element == 3.0F, "the honest job's sum is wrong");
    });
  }

 private:
  using Workers = std::array<std::unique_ptr<AggregationClient>, 2>;

  void join(Workers& workers, const Token& token) {
    const std::string way = switch_.door().text() + "," + server_.door().text();
    both([&](std::size_t rank) {
      workers[rank] =
          std::make_unique<AggregationClient>(AggregationWays{.by_rank = {way, way}, .secret = {}}, token,
                                              static_cast<std::uint32_t>(rank), std::chrono::seconds(60), [] {});
    });
  }

  template <typename Action>
  void both(Action action) {
    const auto guarded = [&](std::size_t rank) {
      try {
        action(rank);
      } catch (const std::exception& error) {
        fault(std::string("the honest job was disturbed: ") + error.what());
      }
    };
    std::thread other(guarded, 1);
    guarded(0);
    other.join();
  }

  Serving server_{false};
  Serving switch_{true};
  Datagrams packets_;
  Workers honest_;
  Workers bad_;
  Token token_{};
  std::uint64_t jobs_ = 0;
};

Bytes packet(Kind kind, std::uint64_t sequence, std::uint8_t flags, std::uint8_t depth) {
  AggregationPacket head;
  head.kind = kind;
  head.flags = flags;
  head.depth = depth;
  head.token = kBad;
  head.sequence = sequence;
  head.elements = 300;
  head.operation = 1;
  head.count = kSlotBytes / sizeof(float);
  head.length = kSlotBytes;
  head.path[0] = head.path[1] = {0, 2};
  Bytes bytes;
  append(bytes, head);
  bytes.resize(bytes.size() + head.length);
  return bytes;
}

std::vector<Bytes> packet_seeds() {
  std::vector<Bytes> seeds;
  for (const Kind kind : {Kind::part, Kind::sum, Kind::held}) {
    for (std::uint8_t depth = 0; depth <= 2; ++depth) {
      seeds.push_back(packet(kind, depth, 0, depth));
      seeds.push_back(packet(kind, depth, kAgainAndMarked, depth));
    }
  }
  return seeds;
}

bool take_packet(std::span<const std::byte> input) {
  static std::uint64_t number = 0;
  AggregationPacket head;
  if (input.size() < sizeof(head)) return false;
  std::memcpy(&head, input.data(), sizeof(head));
  if (head.token == kHonest[1]) return true;  // who knows the token may take part
  const std::span<const std::byte> payload = input.subspan(sizeof(head));
  const bool whole = head.magic == kAggregationMagic && head.depth <= 3 && head.format < 7 &&
                     head.count <= head.elements && head.length == payload.size();
  const std::unique_ptr<Tree>& tree = Tree::only();
  // What the sender's own end would not send is sent all the same, as far as the kernel takes it.
  Bytes sent(payload.begin(), payload.end());
  if (head.length > kLongestDatagram) head.length = static_cast<std::uint32_t>(sent.size());
  sent.resize(std::max<std::size_t>(sent.size(), head.length));
  tree->throw_at_both(head, sent);
  if (++number % kEvery == 0) {
    tree->require_right_sums();
    tree->next_job();
  }
  return whole && head.token == kBad;
}

void end_of_packets() {
  Tree::only()->require_right_sums();
  Tree::only().reset();
}

}  // namespace

const Target kPackets{"packets", packet_seeds, take_packet, end_of_packets};

}  // namespace syntony::fuzz
