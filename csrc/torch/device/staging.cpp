#include "torch/device/staging.hpp"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "core/sizes.hpp"
#include "torch/errors.hpp"

namespace syntony::glue {

/// Bytes on the device and their place in a slot.
struct Staging::Span {
  const std::byte* memory = nullptr;
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// A call in flight.
struct Staging::Order {
  Call call{};
  bool barrier = false;  // if true, only the options of the call matter
  c10::Event ready;
  std::shared_ptr<Buffers> buffers;
  std::shared_ptr<StreamFuture> future = std::make_shared<StreamFuture>();
  std::size_t most = 0;  // elements of a block per piece
  std::size_t pieces = 1;
  std::size_t begun = 0;
  std::exception_ptr failure{};
};

struct Staging::Slot {
  at::Tensor memory;
  c10::Event up;  // of the last piece that used it

  std::byte* at(std::size_t bytes) {
    if (!memory.defined() || memory.nbytes() < bytes) memory = pinned_bytes(bytes);
    return static_cast<std::byte*>(memory.data_ptr());
  }
};

struct Staging::Piece {
  std::shared_ptr<Order> order;
  std::size_t number = 0;
  Slot* slot = nullptr;
  c10::Event down;               // its inputs are in the slot
  std::vector<Block> blocks{};   // in the slot
  std::vector<Span> outputs{};   // what is copied up
  std::shared_ptr<Work> work{};  // on the wire

  [[nodiscard]] bool last() const { return number + 1 == order->pieces; }
};

Staging::Staging(std::shared_ptr<Communicator> group, const c10::Device& device)
    : group_(std::move(group)), device_(device), down_(side_stream(device)), up_(side_stream(device)) {
  for (std::size_t i = 0; i < kSlots; ++i) slots_.push_back({{}, c10::Event(device.type())});
  thread_ = std::thread([this] { live(); });
  pthread_setname_np(thread_.native_handle(), "syntony staging");
}

Staging::~Staging() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  came_.notify_all();
  group_->shutdown();
  thread_.join();
}

std::shared_ptr<StreamFuture> Staging::run(Call call, c10::Event ready, std::shared_ptr<Buffers> buffers) {
  std::size_t most = 0, pieces = 1;
  if (!call.own_sizes_only()) {
    most = std::max<std::size_t>(
        1, kPieceBytes / (call.element_bytes() * blocks_of_rank(call.collective, group_->size())));
    pieces = std::max<std::size_t>(1, (call.longest() + most - 1) / most);
  }
  return enqueue(std::make_shared<Order>(Order{.call = std::move(call),
                                               .ready = std::move(ready),
                                               .buffers = std::move(buffers),
                                               .most = most,
                                               .pieces = pieces}));
}

std::shared_ptr<StreamFuture> Staging::barrier(CallOptions options, c10::Event ready,
                                               std::shared_ptr<Buffers> buffers) {
  Order order{.barrier = true, .ready = std::move(ready), .buffers = std::move(buffers)};
  order.call.options = std::move(options);
  return enqueue(std::make_shared<Order>(std::move(order)));
}

std::shared_ptr<StreamFuture> Staging::enqueue(std::shared_ptr<Order> order) {
  const c10::impl::VirtualGuardImpl impl(device_.type());
  order->buffers->each([&](const at::Tensor& tensor) {  // the caller may drop them before we get to them
    impl.recordDataPtrOnStream(tensor.storage().data_ptr(), down_);
    impl.recordDataPtrOnStream(tensor.storage().data_ptr(), up_);
  });
  order->call.options.async = true;
  std::shared_ptr<StreamFuture> future = order->future;
  {
    const std::scoped_lock lock(mutex_);
    orders_.push_back(std::move(order));
  }
  came_.notify_one();
  return future;
}

void Staging::live() {
  std::deque<Piece> flying;  // oldest first; the first `started` are in flight on the network
  std::size_t started = 0;
  while (true) {
    while (flying.size() < kSlots) {
      std::optional<Piece> piece = next(flying.empty());
      if (!piece) break;
      go_down(flying.emplace_back(std::move(*piece)));
    }
    if (flying.empty()) return;
    // Start what has been copied down; but pieces that have arrived never wait for what is still being computed.
    const bool waiting = started < flying.size();
    if (waiting && (started == 0 || flying[started].down.query())) {
      start(flying[started++]);
    } else {
      finish(flying.front());
      flying.pop_front();
      --started;
    }
  }
}

std::optional<Staging::Piece> Staging::next(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) came_.wait(lock, [&] { return stop_ || !orders_.empty(); });
  if (orders_.empty()) return std::nullopt;
  const std::shared_ptr<Order> order = orders_.front();
  Piece piece{.order = order,
              .number = order->begun++,
              .slot = &slots_[pieces_++ % kSlots],
              .down = c10::Event(device_.type())};
  if (piece.last()) orders_.pop_front();
  return piece;
}

void Staging::go_down(Piece& piece) {
  Order& order = *piece.order;
  try {
    if (piece.number == 0) order.ready.block(down_);
    const Call& call = order.call;
    const std::size_t element = call.element_bytes();
    std::vector<Span> inputs;
    std::size_t used = 0;
    const auto place = [&](const std::byte* memory, std::size_t bytes) {
      return Span{memory, std::exchange(used, (used + bytes + kCacheLine - 1) / kCacheLine * kCacheLine), bytes};
    };
    std::vector<std::pair<std::optional<std::size_t>, std::optional<std::size_t>>> offsets;
    for (const Block& block : call.blocks) {
      const std::size_t begin = std::min(piece.number * order.most, block.elements);
      const std::size_t elements = order.most == 0 ? block.elements : std::min(block.elements - begin, order.most);
      auto& [input, output] = offsets.emplace_back();
      if (block.input != nullptr) {
        inputs.push_back(place(block.input + begin * element, elements * element));
        input = inputs.back().offset;
      }
      const bool in_place = block.input == block.output;
      if (block.output != nullptr) {
        const Span span = in_place ? inputs.back() : place(block.output + begin * element, elements * element);
        output = span.offset;
        if (!in_place || reduces(call.collective)) piece.outputs.push_back(span);  // otherwise it is already there
      }
      piece.blocks.push_back({.elements = elements});
    }
    std::byte* const memory = piece.slot->at(std::max(used, kCacheLine));
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      if (offsets[i].first) piece.blocks[i].input = memory + *offsets[i].first;
      if (offsets[i].second) piece.blocks[i].output = memory + *offsets[i].second;
    }
    piece.slot->up.block(down_);
    const c10::StreamGuard guard(down_);
    for (const Span& span : inputs) {
      if (span.bytes == 0) continue;
      piece.slot->memory.narrow(0, static_cast<std::int64_t>(span.offset), static_cast<std::int64_t>(span.bytes))
          .copy_(bytes_at(span.memory, span.bytes, device_), /*non_blocking=*/true);
    }
    piece.down.record(down_);
  } catch (...) {
    order.failure = std::current_exception();
  }
}

void Staging::start(Piece& piece) {
  Order& order = *piece.order;
  if (order.failure) return;
  try {
    piece.down.synchronize();
    if (order.barrier) {
      piece.work = group_->barrier(order.call.options);
    } else {
      Call part = order.call;
      part.blocks = piece.blocks;
      piece.work = group_->run(std::move(part));
    }
  } catch (...) {
    order.failure = std::current_exception();
  }
}

void Staging::finish(Piece& piece) {
  Order& order = *piece.order;
  try {
    if (piece.work) piece.work->wait();
    if (!order.failure) {
      const c10::StreamGuard guard(up_);
      if (piece.number == 0) order.ready.block(up_);
      for (const Span& span : piece.outputs) {
        if (span.bytes == 0) continue;
        bytes_at(span.memory, span.bytes, device_)
            .copy_(piece.slot->memory.narrow(0, static_cast<std::int64_t>(span.offset),
                                             static_cast<std::int64_t>(span.bytes)),
                   /*non_blocking=*/true);
      }
      piece.slot->up.record(up_);
      if (piece.last()) order.buffers->copy_back();
    }
  } catch (...) {
    order.failure = std::current_exception();
  }
  if (!piece.last()) return;
  order.buffers.reset();
  if (order.failure) {
    order.future->failed(order.failure);
  } else {
    order.future->queued(event_on(up_));
  }
}

}  // namespace syntony::glue
