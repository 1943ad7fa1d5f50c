// The control plane: status on request, aborts, goodbyes and deaths, seen by all.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "core/recorder/recorder.hpp"
#include "core/tcp/tcp_message.hpp"
#include "ranks.hpp"

namespace tests {
namespace {

using namespace syntony;
using State = PeerStatus::State;

/// Every rank is at another operation, and learns of the others by asking.
void status(std::uint64_t) {
  run_ranks(4, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect();
    TcpControl control(rank.identity(), peers);
    require(std::ranges::equal(control.peers(), rank.others()), "all others");
    const auto last = [](std::uint32_t r) { return 5ULL + 20 * r; };
    for (std::uint64_t sequence = 1; sequence <= last(rank.rank); ++sequence) {
      control.announce(operation(sequence, rank.rank));
      if (sequence > 1) control.complete(Priority::normal, sequence - 1);
    }
    for (const std::uint32_t peer : control.peers()) {
      require(control.status(peer).state == State::alive && !control.status(peer).known, "nothing heard yet");
      require(!control.announced(peer, Priority::normal, 1).has_value(), "nothing heard yet");
    }
    for (std::uint64_t sequence = 1; sequence <= 20; ++sequence) {
      Descriptor urgent = operation(sequence, rank.rank);
      urgent.priority = Priority::high;
      urgent.ordinal = 100 + sequence;
      control.announce(urgent);
    }
    rank.meet();
    control.inquire();
    control.inquire();  // no second inquiry before the answer
    eventually(
        [&] {
          control.progress();
          return std::ranges::all_of(control.peers(), [&](std::uint32_t peer) { return control.status(peer).known; });
        },
        "everybody answers");
    for (const std::uint32_t peer : control.peers()) {
      const PeerStatus status = control.status(peer);
      require(status.state == State::alive && status.completed[index_of(Priority::normal)] == last(peer) - 1,
              "completed");
      const Descriptor& started = status.started[index_of(Priority::normal)];
      require(started.sequence == last(peer) && started.root == peer && started.dtype == DType::bfloat16 &&
                  started.fingerprint == last(peer) * 31,
              "the last operation it entered");
      const std::uint64_t oldest = last(peer) - std::min<std::uint64_t>(last(peer), TcpControl::kRemembered) + 1;
      const auto heard = [&](Priority priority, std::uint64_t sequence) {
        return control.announced(peer, priority, sequence).has_value();
      };
      require(control.announced(peer, Priority::normal, oldest)->root == peer, "the last 16 are remembered");
      require(!heard(Priority::normal, oldest - 1) && !heard(Priority::normal, last(peer) + 1), "no others are");
      require(heard(Priority::high, 5) && !heard(Priority::high, 4) && !heard(Priority::low, 5),
              "each class by itself");
      require(control.announced(peer, 120)->sequence == 20 && !control.announced(peer, 104).has_value(), "by ordinal");
      require(status.started[index_of(Priority::high)].sequence == 20, "the last of another class");
    }
    require_in("rank 9 is not reached", error_of([&] { (void)control.status(9); }).what());
    // A rank that answered others only through its descriptor would be woken by it: all must answer before they go.
    const Clock::time_point end = Clock::now() + milliseconds(50);
    while (Clock::now() < end) control.progress();
    rank.meet();
  });
}

/// An idle rank, asleep on its descriptor, answers inquiries.
void idle(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect();
    TcpControl control(rank.identity(), peers);
    require(control.descriptors().size() == 1, "one descriptor");
    const int descriptor = control.descriptors()[0];
    require(!readable(descriptor, milliseconds(0)), "quiet");
    rank.meet();
    if (rank.rank == 0) control.inquire();
    require(readable(descriptor, kPatience), "woken by the question, or by its answer");
    eventually([&] { return control.progress(), control.status(1 - rank.rank).known; }, "who asks tells, too");
    require(!readable(descriptor, milliseconds(0)), "quiet again");
    rank.meet();
  });
}

void abort(std::uint64_t) {
  run_ranks(4, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect();
    TcpControl control(rank.identity(), peers);
    require(!control.aborted().has_value(), "not yet");
    const Abort reason{Error::Kind::timeout, {1, 3}, "rank 1 and rank 3 did not enter all_reduce #17"};
    if (rank.rank == 2) control.abort(reason);
    eventually([&] { return control.progress(), control.aborted().has_value(); }, "everybody hears of it");
    rank.meet();
    control.abort({Error::Kind::dead, {0}, "a later reason"});  // the first wins, and is not repeated
    rank.meet();
    control.progress();
    require(control.aborted()->kind == reason.kind && control.aborted()->ranks == reason.ranks &&
                control.aborted()->sentence == reason.sentence,
            "word for word");
    rank.meet();
  });
}

/// Rank 1 says goodbye, rank 2 dies, rank 3's host crashes; rank 0 and rank 4 tell them apart.
void ends(std::uint64_t) {
  run_ranks(5, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect();
    rank.meet();  // nobody ends before all are connected
    if (rank.rank == 3) {
      for (TcpPeer& peer : peers) {
        reset_when_closed(peer.control.get());
        peer.control.close();
      }
      rank.meet();
      rank.meet();
      return;
    }
    {
      TcpControl control(rank.identity(), peers);
      if (rank.rank == 1) control.leave();
      if (rank.rank == 0 || rank.rank == 4) {
        const auto state = [&](std::uint32_t peer) { return control.status(peer).state; };
        eventually(
            [&] {
              control.progress();
              return state(1) != State::alive && state(2) != State::alive && state(3) != State::alive;
            },
            "all ends are noticed");
        require(state(1) == State::left && state(2) == State::dead && state(3) == State::dead, "each as it was");
        require(state(4 - rank.rank) == State::alive, "the other survivor lives");
        require(control.end_of(1) == "left the group" && control.end_of(4 - rank.rank).empty(), "how they ended");
        require_in("closed its connection without a goodbye", control.end_of(2));
        require_in("Connection reset by peer", control.end_of(3));
        require(!readable(control.descriptors()[0], milliseconds(0)), "an end is told once");
        rank.meet();
        control.inquire();  // asks only live ranks
        control.leave();
      }
    }
    if (rank.rank == 1 || rank.rank == 2) rank.meet();
    rank.meet();
  });
}

/// A goodbye counts even if the leaver never read what was sent to it.
void hasty_goodbye(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect();
    auto control = std::make_unique<TcpControl>(rank.identity(), peers);
    if (rank.rank == 0) {
      control->inquire();
      rank.meet();
      rank.meet();
      eventually([&] { return control->progress(), control->status(1).state != State::alive; }, "it ends");
      require(control->status(1).state == State::left, "it left");
    } else {
      rank.meet();
      control->leave();
      control.reset();
      rank.meet();
    }
  });
}

/// A peer that does not answer is asked once, not every time.
void asked_once(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect();
    if (rank.rank == 0) {
      TcpControl control(rank.identity(), peers);
      for (int i = 0; i < 5; ++i) control.inquire();
      rank.meet();
      rank.meet();
    } else {
      rank.meet();
      struct {
        ControlPrefix inquire;
        std::array<std::uint64_t, 4> question;
        ControlPrefix status;
        std::array<std::uint64_t, 4> own;
        std::array<std::byte, 96> more;
      } said;
      const TcpStream& socket = peers[0].control;
      constexpr std::size_t kOnce = sizeof(said) - sizeof(said.more);
      std::size_t heard = 0;
      const auto hear = [&] {
        const ssize_t n = recv(socket.get(), reinterpret_cast<std::byte*>(&said) + heard, kOnce - heard, MSG_DONTWAIT);
        if (n > 0) heard += static_cast<std::size_t>(n);
        return heard == kOnce;
      };
      eventually(hear, "it comes");
      require(recv(socket.get(), &said.more, sizeof(said.more), MSG_DONTWAIT) < 0, "once");
      require(said.inquire.kind == ControlPrefix::Kind::inquire && said.status.kind == ControlPrefix::Kind::status,
              "a question, and what the one who asks does itself");
      rank.meet();
    }
  });
}

void unbelievable(std::uint64_t) {
  using Kind = ControlPrefix::Kind;
  const auto spoilt = [](const Rank& rank, std::size_t which) {
    struct Message {
      ControlPrefix prefix;
      std::array<std::uint64_t, 4> question{};
    } message{
        .prefix = {.kind = Kind::inquire, .token = rank.identity().frame_token(), .length = 32, .rank = rank.rank}};
    ControlPrefix& prefix = message.prefix;
    if (which == 0) prefix.magic ^= 1;
    if (which == 1) prefix.token ^= 1;
    if (which == 2) prefix.length = kLargestBody + 1;
    if (which == 3) prefix.kind = static_cast<Kind>(9);
    if (which == 4) prefix.kind = Kind::abort;
    if (which == 5) prefix.kind = Kind::leave;
    if (which >= 4) prefix.length = 0;  // without a body
    if (which == 7) prefix.rank = 1;    // of another rank, which is a neighbour itself
    if (which == 8) prefix.rank = 3;
    return message;
  };
  for (std::size_t which = 0; which < 9; ++which) {
    run_ranks(3, [&spoilt, which](Rank& rank) {
      std::vector<TcpPeer> peers = rank.connect();
      if (rank.rank == 2) write_bytes(peers[0].control.get(), bytes_of(spoilt(rank, which)));
      TcpControl control(rank.identity(), peers);
      if (rank.rank == 0) {
        eventually([&] { return control.progress(), control.status(2).state == State::dead; }, "given up");
        require_in("cannot be believed", control.end_of(2));
        require(control.status(1).state == State::alive && !control.aborted(), "the others are not disturbed");
      }
      rank.meet();
    });
  }
}

/// Encoded messages decode to the same; anything else is rejected without harm.
void messages(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    ControlStatus status{.version = random(), .completed = {random(), random(), random()}, .started = {}};
    for (std::uint64_t i = random() % 17; i > 0; --i) {
      status.started.push_back(operation(random(), static_cast<std::uint32_t>(random())));
    }
    const std::vector<std::byte> bytes = encode(status);
    const auto back = decode_status(bytes);
    require(back && back->version == status.version && back->completed == status.completed &&
                back->started.size() == status.started.size(),
            "status");
    require(std::ranges::equal(back->started, status.started, {}, &Descriptor::sequence, &Descriptor::sequence), "all");
    require(!decode_status(std::span(bytes).first(bytes.size() - 1)).has_value(), "cut short");

    Abort abort{static_cast<Error::Kind>(random() % 6), {}, std::string(random() % 200, 'x')};
    abort.ranks.resize(random() % 10, static_cast<int>(random() % 1000));
    const auto again = decode_abort(encode(abort));
    require(again && again->kind == abort.kind && again->ranks == abort.ranks && again->sentence == abort.sentence,
            "abort");

    std::vector<std::byte> garbage(random() % 100);
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
    (void)decode_abort(garbage);
    if (const auto nonsense = decode_status(garbage)) {
      require(std::ranges::all_of(nonsense->started,
                                  [](const Descriptor& one) { return one.collective <= Collective::scatter; }),
              "names stay within their tables");
    }
  }
  Descriptor odd = operation(1, 0);
  odd.dtype = static_cast<DType>(200);
  require(!decode_status(encode(ControlStatus{1, {}, {odd}})).has_value(), "no such dtype");
  odd = operation(1, 0);
  odd.priority = static_cast<Priority>(3);
  require(!decode_status(encode(ControlStatus{1, {}, {odd}})).has_value(), "no such class");
  const Abort large{Error::Kind::dead, std::vector<int>(100'000, 3), std::string(1'000'000, 'x')};
  require(encode(large).size() <= kLargestBody, "fits a message");
  require(decode_abort(encode(large))->ranks.size() == 4096, "the first ranks are kept");
}

/// A peer that keeps asking without reading answers is disconnected before its answers fill the memory, and one that
/// keeps sending leaves the owner of progress time for others.
void flood_of_questions(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect();
    if (rank.rank == 1) {
      struct {
        ControlPrefix prefix;
        std::array<std::uint64_t, 4> body{};
      } const question{
          .prefix = {
              .kind = ControlPrefix::Kind::inquire, .token = rank.identity().frame_token(), .length = 32, .rank = 1}};
      std::vector<std::byte> questions;
      for (int i = 0; i < 1000; ++i) {
        questions.insert(questions.end(), bytes_of(question).begin(), bytes_of(question).end());
      }
      std::atomic<bool> over = false;
      const std::jthread asking([&] {
        while (!over) write_bytes(peers[0].control.get(), questions);
      });
      rank.meet();
      over = true;
      return;
    }
    TcpControl control(rank.identity(), peers);
    for (std::uint64_t sequence = 1; sequence <= 16; ++sequence) control.announce(operation(sequence, 0));
    eventually([&] { return control.progress(), control.status(1).state == State::dead; }, "disconnected");
    require_in("asks again and again and reads no answer", control.end_of(1));
    rank.meet();
  });
}

/// Whatever bytes a reason consists of, what is shown of it is valid text.
void legible_reasons(std::uint64_t) {
  const std::array<std::pair<std::string_view, std::string_view>, 6> cases{
      {{"rank 3 \xc3\xa9tait en retard\n", "rank 3 \xc3\xa9tait en retard\n"},
       {"\x1b[2J\x7f\x01", "?[2J??"},
       {"cut \xf0\x9f\x92", "cut ???"},
       {"\xc0\xaf\xed\xa0\x80\xf5", "??????"},
       {"\xff\xfe", "??"},
       {"", ""}}};
  for (const auto& [told, shown] : cases) {
    const auto abort = decode_abort(encode(Abort{Error::Kind::aborted, {1}, std::string(told)}));
    require(abort && abort->sentence == shown, "shown as '" + (abort ? abort->sentence : std::string()) + "'");
  }
}

/// Rank 0 has another clock and answers as the wire has it, rank 1 compares its own with that, rank 2 only reaches rank
/// 1. Rank 1 leaves the answer to rank 2's question for when it knows.
void clocks(std::uint64_t) {
  constexpr std::int64_t kAhead = 3'600'000'000'000, kNear = 1'000'000'000;
  run_ranks(3, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect();
    rank.meet();
    if (rank.rank != 1) std::erase_if(peers, [](const TcpPeer& peer) { return peer.rank != 1; });
    if (rank.rank == 0) {
      const TcpStream& socket = peers[0].control;
      for (int turn = 0; turn < 8; ++turn) {
        struct {
          ControlPrefix prefix;
          std::int64_t asked;
        } question;
        const auto asked = [&] {
          return recv(socket.get(), &question, sizeof(question), MSG_DONTWAIT) == sizeof(question);
        };
        eventually(asked, "a question");
        require(question.prefix.kind == ControlPrefix::Kind::ask_time, "for the time");
        struct {
          ControlPrefix prefix;
          std::array<std::int64_t, 3> body;
        } const answer{{.kind = ControlPrefix::Kind::time,
                        .token = rank.identity().frame_token(),
                        .length = 3 * sizeof(std::int64_t),
                        .rank = 0},
                       {question.asked, nanoseconds_now() + kAhead, 0}};
        write_bytes(socket.get(), bytes_of(answer));
      }
      rank.gathering.settle([] {});
    } else {
      const std::vector<std::uint32_t> others = rank.others();
      TcpControl control(rank.identity(), peers, nullptr, others);
      const auto offset = control.clock_offset();
      require(*offset == 0, "nothing is known yet");
      control.compare_clocks();
      const auto near = [&] { return std::abs(*offset - kAhead) < kNear; };
      eventually([&] { return control.progress(), near(); }, "an offset that is right");
      rank.gathering.settle([&] { control.progress(); });
      require(near(), "it stays so");
    }
  });
}

constexpr std::array kControlTests{Test{"status", status},
                                   Test{"idle", idle},
                                   Test{"abort", abort},
                                   Test{"ends", ends},
                                   Test{"hasty_goodbye", hasty_goodbye},
                                   Test{"asked_once", asked_once},
                                   Test{"unbelievable", unbelievable},
                                   Test{"messages", messages},
                                   Test{"flood_of_questions", flood_of_questions},
                                   Test{"clocks", clocks},
                                   Test{"legible_reasons", legible_reasons}};

}  // namespace

std::span<const Test> control_tests() { return kControlTests; }

}  // namespace tests
