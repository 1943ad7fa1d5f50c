#include "emulation/aggregator/aggregation_client.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {
namespace {

using std::chrono::milliseconds;
using Kind = AggregationFrame::Kind;

constexpr milliseconds kHeartbeat{100};  // how often the caller is asked whether to go on
constexpr milliseconds kRedial{20};
constexpr milliseconds kGrace{1000};  // the aggregator knows who is late: it is given time to say so

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

// ---- one all_reduce -------------------------------------------------------------------------------------------------

/// What is on its way out and in.
class AggregationClient::Operation {
 public:
  Operation(AggregationClient& client, NumberFormat format, DType dtype, const std::byte* input, std::byte* output,
            std::size_t elements)
      : client_(client),
        plan_(format, elements, client.window_, client.slot_bytes_),
        chunks_(plan_.chunks()),
        ranks_(client.ranks_),
        verbatim_(verbatim(format, dtype)),
        input_(input),
        output_(output) {
    if (!verbatim_) {
      leaving_.resize(slot_capacity(client.slot_bytes_));
      arriving_.resize(leaving_.size());
    }
    if (plan_.scaled()) agreed_.resize(blocks_of(plan_.elements_per_chunk) * chunks_);
  }

  void run(milliseconds timeout, const Interrupt& interrupt) {
    const Clock::time_point deadline = Clock::now() + timeout + kGrace;
    AggregationFrame begin = head(Kind::begin, 0, sizeof(AggregationBegin));
    const AggregationBegin body{plan_.elements, static_cast<std::uint32_t>(plan_.format),
                                static_cast<std::uint32_t>(timeout.count())};
    client_.send_whole(&begin, sizeof(begin), deadline, interrupt);
    client_.send_whole(&body, sizeof(body), deadline, interrupt);
    if (plan_.scaled()) agree_ahead(deadline, interrupt);
    while (received_ < chunks_) {
      bool moved = false;
      while (can_send() && send_some()) moved = true;
      while (received_ < chunks_ && receive_some(deadline, interrupt)) moved = true;
      if (moved || received_ == chunks_) continue;
      client_.wait(static_cast<short>(can_send() ? POLLIN | POLLOUT : POLLIN), deadline, interrupt);
    }
  }

 private:
  [[nodiscard]] AggregationFrame head(Kind kind, std::size_t chunk, std::size_t length) const {
    AggregationFrame frame;
    frame.kind = kind;
    frame.token = client_.token_;
    frame.operation = client_.operation_;
    frame.chunk = static_cast<std::uint32_t>(chunk);
    frame.length = static_cast<std::uint32_t>(length);
    return frame;
  }

  [[nodiscard]] std::span<const float> floats(std::size_t chunk) const {
    return {reinterpret_cast<const float*>(input_) + plan_.begin(chunk), plan_.count(chunk)};
  }
  [[nodiscard]] std::uint8_t* exponents(std::size_t chunk) {
    return agreed_.data() + chunk * blocks_of(plan_.elements_per_chunk);
  }

  /// The exponents of the first window, agreed before its chunks can be scaled.
  void agree_ahead(Clock::time_point deadline, const Interrupt& interrupt) {
    std::vector<std::uint8_t> mine(plan_.exponents_ahead());
    const std::size_t ahead = std::min(plan_.window, chunks_);
    std::size_t at = 0;
    for (std::size_t chunk = 0; chunk < ahead; at += blocks_of(plan_.count(chunk++))) {
      block_exponents(floats(chunk), mine.data() + at);
    }
    AggregationFrame frame = head(Kind::exponents, 0, mine.size());
    const AggregationFrame expected = frame;
    client_.send_whole(&frame, sizeof(frame), deadline, interrupt);
    client_.send_whole(mine.data(), mine.size(), deadline, interrupt);
    client_.receive_whole(&frame, sizeof(frame), deadline, interrupt);
    client_.judge(frame, deadline, interrupt);
    expect(frame, expected);
    client_.receive_whole(mine.data(), mine.size(), deadline, interrupt);
    at = 0;
    for (std::size_t chunk = 0; chunk < ahead; ++chunk) {
      const std::size_t blocks = blocks_of(plan_.count(chunk));
      std::copy_n(mine.data() + at, blocks, exponents(chunk));
      at += blocks;
    }
  }

  static void expect(const AggregationFrame& frame, const AggregationFrame& expected) {
    if (std::memcmp(&frame, &expected, sizeof(frame)) != 0) {
      throw Error(Error::Kind::mismatch, "the aggregator answered with a frame that is not its turn");
    }
  }

  [[nodiscard]] bool can_send() const {
    return sent_of_frame_ > 0 || (next_ < chunks_ && next_ < received_ + plan_.window);
  }

  /// Sends part of the chunk that is its turn; false when the socket takes no more.
  bool send_some() {
    if (sent_of_frame_ == 0) {
      out_ = head(Kind::chunk, next_, plan_.length(next_));
      if (!verbatim_) {
        to_wire(plan_.format, leaving_.data(), floats(next_), plan_.scaled() ? exponents(next_) : nullptr, ranks_);
      }
      if (plan_.exponents_with(next_) > 0) {
        block_exponents(floats(next_ + plan_.window), leaving_.data_as_exponents(plan_.payload(next_)));
      }
    }
    const std::byte* const body = verbatim_ ? input_ + plan_.begin(next_) * wire_bytes(plan_.format) : leaving_.data();
    std::array<iovec, 2> pieces{};
    std::size_t count = 0;
    if (sent_of_frame_ < sizeof(out_)) {
      pieces[count++] = {reinterpret_cast<char*>(&out_) + sent_of_frame_, sizeof(out_) - sent_of_frame_};
    }
    const std::size_t gone = sent_of_frame_ > sizeof(out_) ? sent_of_frame_ - sizeof(out_) : 0;
    pieces[count++] = {const_cast<std::byte*>(body) + gone, out_.length - gone};
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t taken = sendmsg(client_.socket_.get(), &message, MSG_NOSIGNAL);
    if (taken < 0) {
      if (!would_block()) {  // what a broken connection means is told by reading from it: perhaps there are last words
        next_ = chunks_;
        sent_of_frame_ = 0;
      }
      return false;
    }
    sent_of_frame_ += static_cast<std::size_t>(taken);
    if (sent_of_frame_ == sizeof(out_) + out_.length) {
      sent_of_frame_ = 0;
      ++next_;
    }
    return true;
  }

  /// Receives part of the next sum; false when nothing is there.
  bool receive_some(Clock::time_point deadline, const Interrupt& interrupt) {
    auto* to = reinterpret_cast<std::byte*>(&in_);
    std::size_t from = 0;
    std::size_t until = sizeof(in_);
    if (have_ >= sizeof(in_)) {
      to = verbatim_ ? output_ + plan_.begin(received_) * wire_bytes(plan_.format) : arriving_.data();
      from = sizeof(in_);
      until = from + in_.length;
    }
    const ssize_t got = recv(client_.socket_.get(), to + (have_ - from), until - have_, 0);
    if (got == 0) client_.gone(0);
    if (got < 0) {
      if (!would_block()) client_.gone(errno);
      return false;
    }
    have_ += static_cast<std::size_t>(got);
    if (have_ < until) return true;
    if (from == 0) {
      client_.judge(in_, deadline, interrupt);
      expect(in_, head(Kind::chunk, received_, plan_.length(received_)));
      return true;
    }
    if (!verbatim_) {
      auto* const floats_out = reinterpret_cast<float*>(output_) + plan_.begin(received_);
      from_wire(plan_.format, {floats_out, plan_.count(received_)}, arriving_.data(),
                plan_.scaled() ? exponents(received_) : nullptr, ranks_);
      if (const std::size_t blocks = plan_.exponents_with(received_)) {
        std::copy_n(arriving_.data_as_exponents(plan_.payload(received_)), blocks, exponents(received_ + plan_.window));
      }
    }
    have_ = 0;
    ++received_;
    return true;
  }

  /// Aligned memory for a chunk that is converted.
  class Staging {
   public:
    void resize(std::size_t bytes) { words_.resize((bytes + sizeof(double) - 1) / sizeof(double)); }
    [[nodiscard]] std::size_t size() const { return words_.size() * sizeof(double); }
    [[nodiscard]] std::byte* data() { return reinterpret_cast<std::byte*>(words_.data()); }
    [[nodiscard]] std::uint8_t* data_as_exponents(std::size_t at) {
      return reinterpret_cast<std::uint8_t*>(words_.data()) + at;
    }

   private:
    std::vector<double> words_;
  };

  AggregationClient& client_;
  AggregationPlan plan_;
  std::size_t chunks_;
  std::size_t ranks_;
  bool verbatim_;
  const std::byte* input_;
  std::byte* output_;
  Staging leaving_, arriving_;
  std::vector<std::uint8_t> agreed_;  // exponents of every chunk, as they become known
  AggregationFrame out_, in_;
  std::size_t next_ = 0;           // chunk that is sent
  std::size_t sent_of_frame_ = 0;  // bytes of it that are out, head included
  std::size_t received_ = 0;       // sums that are complete
  std::size_t have_ = 0;           // bytes of the next one, head included
};

// ---- the connection -------------------------------------------------------------------------------------------------

AggregationClient::AggregationClient(TcpAddress address, const Token& token, std::uint32_t rank, std::uint32_t ranks,
                                     milliseconds timeout, const std::string& secret, const Interrupt& interrupt)
    : address_(address), token_(token[0]), ranks_(ranks) {
  const Clock::time_point deadline = Clock::now() + timeout + kGrace;
  connect(deadline - kGrace, interrupt);
  AggregationChallenge challenge;
  receive_whole(&challenge, sizeof(challenge), deadline, interrupt);
  if (challenge.magic != kAggregationMagic || challenge.version != kAggregationVersion) {
    throw Error(Error::Kind::mismatch,
                "what listens at " + address_.text() + " is no aggregator, or one of another version of Syntony");
  }
  AggregationHello hello;
  hello.token = token;
  hello.rank = rank;
  hello.ranks = ranks;
  hello.timeout_ms = static_cast<std::uint32_t>(timeout.count());
  hello.proof = proof_of(secret, challenge.nonce, hello);
  send_whole(&hello, sizeof(hello), deadline, interrupt);
  AggregationFrame frame;
  receive_whole(&frame, sizeof(frame), deadline, interrupt);
  judge(frame, deadline, interrupt);
  AggregationWelcome welcome;
  if (frame.kind != Kind::welcome || frame.length != sizeof(welcome)) {
    throw Error(Error::Kind::mismatch, "what listens at " + address_.text() + " is no aggregator");
  }
  receive_whole(&welcome, sizeof(welcome), deadline, interrupt);
  window_ = welcome.window;
  slot_bytes_ = welcome.slot_bytes;
  if (window_ < 1 || window_ > 65536 || slot_bytes_ < 64 || slot_bytes_ > (std::size_t{1} << 24U)) {
    throw Error(Error::Kind::mismatch, "the aggregator at " + address_.text() + " offers slots that cannot be");
  }
}

AggregationClient::~AggregationClient() { close(); }

void AggregationClient::close() {
  if (!socket_) return;
  if (!broken_) {
    AggregationFrame frame;
    frame.kind = Kind::leave;
    frame.token = token_;
    (void)send(socket_.get(), &frame, sizeof(frame), MSG_NOSIGNAL);  // the aggregator notices the end anyway
  }
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
    // It may not have started yet.
    if (Clock::now() + kRedial >= deadline)
      throw system_error("cannot reach an aggregator at " + address_.text(), error);
    poll(nullptr, 0, static_cast<int>(kRedial.count()));
  }
  tune_data_socket(socket_.get(), {});
}

short AggregationClient::wait(short events, Clock::time_point deadline, const Interrupt& interrupt) {
  while (true) {
    pollfd entry{socket_.get(), events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(kHeartbeat.count()));
    if (ready > 0) return entry.revents;
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
    if (taken < 0 && !would_block()) return;  // the last words, if any, are still to be read
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

void AggregationClient::judge(const AggregationFrame& frame, Clock::time_point deadline, const Interrupt& interrupt) {
  if (frame.magic != kAggregationMagic || frame.token != token_) {
    throw Error(Error::Kind::mismatch, "what listens at " + address_.text() + " is no aggregator of this job");
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
