#include "core/in_network/aggregation_client.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/in_network/aggregation_way.hpp"
#include "core/in_network/packets_in_flight.hpp"
#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Kind = AggregationFrame::Kind;

constexpr milliseconds kHeartbeat{20};  // interval of asking the caller whether to go on
constexpr milliseconds kRedial{20};
constexpr milliseconds kGrace{1000};          // time for the aggregator, which knows who is late, to say so
constexpr microseconds kShortestPause{5000};  // before the oldest in flight are asked for,
constexpr microseconds kLongestPause{500'000};
constexpr unsigned kRoundTrips = 4;  // and at least this many round trips
constexpr std::size_t kProbes = 2;   // packets that are asked for first if nothing has come for a while

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

// ---- one all_reduce -------------------------------------------------------------------------------------------------

/// What is being sent and received. A packet is a chunk, or the exponents ahead of all chunks.
class AggregationClient::Operation {
 public:
  Operation(AggregationClient& client, NumberFormat format, DType dtype, const std::byte* input, std::byte* output,
            std::size_t elements)
      : client_(client),
        plan_(format, elements, client.window_, client.slot_bytes_),
        chunks_(plan_.chunks()),
        verbatim_(verbatim(format, dtype)),
        input_(input),
        output_(output),
        first_(client.sequence_ + (plan_.scaled() ? 1 : 0)),
        flying_(std::min(plan_.window, chunks_)) {
    if (!verbatim_) {
      stride_ = (slot_capacity(client.slot_bytes_) + 63) / 64 * 64;
      leaving_.resize(flying_.slots() * stride_ / sizeof(double));
      arriving_.resize(stride_ / sizeof(double));
    }
    if (plan_.scaled()) agreed_.resize(blocks_of(plan_.elements_per_chunk) * chunks_);
  }

  void run(milliseconds timeout, const Interrupt& interrupt) {
    deadline_ = Clock::now() + timeout;
    if (plan_.scaled()) agree_ahead(interrupt);
    go_on();
    while (received_ < chunks_) {
      await(interrupt);
      while (client_.datagrams_->receive([this](const AggregationPacket& head, const std::byte* payload) {
        take(head, payload);
      }) == Datagrams::kAtOnce) {
        go_on();
      }
      go_on();
    }
    client_.sequence_ = first_ + chunks_;
  }

 private:
  using As = PacketsInFlight::As;

  [[nodiscard]] AggregationPacket head(std::uint64_t sequence, std::size_t count, std::size_t length) const {
    AggregationPacket packet;
    packet.format = static_cast<std::uint8_t>(plan_.format);
    packet.token = client_.token_[1];
    packet.sequence = sequence;
    packet.elements = plan_.elements;
    packet.operation = client_.operation_;
    packet.from = client_.rank_;
    packet.count = static_cast<std::uint32_t>(count);
    packet.length = static_cast<std::uint32_t>(length);
    return packet;
  }

  [[nodiscard]] std::span<const float> floats(std::size_t chunk) const {
    return {reinterpret_cast<const float*>(input_) + plan_.begin(chunk), plan_.count(chunk)};
  }
  [[nodiscard]] std::uint8_t* exponents(std::size_t chunk) {
    return agreed_.data() + chunk * blocks_of(plan_.elements_per_chunk);
  }
  [[nodiscard]] std::byte* wire(std::size_t chunk) {
    return reinterpret_cast<std::byte*>(leaving_.data()) + flying_.slot_of(chunk) * stride_;
  }

  // ---- out ----

  /// Sends what the window allows: first questions about lost packets, then new ones, in order, as on all ranks. So the
  /// oldest missing sum is one that all ranks have sent or are about to send, and no two ranks wait for each other.
  void go_on() {
    while (flying_.under_way() < client_.congestion_.packets()) {
      if (const auto lost = flying_.first_lost()) {
        send(*lost, As::question);
      } else if (next_ < chunks_ && flying_.has_room(next_)) {
        fill(next_);
        send(next_++, As::first);
      } else {
        break;
      }
    }
    flush();
  }

  void fill(std::size_t chunk) {
    if (verbatim_) return;
    std::byte* const to = wire(chunk);
    to_wire(plan_.format, to, floats(chunk), plan_.scaled() ? exponents(chunk) : nullptr, client_.ranks_);
    if (plan_.exponents_with(chunk) > 0) {
      block_exponents(floats(chunk + plan_.window), reinterpret_cast<std::uint8_t*>(to + plan_.payload(chunk)));
    }
  }

  void send(std::size_t chunk, As as) {
    flying_.sent(chunk, now_, as);
    if (as == As::question) {
      AggregationPacket question = head(first_ + chunk, 0, 0);
      question.kind = AggregationPacket::Kind::question;
      ++client_.asked_;
      out_.push_back({question, nullptr, &client_.address_});
      return;
    }
    AggregationPacket packet = head(first_ + chunk, plan_.count(chunk), plan_.length(chunk));
    if (as == As::again) {
      packet.flags = AggregationPacket::kAgain;
      ++client_.resent_;
    }
    out_.push_back(
        {packet, verbatim_ ? input_ + plan_.begin(chunk) * wire_bytes(plan_.format) : wire(chunk), &client_.address_});
  }

  void flush() {
    client_.datagrams_->send(out_);
    out_.clear();
  }

  // ---- in ----

  /// Waits for packets, the end, or something to send again.
  void await(const Interrupt& interrupt) {
    std::array<pollfd, 2> entries{{{client_.datagrams_->get(), POLLIN, 0}, {client_.socket_.get(), POLLIN, 0}}};
    const auto pause = std::min<microseconds>(pause_, kHeartbeat);
    const timespec limit{0, std::chrono::duration_cast<std::chrono::nanoseconds>(pause).count()};
    const int ready = ppoll(entries.data(), entries.size(), &limit, nullptr);
    now_ = Clock::now();
    if (entries[1].revents != 0) client_.listen(interrupt);
    if (ready > 0 && entries[0].revents != 0 && now_ - asked_ < kHeartbeat) return;
    asked_ = now_;
    interrupt();
    if (now_ >= deadline_) say_late(interrupt);
    if (now_ - heard_ < pause_ || now_ - flying_.oldest() < pause_) return;
    // Is everything lost, or is a rank late? The answers for the oldest packets tell.
    probing_ = true;
    std::size_t probes = 0;
    for (std::size_t chunk = next_ - std::min(next_, flying_.slots()); chunk < next_ && probes < kProbes; ++chunk) {
      if (flying_.find(chunk) == nullptr) continue;
      send(chunk, As::question);
      ++probes;
    }
    pause_ = std::min(2 * pause_, kLongestPause);
    flush();
  }

  void take(const AggregationPacket& found, const std::byte* payload) {
    if (found.token != client_.token_[1] || found.sequence < first_) return;
    const std::size_t chunk = found.sequence - first_;
    const PacketsInFlight::Packet* const packet = chunk < chunks_ ? flying_.find(chunk) : nullptr;
    if (packet == nullptr) return;
    const As as = packet->as;
    if (found.kind == AggregationPacket::Kind::held) probing_ = false;  // others are late, which is not congestion
    if (found.kind == AggregationPacket::Kind::wanted && as == As::question) send(chunk, As::again);
    const AggregationPacket expected = head(found.sequence, plan_.count(chunk), plan_.length(chunk));
    if (found.kind != AggregationPacket::Kind::sum || !expected.fits(found)) return;
    heard_ = now_;
    measure(*packet, found);
    flying_.came(chunk);
    place(chunk, payload);
    ++received_;
    if (probing_ && as != As::first) {
      client_.congestion_.collapsed();
      flying_.lose_all();
    }
    probing_ = false;
  }

  void measure(const PacketsInFlight::Packet& packet, const AggregationPacket& found) {
    const bool again = packet.as != As::first;
    std::optional<Clock::duration> round_trip;
    if (!again && !found.has(AggregationPacket::kUnmeasured)) {
      round_trip = std::max<Clock::duration>(now_ - packet.sent - microseconds(found.waited), Clock::duration(0));
      const auto now = std::chrono::duration_cast<microseconds>(*round_trip);
      mean_ = mean_.count() == 0 ? now : (7 * mean_ + now) / 8;
      pause_ = std::clamp<microseconds>(kRoundTrips * mean_, kShortestPause, kLongestPause);
    }
    if (!again && found.has(AggregationPacket::kPassedOn)) ++client_.passed_on_;
    client_.congestion_.came(now_, round_trip, again || found.has(AggregationPacket::kMarked));
  }

  void place(std::size_t chunk, const std::byte* payload) {
    if (verbatim_) {
      std::memcpy(output_ + plan_.begin(chunk) * wire_bytes(plan_.format), payload, plan_.payload(chunk));
      return;
    }
    std::memcpy(arriving_.data(), payload, plan_.length(chunk));
    const auto* const bytes = reinterpret_cast<const std::byte*>(arriving_.data());
    from_wire(plan_.format, {reinterpret_cast<float*>(output_) + plan_.begin(chunk), plan_.count(chunk)}, bytes,
              plan_.scaled() ? exponents(chunk) : nullptr, client_.ranks_);
    if (const std::size_t blocks = plan_.exponents_with(chunk)) {
      std::copy_n(reinterpret_cast<const std::uint8_t*>(bytes + plan_.payload(chunk)), blocks,
                  exponents(chunk + plan_.window));
    }
  }

  // ---- exponents ----

  /// Agrees on the exponents of the first window, before its chunks can be scaled.
  void agree_ahead(const Interrupt& interrupt) {
    std::vector<std::uint8_t> mine(plan_.exponents_ahead());
    const std::size_t ahead = std::min(plan_.window, chunks_);
    std::size_t at = 0;
    for (std::size_t chunk = 0; chunk < ahead; at += blocks_of(plan_.count(chunk++))) {
      block_exponents(floats(chunk), mine.data() + at);
    }
    const AggregationPacket packet = head(first_ - 1, 0, mine.size());
    Datagrams::Message message{packet, reinterpret_cast<const std::byte*>(mine.data()), &client_.address_};
    std::vector<std::uint8_t> all;
    microseconds pause = kShortestPause;
    Clock::time_point sent = Clock::now();
    client_.datagrams_->send({&message, 1});
    while (all.empty()) {
      std::array<pollfd, 2> entries{{{client_.datagrams_->get(), POLLIN, 0}, {client_.socket_.get(), POLLIN, 0}}};
      poll(entries.data(), entries.size(), static_cast<int>(std::max<std::int64_t>(1, pause.count() / 4000)));
      now_ = Clock::now();
      if (entries[1].revents != 0) client_.listen(interrupt);
      client_.datagrams_->receive([&](const AggregationPacket& found, const std::byte* payload) {
        if (found.kind != AggregationPacket::Kind::sum || found.token != packet.token || !packet.fits(found)) return;
        const auto* const bytes = reinterpret_cast<const std::uint8_t*>(payload);
        all.assign(bytes, bytes + found.length);
      });
      if (!all.empty()) break;
      interrupt();
      if (now_ >= deadline_) say_late(interrupt);
      if (now_ - sent < pause) continue;
      sent = now_;
      pause = std::min(2 * pause, kLongestPause);
      ++client_.resent_;
      message.head.flags = AggregationPacket::kAgain;
      client_.datagrams_->send({&message, 1});
    }
    at = 0;
    for (std::size_t chunk = 0; chunk < ahead; ++chunk) {
      const std::size_t blocks = blocks_of(plan_.count(chunk));
      std::copy_n(all.data() + at, blocks, exponents(chunk));
      at += blocks;
    }
  }

  // ---- late ----

  /// Asks the aggregator who is late, and throws its answer.
  [[noreturn]] void say_late(const Interrupt& interrupt) {
    std::uint64_t missing = first_ > client_.sequence_ && next_ == 0 ? first_ - 1 : ~0ULL;
    for (std::size_t chunk = next_; chunk-- > next_ - std::min(next_, flying_.slots());) {
      if (flying_.find(chunk) != nullptr) missing = std::min(missing, first_ + chunk);
    }
    client_.tell(Kind::late, &missing, sizeof(missing));
    const Clock::time_point last = Clock::now() + kGrace;
    while (true) {
      client_.wait(POLLIN, last, interrupt);
      client_.listen(interrupt);
    }
  }

  AggregationClient& client_;
  AggregationPlan plan_;
  std::size_t chunks_;
  bool verbatim_;
  const std::byte* input_;
  std::byte* output_;
  std::uint64_t first_;  // sequence number of chunk 0
  std::size_t stride_ = 0;
  std::vector<double> leaving_;  // by slot: aligned memory for converted chunks
  std::vector<double> arriving_;
  std::vector<std::uint8_t> agreed_;  // exponents of every chunk, as they become known
  PacketsInFlight flying_;
  std::vector<Datagrams::Message> out_;
  std::size_t next_ = 0;  // next chunk to send
  std::size_t received_ = 0;
  bool probing_ = false;
  Clock::time_point now_ = Clock::now();
  Clock::time_point heard_ = now_;
  Clock::time_point asked_ = now_;  // when the caller was last asked whether to go on
  Clock::time_point deadline_;
  microseconds mean_{0};  // of the round trip
  microseconds pause_ = 10 * kShortestPause;
};

// ---- the connection -------------------------------------------------------------------------------------------------

AggregationClient::AggregationClient(const AggregationWays& ways, const Token& token, std::uint32_t rank,
                                     milliseconds timeout, const Interrupt& interrupt)
    : token_(token), rank_(rank), ranks_(static_cast<std::uint32_t>(ways.by_rank.size())) {
  join(ways, token, timeout, interrupt);
}

AggregationClient::~AggregationClient() { close(); }

void AggregationClient::join(const AggregationWays& ways, const Token& token, milliseconds timeout,
                             const Interrupt& interrupt) {
  const AggregationWay way(ways.by_rank, rank_);
  address_ = way.address;
  const Clock::time_point deadline = Clock::now() + timeout + kGrace;
  connect(deadline - kGrace, interrupt);
  AggregationChallenge challenge;
  receive_whole(&challenge, sizeof(challenge), deadline, interrupt);
  if (challenge.magic != kAggregationMagic || challenge.version != kAggregationVersion) {
    throw Error(Error::Kind::mismatch,
                "what listens at " + address_.text() + " is not an aggregator, or one of another version of Syntony");
  }
  datagrams_ = std::make_unique<Datagrams>(TcpAddress::local(socket_.get()), 0, kLongestDatagram);
  AggregationHello hello;
  hello.token = token;
  hello.rank = rank_;
  hello.ranks = ranks_;
  hello.under = way.under;
  hello.timeout_ms = static_cast<std::uint32_t>(timeout.count());
  hello.port = datagrams_->port();
  hello.above_length = static_cast<std::uint32_t>(way.above.size());
  hello.proof = proof_of(ways.secret, challenge.nonce, hello, way.above);
  send_whole(&hello, sizeof(hello), deadline, interrupt);
  send_whole(way.above.data(), way.above.size(), deadline, interrupt);
  AggregationFrame frame;
  receive_whole(&frame, sizeof(frame), deadline, interrupt);
  judge(frame, deadline, interrupt);
  AggregationWelcome welcome;
  if (frame.kind != Kind::welcome || frame.length != sizeof(welcome)) {
    throw Error(Error::Kind::mismatch, "what listens at " + address_.text() + " is not an aggregator");
  }
  receive_whole(&welcome, sizeof(welcome), deadline, interrupt);
  window_ = welcome.window;
  congestion_ = CongestionWindow(window_);
  slot_bytes_ = welcome.slot_bytes;
  if (window_ < 1 || window_ > 65536 || slot_bytes_ < 64 || slot_capacity(slot_bytes_) > kLongestDatagram) {
    throw Error(Error::Kind::mismatch, "the aggregator at " + address_.text() + " offers slots that cannot be");
  }
}

void AggregationClient::tell(Kind kind, const void* body, std::size_t length) {
  AggregationFrame frame;
  frame.kind = kind;
  frame.token = token_[0];
  frame.length = static_cast<std::uint32_t>(length);
  std::string said(reinterpret_cast<const char*>(&frame), sizeof(frame));
  if (length > 0) said.append(static_cast<const char*>(body), length);
  (void)send(socket_.get(), said.data(), said.size(), MSG_NOSIGNAL);  // a lost connection is noticed by reading
}

void AggregationClient::close() {
  if (!socket_) return;
  if (!broken_) tell(Kind::leave, nullptr, 0);
  socket_.reset();
  if (!broken_) broken_ = Error(Error::Kind::aborted, "this worker has left its job at the aggregator");
}

void AggregationClient::all_reduce(NumberFormat format, DType dtype, const std::byte* input, std::byte* output,
                                   std::size_t elements, milliseconds timeout, const Interrupt& interrupt) {
  if (!carries(format, dtype)) {
    throw Error(Error::Kind::invalid,
                std::string(name_of(format)) + " does not carry elements of " + std::string(name_of(dtype)));
  }
  if (broken_) throw Error(*broken_);
  if (elements == 0) return;
  ++operation_;
  try {
    Operation(*this, format, dtype, input, output, elements).run(timeout, interrupt);
  } catch (const Error& error) {
    give_up(error);
  } catch (...) {
    broken_ = Error(Error::Kind::aborted, "an all_reduce was interrupted, and with it the job at the aggregator ended");
    socket_.reset();
    throw;
  }
}

void AggregationClient::give_up(const Error& error) {
  broken_ = error;
  socket_.reset();
  throw Error(error);
}

void AggregationClient::gone(int error_number) const {
  throw Error(Error::Kind::dead, "the aggregator at " + address_.text() + " is gone" +
                                     (error_number != 0 ? " (" + sentence_of(error_number) + ")" : ""));
}

void AggregationClient::connect(Clock::time_point deadline, const Interrupt& interrupt) {
  while (true) {
    interrupt();
    socket_ = open_tcp_socket(address_.family());
    int error = ::connect(socket_.get(), address_.get(), address_.length()) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      wait(POLLOUT, deadline, interrupt);
      socklen_t length = sizeof(error);
      if (getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    }
    if (error == 0) break;
    // The aggregator may not have started yet.
    if (Clock::now() + kRedial >= deadline)
      throw system_error("cannot reach an aggregator at " + address_.text(), error);
    poll(nullptr, 0, static_cast<int>(kRedial.count()));
  }
  tune_data_socket(socket_.get(), {});
}

void AggregationClient::wait(short events, Clock::time_point deadline, const Interrupt& interrupt) {
  while (true) {
    pollfd entry{socket_.get(), events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(kHeartbeat.count()));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) throw system_error("cannot wait for the aggregator", errno);
    interrupt();
    if (Clock::now() >= deadline) {
      throw Error(Error::Kind::timeout, "the aggregator at " + address_.text() + " did not answer in time");
    }
  }
}
void AggregationClient::send_whole(const void* bytes, std::size_t length, Clock::time_point deadline,
                                   const Interrupt& interrupt) {
  const auto* at = static_cast<const char*>(bytes);
  while (length > 0) {
    const ssize_t taken = send(socket_.get(), at, length, MSG_NOSIGNAL);
    if (taken < 0 && !would_block()) return;  // its last messages, if any, have yet to be read
    if (taken < 0) {
      wait(POLLOUT, deadline, interrupt);
      continue;
    }
    at += taken;
    length -= static_cast<std::size_t>(taken);
  }
}

void AggregationClient::receive_whole(void* bytes, std::size_t length, Clock::time_point deadline,
                                      const Interrupt& interrupt) {
  auto* at = static_cast<char*>(bytes);
  while (length > 0) {
    const ssize_t got = recv(socket_.get(), at, length, 0);
    if (got == 0) gone(0);
    if (got < 0 && !would_block()) gone(errno);
    if (got < 0) {
      wait(POLLIN, deadline, interrupt);
      continue;
    }
    at += got;
    length -= static_cast<std::size_t>(got);
  }
}

void AggregationClient::listen(const Interrupt& interrupt) {
  const Clock::time_point deadline = Clock::now() + kGrace;
  AggregationFrame frame;
  receive_whole(&frame, sizeof(frame), deadline, interrupt);
  judge(frame, deadline, interrupt);
  throw Error(Error::Kind::mismatch, "the aggregator at " + address_.text() + " sent a frame that is not its turn");
}

void AggregationClient::judge(const AggregationFrame& frame, Clock::time_point deadline, const Interrupt& interrupt) {
  if (frame.magic != kAggregationMagic || frame.token != token_[0]) {
    throw Error(Error::Kind::mismatch, "what listens at " + address_.text() + " is not an aggregator of this job");
  }
  if (frame.kind != Kind::failure) return;
  AggregationFailure failure;
  if (frame.length < sizeof(failure) || frame.length > sizeof(failure) + kLongestSentence) {
    throw Error(Error::Kind::mismatch, "the aggregator at " + address_.text() + " sent a malformed failure");
  }
  std::string sentence(frame.length - sizeof(failure), ' ');
  receive_whole(&failure, sizeof(failure), deadline, interrupt);
  receive_whole(sentence.data(), sentence.size(), deadline, interrupt);
  std::vector<int> ranks;
  if (failure.rank < ranks_) ranks.push_back(static_cast<int>(failure.rank));
  const auto kind =
      static_cast<Error::Kind>(std::min<std::uint32_t>(failure.kind, static_cast<std::uint32_t>(Error::Kind::system)));
  throw Error(kind, sentence, ranks);
}

}  // namespace syntony
