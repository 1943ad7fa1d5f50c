// Packets of a bad worker at stacked aggregators, the lower of which shares its slots: its own job may fail, but the
// sums of an honest job on the same path stay correct.
#include <cstring>
#include <memory>
#include <optional>

#include "fuzz/honest_job.hpp"
#include "fuzz/target.hpp"

namespace syntony::fuzz {
namespace {

using Kind = AggregationPacket::Kind;

constexpr std::size_t kSlotBytes = 256;
constexpr Token kHonest{21, 22};
constexpr std::uint64_t kBad = 0xfedcba9876543210;  // in seeds; the attacked job has another one
constexpr std::uint8_t kAgainAndMarked = AggregationPacket::kAgain | AggregationPacket::kMarked;
constexpr std::uint64_t kEvery = 500;  // inputs between two sums of the honest job, and two bad jobs

AggregatorOptions options(bool shared) {
  return {.slots = 16, .slot_bytes = kSlotBytes, .tenants = 4, .shared = shared};
}

class Tree {
 public:
  Tree() { next_job(); }

  static std::unique_ptr<Tree>& only() {
    static auto* only = new std::unique_ptr<Tree>(new Tree);
    return *only;
  }

  /// Starts the attacked job anew.
  void next_job() {
    bad_.reset();
    token_ = {++jobs_, kBad + jobs_};
    bad_.emplace(way_, token_);
  }

  void throw_at_both(const AggregationPacket& head, std::span<const std::byte> payload) {
    AggregationPacket packet = head;
    if (packet.token == kBad) packet.token = token_[1];
    for (const TcpAddress& door : {switch_.door(), server_.door()}) {
      const Datagrams::Message message{packet, payload.data(), &door};
      packets_.send({&message, 1});
    }
  }

  void require_right_sums() { honest_.require_right_sums(); }

 private:
  ServingAggregator server_{options(false)};
  ServingAggregator switch_{options(true)};
  std::string way_ = switch_.door().text() + "," + server_.door().text();
  Datagrams packets_{server_.door(), 0, kLongestDatagram};
  HonestJob honest_{way_, kHonest};
  std::optional<HonestJob> bad_;
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
  for (const Kind kind : {Kind::part, Kind::sum, Kind::held, Kind::question, Kind::wanted}) {
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
  if (head.token == kHonest[1]) return true;  // a sender that knows the token may take part
  const std::span<const std::byte> payload = input.subspan(sizeof(head));
  const bool whole = head.magic == kAggregationMagic && head.depth <= 3 && head.format < 7 &&
                     head.count <= head.elements && head.length == payload.size();
  const std::unique_ptr<Tree>& tree = Tree::only();
  // Packets that the sender's own end would refuse are sent anyway, as far as the kernel accepts them.
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
