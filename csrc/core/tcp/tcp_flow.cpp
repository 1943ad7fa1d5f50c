#include "core/tcp/tcp_flow.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ranges>

#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {
namespace {

/// Pieces passed to the kernel at once: 32 frames.
constexpr std::size_t kPieces = 64;

/// Payload bytes worth waking up for if more is to come. Far less than the smallest receive buffer.
constexpr int kWorthWaking = 32 * 1024;
constexpr int kLittle = 4096;

/// What a wire of 1 Gbit/s takes at most, and how often in a row it must be less. A burst is taken at once by any wire.
constexpr std::chrono::nanoseconds kLongPerByte{8};
constexpr unsigned kOften = 16;

iovec piece(const std::byte* data, std::size_t bytes) { return {const_cast<std::byte*>(data), bytes}; }

}  // namespace

void TcpFlow::open(TcpStream socket, Wires::Watched watched) {
  socket_ = std::move(socket);
  watched_ = std::move(watched);
  readable_ = writable_ = true;
}

template <typename Passes>
void TcpFlow::insert(const Outgoing& outgoing, const Passes& passes) {
  const std::size_t begun = first_ + (written_ > 0 ? 1 : 0);
  std::size_t place = outbox_.size();
  while (place > begun && passes(outbox_[place - 1])) --place;
  outbox_.insert(outbox_.begin() + static_cast<std::ptrdiff_t>(place), outgoing);
}

void TcpFlow::push(const FramePrefix& prefix) {
  insert({.prefix = prefix, .header = {}}, [](const Outgoing& other) { return other.of_frame(); });
}

void TcpFlow::push(const FramePrefix& prefix, const FrameHeader& header, const std::byte* payload, Priority priority,
                   bool repeated) {
  insert({.prefix = prefix,
          .header = header,
          .payload = payload,
          .turn = next_turn(prefix, header),
          .priority = priority,
          .repeated = repeated});
}

void TcpFlow::push_in_parts(const FramePrefix& prefix, const FrameHeader& header, const std::byte* payload,
                            Priority priority) {
  if (header.length <= kPart || quick_ >= kOften) return push(prefix, header, payload, priority);
  Outgoing piece{
      .prefix = prefix, .header = header, .payload = payload, .turn = next_turn(prefix, header), .priority = priority};
  piece.prefix.kind = FramePrefix::kCut;
  insert(piece);
  piece.prefix.kind = FramePrefix::kPart;
  for (; piece.offset < header.length; piece.offset += kPart, piece.turn += kPart) {
    piece.prefix.number = std::min<std::size_t>(kPart, header.length - piece.offset);
    insert(piece);
  }
}

std::uint64_t TcpFlow::next_turn(const FramePrefix& prefix, const FrameHeader& header) {
  if (ends_.size() <= prefix.channel) ends_.resize(prefix.channel + 1);
  const std::uint64_t turn = std::max(turn_, ends_[prefix.channel]);
  ends_[prefix.channel] = turn + header.length;
  return turn;
}

void TcpFlow::insert(const Outgoing& outgoing) {
  insert(outgoing, [&](const Outgoing& other) {
    return other.of_frame() && (other.priority < outgoing.priority ||
                                (other.prefix.window == outgoing.prefix.window && other.turn > outgoing.turn));
  });
}

void TcpFlow::keep_last(std::byte* slot) {
  if (first_ == outbox_.size()) return;
  const std::byte* const payload = outbox_.back().payload;
  for (Outgoing& outgoing : std::span(outbox_).subspan(first_) | std::views::reverse) {
    if (!outgoing.of_frame() || outgoing.payload != payload) break;
    const std::size_t written = &outgoing == &outbox_[first_] ? written_ : 0;
    const std::size_t sent = written - std::min(written, outgoing.head_bytes());
    const std::size_t from = outgoing.offset + sent;
    std::memcpy(slot + from, payload + from, outgoing.payload_bytes() - sent);
    outgoing.payload = slot;
  }
}

std::size_t TcpFlow::backlog() const {
  std::size_t bytes = unacknowledged(socket_.get());
  for (std::size_t entry = first_; entry < outbox_.size(); ++entry) bytes += outbox_[entry].bytes();
  return bytes - (first_ < outbox_.size() ? written_ : 0);
}

std::size_t TcpFlow::unsent_frames() const {
  const auto unsent = std::span(outbox_).subspan(first_);
  return static_cast<std::size_t>(
      std::ranges::count_if(unsent, [](const Outgoing& outgoing) { return outgoing.last() && !outgoing.repeated; }));
}

bool TcpFlow::queues(const FramePrefix& frame) const {
  const auto first = outbox_.begin() + static_cast<std::ptrdiff_t>(first_);
  return std::ranges::find(first, outbox_.end(), frame, &Outgoing::prefix) != outbox_.end();
}

std::optional<FramePrefix> TcpFlow::arriving() const {
  if (remaining_.empty()) return std::nullopt;
  if (current_.kind != FramePrefix::kPart) return current_;
  const auto cut = std::ranges::find_if(cut_, [this](const Cut& each) { return each.holds(current_); });
  return cut->prefix;
}

void TcpFlow::forget_unsent() {
  outbox_.clear();
  first_ = written_ = 0;
}

TcpFlow::Outcome TcpFlow::write() {
  Outcome outcome = Outcome::nothing;
  while (writable_ && unsent_entries() > 0) {
    std::array<iovec, kPieces> pieces;
    std::size_t count = 0;
    std::size_t skip = written_;
    for (std::size_t i = first_; i < outbox_.size() && count + 2 <= kPieces; ++i, skip = 0) {
      const Outgoing& outgoing = outbox_[i];
      const std::size_t head = outgoing.head_bytes();
      if (skip < head) pieces[count++] = piece(reinterpret_cast<const std::byte*>(&outgoing) + skip, head - skip);
      const std::size_t into = skip - std::min(skip, head);
      if (into < outgoing.payload_bytes()) {
        pieces[count++] = piece(outgoing.payload + outgoing.offset + into, outgoing.payload_bytes() - into);
      }
    }
    const Clock::time_point now = Clock::now();
    if (written_ == 0) since_ = now;
    const ssize_t n = socket_.send(std::span(pieces).first(count));
    if (n >= 0) {
      advance(static_cast<std::size_t>(n), now);
      outcome = Outcome::moved;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINPROGRESS) {
      writable_ = false;
    } else if (errno != EINTR) {
      failure_ = errno;
      writable_ = false;
      // The peer has closed it. What it sent before is still to be read, and then read() says that it has ended.
      return errno == ECONNRESET || errno == EPIPE ? Outcome::nothing : Outcome::ended;
    }
  }
  return outcome;
}

void TcpFlow::judge(std::size_t bytes, Clock::duration took) {
  if (bytes < kPart) return;
  quick_ = took < static_cast<std::int64_t>(bytes) * kLongPerByte ? std::min(quick_ + 1, kOften) : 0;
}

void TcpFlow::advance(std::size_t bytes, Clock::time_point now) {
  written_ += bytes;
  while (first_ < outbox_.size() && written_ > 0) {
    turn_ = std::max(turn_, outbox_[first_].turn);
    if (written_ < outbox_[first_].bytes()) break;
    judge(outbox_[first_].payload_bytes(), now - since_);
    since_ = now;
    written_ -= outbox_[first_++].bytes();
  }
  if (first_ == outbox_.size()) {
    outbox_.clear();
    first_ = 0;
  } else if (first_ >= 64 && first_ * 2 > outbox_.size()) {
    outbox_.erase(outbox_.begin(), outbox_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
}

TcpFlow::Outcome TcpFlow::read(FrameSink& sink, Aside& aside) {
  std::copy_n(begun_.begin(), begun_bytes_, aside.begin());
  std::array<iovec, 2> pieces;
  std::size_t count = 0;
  if (!remaining_.empty()) pieces[count++] = piece(remaining_.data(), remaining_.size());
  pieces[count++] = piece(aside.data() + begun_bytes_, aside.size() - begun_bytes_);
  const std::size_t room = remaining_.size() + aside.size() - begun_bytes_;
  ssize_t n = 0;
  do {
    n = socket_.receive(std::span(pieces).first(count));
  } while (n < 0 && errno == EINTR);
  const bool opened = socket_.take_opened();
  if (opened) writable_ = true;
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    readable_ = false;
    await_less();  // the previous read may have filled its room exactly and completed the awaited frame
    return opened ? Outcome::moved : Outcome::nothing;
  }
  if (n <= 0) {
    if (n < 0) failure_ = errno;
    readable_ = false;
    return Outcome::ended;
  }
  const auto bytes = static_cast<std::size_t>(n);
  // Less than requested: the socket is empty until the next edge (epoll(7)), unless end of file comes next.
  if (bytes < room && !hung_up_) readable_ = false;

  const std::size_t direct = std::min(bytes, remaining_.size());
  if (!remaining_.empty()) {
    remaining_ = remaining_.subspan(direct);
    if (remaining_.empty()) complete(sink);
  }
  if (!parse(sink, std::span(aside).first(begun_bytes_ + bytes - direct))) return Outcome::refused;
  if (!readable_) await_less();
  return Outcome::moved;
}

void TcpFlow::redirect(std::span<const std::byte> from, std::byte* to) {
  if (remaining_.empty() || remaining_.data() < from.data() || remaining_.data() >= from.data() + from.size()) return;
  remaining_ = {to + (remaining_.data() - from.data()), remaining_.size()};
}

int TcpFlow::worth_waking() const {
  const int rest = static_cast<int>(std::min<std::size_t>(remaining_.size(), kWorthWaking));
  return rest < kLittle ? 1 : rest;
}

void TcpFlow::await_payload() {
  // What a session has read ahead does not count for the kernel.
  if (socket_ && !socket_.encrypted() && !readable_ && worth_waking() > awaited_) await(worth_waking());
}

void TcpFlow::await_less() {
  if (worth_waking() < awaited_) await(worth_waking());
}

void TcpFlow::await(int bytes) {
  if (::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)) == 0) {
    awaited_ = bytes;
  } else if (bytes < awaited_) {  // otherwise the only cost is waking too often
    throw system_error("cannot wait for few bytes of a socket", errno);
  }
}

bool TcpFlow::parse(FrameSink& sink, std::span<const std::byte> bytes) {
  while (remaining_.empty() && bytes.size() >= sizeof(FramePrefix)) {
    std::memcpy(&current_, bytes.data(), sizeof(current_));
    if (current_.kind == FramePrefix::kCredit) {
      if (!sink.credited(current_)) return false;
      bytes = bytes.subspan(sizeof(FramePrefix));
      continue;
    }
    if (current_.kind == FramePrefix::kLost || current_.kind == FramePrefix::kProbe) {
      if (!sink.told(current_)) return false;
      bytes = bytes.subspan(sizeof(FramePrefix));
      continue;
    }
    std::span<std::byte> payload;
    if (current_.kind == FramePrefix::kPart) {
      const auto cut = cut_of(current_);
      const bool known = cut != cut_.end() && cut->prefix.token == current_.token;
      if (!known || current_.number == 0 || current_.number > cut->bytes - cut->arrived) return false;
      std::byte* const slot = sink.resume(cut->prefix, cut->arrived);
      if (slot == nullptr) return false;
      payload = {slot, current_.number};
      bytes = bytes.subspan(sizeof(FramePrefix));
    } else {
      FrameHeader header;
      const bool cut = current_.kind == FramePrefix::kCut;
      if (current_.kind != FramePrefix::kData && !cut) return false;
      if (bytes.size() < begun_.size()) break;
      std::memcpy(&header, bytes.data() + sizeof(FramePrefix), sizeof(header));
      bytes = bytes.subspan(begun_.size());
      std::byte* const slot = sink.place(current_, header);
      if (slot == nullptr) return false;
      if (cut) {
        if (header.length == 0 || cut_of(current_) != cut_.end()) return false;
        cut_.push_back({.prefix = current_, .bytes = header.length});
        continue;
      }
      payload = {slot, header.length};
    }
    const std::size_t here = std::min(payload.size(), bytes.size());
    if (here > 0) std::memcpy(payload.data(), bytes.data(), here);
    bytes = bytes.subspan(here);
    remaining_ = payload.subspan(here);
    if (remaining_.empty()) complete(sink);
  }
  std::ranges::copy(bytes, begun_.begin());  // less than one head
  begun_bytes_ = bytes.size();
  return true;
}

std::vector<TcpFlow::Cut>::iterator TcpFlow::cut_of(const FramePrefix& part) {
  return std::ranges::find_if(cut_, [&](const Cut& cut) { return cut.holds(part); });
}

void TcpFlow::complete(FrameSink& sink) {
  if (current_.kind != FramePrefix::kPart) return sink.arrived(current_);
  const auto cut = cut_of(current_);
  cut->arrived += current_.number;
  if (cut->arrived < cut->bytes) return;
  sink.arrived(cut->prefix);
  cut_.erase(cut);
}

void TcpFlow::became_ready(std::uint32_t events) {
  if (socket_.get() < 0) return;
  constexpr std::uint32_t kEnd = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
  if ((events & kEnd) != 0) hung_up_ = true;
  if ((events & (EPOLLIN | kEnd)) != 0) readable_ = true;
  if ((events & (EPOLLOUT | EPOLLERR)) != 0) writable_ = true;
}

void TcpFlow::shut() {
  forget_unsent();
  hang_up();
}

void TcpFlow::hang_up() {
  readable_ = writable_ = false;
  watched_.lose();
  socket_.close();
}

}  // namespace syntony
