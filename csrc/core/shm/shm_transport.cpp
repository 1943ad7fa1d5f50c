#include "core/shm/shm_transport.hpp"

#include "core/atomic.hpp"
#include "core/process/emptier_cpu.hpp"
#include "core/shm/shm_stream_memory.hpp"

namespace syntony {

namespace {

ShmStreamMemory memory_of(const ShmSegment& segment, std::byte* base) {
  return {base, segment.shape().depth, segment.shape().slot_bytes};
}

}  // namespace

class ShmTransport::Outgoing final : public Sender {
 public:
  Outgoing(ShmTransport& transport, std::uint32_t peer, ShmStreamMemory memory)
      : transport_(transport), local_peer_(transport.segment_.local(peer)), peer_(peer), memory_(memory) {}

  std::byte* reserve(std::size_t bytes) override {
    require_fit(bytes, memory_.slot_bytes, peer_);
    if (sent_ - credit_ >= memory_.depth) {
      credit_ = memory_.released().load(std::memory_order_acquire);
      if (sent_ - credit_ >= memory_.depth) return nullptr;
    }
    return memory_.payload(sent_);
  }

  void commit(const FrameHeader& header) override {
    require_fit(header.length, memory_.slot_bytes, peer_);
    SlotLine& slot = memory_.slot(sent_);
    slot.header = header;
    slot.stamp.store(++sent_, std::memory_order_release);
    transport_.touched_[local_peer_] = 1;
    transport_.any_touched_ = true;
  }
  bool send(const FrameHeader& header, const std::byte* payload) override {
    std::byte* const room = reserve(header.length);
    if (room == nullptr) return false;
    if (header.length > 0) transport_.shown_copy_(room, payload, header.length);
    commit(header);
    return true;
  }
  std::uint64_t on_their_way() override {
    credit_ = memory_.released().load(std::memory_order_acquire);
    return sent_ - credit_;
  }

 private:
  ShmTransport& transport_;
  std::uint32_t local_peer_;
  std::uint32_t peer_;
  ShmStreamMemory memory_;
  std::uint64_t sent_ = 0;
  std::uint64_t credit_ = 0;
};

class ShmTransport::Incoming final : public Receiver {
 public:
  Incoming(ShmTransport& transport, std::uint32_t peer, ShmStreamMemory memory)
      : transport_(transport), local_peer_(transport.segment_.local(peer)), memory_(memory) {}

  const FrameHeader* front() override {
    SlotLine& slot = memory_.slot(received_);
    return slot.stamp.load(std::memory_order_acquire) == received_ + 1 ? &slot.header : nullptr;
  }
  const std::byte* payload() const override { return memory_.payload(received_); }
  void release() override {
    memory_.released().store(++received_, std::memory_order_release);
    transport_.touched_[local_peer_] = 1;
    transport_.any_touched_ = true;
  }

 private:
  ShmTransport& transport_;
  std::uint32_t local_peer_;
  ShmStreamMemory memory_;
  std::uint64_t received_ = 0;
};

ShmTransport::ShmTransport(ShmSegment& segment, std::uint32_t rank)
    : segment_(segment), rank_(rank), touched_(segment.ranks().size(), 0) {
  const std::size_t streams = segment.ranks().size() * segment.shape().channels * segment.shape().windows;
  outgoing_.resize(streams);
  incoming_.resize(streams);
}

ShmTransport::~ShmTransport() = default;

std::size_t ShmTransport::index(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) const {
  const StreamShape& shape = segment_.shape();
  return (static_cast<std::size_t>(segment_.local(peer)) * shape.channels + channel) * shape.windows + window;
}

Sender& ShmTransport::sender(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) {
  std::unique_ptr<Outgoing>& stream = outgoing_[index(peer, channel, window)];
  if (!stream) {
    stream =
        std::make_unique<Outgoing>(*this, peer, memory_of(segment_, segment_.stream(peer, rank_, channel, window)));
  }
  return *stream;
}

Receiver& ShmTransport::receiver(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) {
  std::unique_ptr<Incoming>& stream = incoming_[index(peer, channel, window)];
  if (!stream) {
    stream =
        std::make_unique<Incoming>(*this, peer, memory_of(segment_, segment_.stream(rank_, peer, channel, window)));
  }
  return *stream;
}

// The peer stores `sleeping`, fences, and checks its streams once more before it sleeps; we have stored into a stream,
// fence, and check `sleeping`: at least one of the two sees the other's store.
void ShmTransport::wake() {
  if (!any_touched_) return;
  any_touched_ = false;
  fence(std::memory_order_seq_cst);
  for (std::size_t i = 0; i < touched_.size(); ++i) {
    if (touched_[i] == 0) continue;
    touched_[i] = 0;
    const std::uint32_t peer = segment_.ranks()[i];
    if (segment_.board(peer).sleeping.load(std::memory_order_relaxed) != 0) segment_.ring(peer);
  }
}

void ShmTransport::touch_all() {
  touched_.assign(touched_.size(), 1);
  touched_[segment_.local(rank_)] = 0;
  any_touched_ = true;
}

void ShmTransport::sleeping(bool asleep) {
  segment_.board(rank_).sleeping.store(asleep ? 1 : 0, std::memory_order_relaxed);
  if (asleep) fence(std::memory_order_seq_cst);
}

// A hint: the CPU that a peer named may be outdated.
bool ShmTransport::meets_on(std::uint32_t cpu) {
  const std::uint32_t named = cpu + 1;
  Atomic<std::uint32_t>& own = segment_.board(rank_).cpu;
  if (own.load(std::memory_order_relaxed) != named) own.store(named, std::memory_order_relaxed);
  return std::ranges::any_of(segment_.ranks(), [&](std::uint32_t peer) {
    const BoardLine& line = segment_.board(peer);
    return peer != rank_ && line.cpu.load(std::memory_order_relaxed) == named &&
           line.sleeping.load(std::memory_order_relaxed) == 0;
  });
}

std::optional<std::uint32_t> ShmTransport::emptier(std::uint32_t cpu, std::span<const std::uint32_t> allowed) const {
  std::vector<AwakeRank> awake;
  for (const std::uint32_t peer : segment_.ranks()) {
    const BoardLine& line = segment_.board(peer);
    const std::uint32_t named = line.cpu.load(std::memory_order_relaxed);
    if (named != 0 && line.sleeping.load(std::memory_order_relaxed) == 0) awake.push_back({peer, named - 1});
  }
  return emptier_cpu(awake, rank_, cpu, allowed);
}

}  // namespace syntony
