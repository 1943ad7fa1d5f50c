// The handshake: who is admitted, who is not, and the messages shown.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <latch>
#include <random>
#include <thread>

#include "ranks.hpp"

namespace tests {
namespace {

using namespace syntony;

/// Every flow and the control socket lead to the rank they claim: each end sends its rank and index.
void require_connected(Rank& rank, std::vector<TcpPeer>& peers, std::uint32_t flows) {
  const auto exchange = [&](const TcpStream& socket, std::uint32_t peer, std::uint32_t index) {
    const std::array<std::uint32_t, 2> mine{rank.rank, index};
    write_bytes(socket.get(), bytes_of(mine));
    std::array<std::uint32_t, 2> theirs{};
    require(readable(socket.get(), kPatience), "the peer says who it is");
    require(recv(socket.get(), &theirs, sizeof(theirs), MSG_WAITALL) == sizeof(theirs), "whole");
    require(theirs[0] == peer && theirs[1] == index, "the socket leads to the wrong place");
  };
  require(peers.size() == rank.others().size(), "all peers");
  for (std::size_t i = 0; i < peers.size(); ++i) {
    require(peers[i].rank == rank.others()[i], "in the order of `remote`");
    require(TcpAddress::parse(peers[i].endpoint).has_value(), "an endpoint for messages");
    require(peers[i].flows.size() == flows, "all flows");
    for (std::uint32_t flow = 0; flow < flows; ++flow) exchange(peers[i].flows[flow], peers[i].rank, flow);
    exchange(peers[i].control, peers[i].rank, 99);
  }
}

void mesh(std::uint64_t) {
  for (const auto& [ranks, flows] : {std::pair{1U, 2U}, {2U, 1U}, {3U, 2U}, {5U, 3U}}) {
    run_ranks(ranks, [flows = flows](Rank& rank) {
      const TcpOptions options{.flows = flows};
      std::vector<TcpPeer> peers = rank.connect(options);
      require_connected(rank, peers, flows);
      rank.meet();
    });
  }
}

/// Some pairs share memory: only the remote ones are connected.
void mesh_of_some(std::uint64_t) {
  run_ranks(4, [](Rank& rank) {
    TcpListener listener = rank.publish();
    const std::vector<std::uint32_t> remote{rank.rank < 2 ? 3U : 1U, rank.rank < 2 ? 2U : 0U};
    const auto peers = rank.connect(std::move(listener), remote);
    require(peers.size() == 2 && peers[0].rank == remote[1] && peers[1].rank == remote[0], "the two remote ranks");
    require(peers[0].control && peers[1].control, "connected");
    rank.meet();
  });
}

Hello hello_of(const Rank& rank, std::uint32_t from, std::uint16_t flow, std::uint32_t flows) {
  return proven(Hello{.flow = flow, .nonce = {from, flow}, .group = 7, .from = from, .to = 0, .flows = flows},
                rank.gathering.token);
}

template <typename Message>
Message heard(const UniqueFd& socket) {
  Message message;
  require(readable(socket.get(), kPatience), "an answer");
  require(recv(socket.get(), &message, sizeof(message), MSG_WAITALL) == sizeof(message), "a whole one");
  return message;
}

/// The answer to an Ack for this Hello, by a rank that knows the token.
void answer(const UniqueFd& socket, const Rank& rank, const Hello& hello) {
  write_bytes(socket.get(), bytes_of(answer_to(heard<Ack>(socket), hello, rank.gathering.token)));
}

/// A rank's side of one connection made by another rank.
void welcome(const UniqueFd& socket, const Rank& rank) {
  const Hello hello = heard<Hello>(socket);
  const Ack ack =
      proven(Ack{.flow = hello.flow, .nonce = {4, 2}, .from = 0, .flows = 1}, rank.gathering.token, hello.nonce);
  write_bytes(socket.get(), bytes_of(ack));
  require(heard<Answer>(socket) == answer_to(ack, hello, rank.gathering.token), "the right answer");
  write_bytes(socket.get(), bytes_of(Welcome{}));
}

void strangers(std::uint64_t seed) {
  std::vector<UniqueFd> lingering;  // kept open until the ranks are done
  run_ranks(3, [&lingering, seed](Rank& rank) {
    TcpListener listener = rank.publish();
    const TcpAddress address = listener.endpoints().addresses.back();
    if (rank.rank == 0) {
      std::mt19937_64 random(seed);
      const Hello right = hello_of(rank, 1, 0, 2);
      std::vector<Hello> wrong(9, right);
      wrong[2].group = 8;
      wrong[3].to = 1;
      wrong[4].from = 0;                    // ourselves
      wrong[5].from = 7;                    // nobody
      wrong[6].version = kWireVersion + 1;  // another release
      wrong[7].flow = 2;                    // one more than there are
      for (Hello& hello : wrong) hello = proven(hello, rank.gathering.token);
      wrong[0].proof[0] ^= 1;
      wrong[1].proof[1] ^= 1;
      wrong[8].flow = 1;  // another's proof
      for (const Hello& hello : wrong) write_bytes(lingering.emplace_back(knock(address)).get(), bytes_of(hello));
      for (int i = 0; i < 20; ++i) {  // garbage of any length
        std::vector<std::byte> garbage(1 + random() % 30'000);
        for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
        lingering.push_back(knock(address));
        write_bytes(lingering.back().get(), garbage);
      }
      for (std::size_t bytes : {0UL, 1UL, 4UL, 20UL, sizeof(Hello) - 1}) {  // silent, slow, half a Hello
        write_bytes(lingering.emplace_back(knock(address)).get(), bytes_of(right).first(bytes));
        UniqueFd hasty = knock(address);
        write_bytes(hasty.get(), bytes_of(right).first(bytes));
        if (bytes % 2 == 0) reset_when_closed(hasty.get());
      }
    }
    rank.meet();
    std::vector<TcpPeer> peers = rank.connect(std::move(listener));
    require_connected(rank, peers, 2);
    const UniqueFd late(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    require(connect(late.get(), address.get(), address.length()) != 0, "nobody listens any more");
    rank.meet();
  });
}

/// A stranger that replays everything rank 1 said is rejected, both while rank 1 is connected and afterwards.
void replayed(std::uint64_t) {
  std::latch over(1);
  run_ranks(3, [&over](Rank& rank) {
    TcpListener listener = rank.publish();
    if (rank.rank == 2) over.wait();  // rank 0 waits until then
    if (rank.rank == 1) {
      const TcpAddress door = TcpEndpoints::parse(rank.gathering.published[0]).addresses.back();
      const Hello hello = hello_of(rank, 1, 0, 2);
      UniqueFd first = knock(door);
      write_bytes(first.get(), bytes_of(hello));
      const Answer recorded = answer_to(heard<Ack>(first), hello, rank.gathering.token);
      write_bytes(first.get(), bytes_of(recorded));
      require(heard<Welcome>(first).magic == kWelcomeMagic, "let in");
      const auto replay = [&] {
        const UniqueFd again = knock(door);
        write_bytes(again.get(), bytes_of(hello));
        (void)heard<Ack>(again);
        write_bytes(again.get(), bytes_of(recorded));
        char word = 0;
        require(readable(again.get(), kPatience) && recv(again.get(), &word, 1, 0) <= 0, "sent away without a word");
      };
      replay();
      first.reset();
      replay();
      over.count_down();
    }
    TcpMeeting meeting(std::move(listener), kTwoFlows, rank.identity(), rank.gathering.published, rank.others(),
                       kPatience);
    const std::vector<TcpPeer> peers = meeting.connect_control(rank.others());
    require(peers.size() == 2 && peers[0].control && peers[1].control, "connected");
    rank.meet();
  });
}

/// More silent strangers than are kept waiting.
void crowd(std::uint64_t) {
  std::vector<UniqueFd> crowd;
  run_ranks(2, [&crowd](Rank& rank) {
    TcpListener listener = rank.publish();
    if (rank.rank == 0) {
      for (int i = 0; i < 400; ++i) crowd.push_back(knock(listener.endpoints().addresses.back()));
    }
    rank.meet();
    std::vector<TcpPeer> peers = rank.connect(std::move(listener));
    require_connected(rank, peers, 2);
    rank.meet();
  });
}

/// Strangers keep connecting while the ranks meet, all silent: none takes a rank's place.
void flood(std::uint64_t) {
  std::atomic<bool> over = false;
  run_ranks(3, [&over](Rank& rank) {
    TcpListener listener = rank.publish();
    const TcpAddress address = listener.endpoints().addresses.back();
    std::jthread strangers;
    if (rank.rank == 0) {
      strangers = std::jthread([&over, address] {
        std::vector<UniqueFd> kept(300);
        for (std::size_t i = 0; !over; ++i) {
          UniqueFd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
          if (connect(socket.get(), address.get(), address.length()) != 0) break;  // they have met
          kept[i % kept.size()] = std::move(socket);
        }
      });
    }
    std::vector<TcpPeer> peers = rank.connect(std::move(listener));
    over = true;
    require_connected(rank, peers, 2);
    rank.meet();
  });
}

/// Strangers that send a Hello byte by byte, or stop in the middle, are rejected, though a rank is still awaited.
void slow_strangers(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    TcpListener listener = rank.publish();
    if (rank.rank == 0) {
      std::vector<TcpPeer> peers = rank.connect(std::move(listener));
      require_connected(rank, peers, 2);
    } else {
      const TcpAddress address = TcpEndpoints::parse(rank.gathering.published[0]).addresses.back();
      Hello wrong = hello_of(rank, 1, 0, 2);
      wrong.proof[1] ^= 1;
      const UniqueFd silent = knock(address);
      const UniqueFd half = knock(address);
      const UniqueFd dribbling = knock(address);
      write_bytes(half.get(), bytes_of(wrong).first(20));
      std::size_t said = 0;
      eventually(
          [&] {
            if (said + 1 < sizeof(wrong)) write_bytes(dribbling.get(), bytes_of(wrong).subspan(said++, 1));
            return readable(silent.get(), milliseconds(200)) && readable(half.get(), milliseconds(0)) &&
                   readable(dribbling.get(), milliseconds(0));
          },
          "all three are sent away");
      std::vector<TcpPeer> peers = rank.connect(std::move(listener));
      require_connected(rank, peers, 2);
    }
    rank.meet();
  });
}

/// Strangers use up all descriptors: they lose theirs, and the rank is admitted.
void no_descriptors(std::uint64_t) {
  std::array<UniqueFd, 2> friends;
  run_ranks(2, [&friends](Rank& rank) {
    const std::array<Hello, 2> hellos{hello_of(rank, 1, 0, 1), hello_of(rank, 1, kControlFlow, 1)};
    if (rank.rank == 0) rank.gathering.published = {"", "machine=elsewhere"};
    rank.meet();
    if (rank.rank == 1) {
      rank.meet();
      for (std::size_t i = 0; i < 2; ++i) answer(friends[i], rank, hellos[i]);
      rank.meet();
      return;
    }
    TcpListener listener({});
    const TcpAddress address = listener.endpoints().addresses.back();
    std::vector<UniqueFd> strangers;
    for (int i = 0; i < 60; ++i) strangers.push_back(knock(address));
    for (std::size_t i = 0; i < 2; ++i) {
      friends[i] = knock(address);
      write_bytes(friends[i].get(), bytes_of(hellos[i]));
    }
    rlimit limit{};
    require(getrlimit(RLIMIT_NOFILE, &limit) == 0, "the limit");
    const rlimit before = limit;
    limit.rlim_cur = static_cast<rlim_t>(friends[1].get()) + 21;
    require(setrlimit(RLIMIT_NOFILE, &limit) == 0, "20 more descriptors");
    rank.meet();
    const std::array<std::uint32_t, 1> remote{1};
    const auto peers = rank.connect(std::move(listener), remote, {.flows = 1});
    require(peers[0].control && peers[0].flows[0], "connected");
    require(setrlimit(RLIMIT_NOFILE, &before) == 0, "as before");
    rank.meet();
  });
}

/// Two processes were given the same rank, and both know the token.
void doubled(std::uint64_t) {
  run_ranks(3, [](Rank& rank) {
    TcpListener listener = rank.publish();
    if (rank.rank == 2) return rank.meet();  // it does not come, so rank 0 waits
    if (rank.rank == 1) {
      const TcpAddress address = TcpEndpoints::parse(rank.gathering.published[0]).addresses.back();
      const UniqueFd one = knock(address);
      const UniqueFd other = knock(address);
      for (const UniqueFd* socket : {&one, &other}) {
        write_bytes(socket->get(), bytes_of(hello_of(rank, 1, kControlFlow, 2)));
        answer(*socket, rank, hello_of(rank, 1, kControlFlow, 2));
      }
      rank.meet();
      return;
    }
    const Error error = error_of([&] { (void)rank.connect(std::move(listener)); });
    require(error.kind() == Error::Kind::mismatch && error.ranks() == std::vector<int>{1}, error.what());
    require_in("two processes claim to be rank 1 of this group: one connected from 127.0.0.1:", error.what());
    rank.meet();
  });
}

/// A rank that is rejected among strangers dials again: here, rank 0 hangs up four times.
void dialled_again(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    TcpListener listener = rank.publish();
    if (rank.rank == 1) {
      const std::vector<TcpPeer> peers = rank.connect(std::move(listener), {.flows = 1});
      require(peers[0].control && peers[0].flows[0], "connected");
      rank.meet();
      return;
    }
    const int listening = listener.sockets().back().get();
    std::vector<UniqueFd> kept;
    for (int turn = 0; kept.size() < 2; ++turn) {
      require(readable(listening, kPatience), "it dials again");
      UniqueFd guest(accept(listening, nullptr, nullptr));
      if (turn < 4) continue;
      welcome(guest, rank);
      kept.push_back(std::move(guest));
    }
    rank.meet();
  });
}

/// An impostor listening in a rank's place is not told the token, and is not accepted without it.
void impostor(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    std::optional<TcpListener> listener = rank.publish();
    rank.meet();
    if (rank.rank == 1) {
      std::string told;
      try {
        const std::vector<TcpPeer> peers = rank.connect(*std::move(listener), {.flows = 1});
      } catch (const Error& error) {
        told = error.what();
      }
      require_in("answered, but not as a rank of this group", told);
    } else {
      const int listening = listener->sockets().back().get();
      require(readable(listening, kPatience), "it dials");
      const UniqueFd guest(accept(listening, nullptr, nullptr));
      const Hello hello = heard<Hello>(guest);
      const std::string_view said(reinterpret_cast<const char*>(&hello), sizeof(hello));
      for (const std::uint64_t half : rank.gathering.token) {
        const std::string_view secret(reinterpret_cast<const char*>(&half), sizeof(half));
        require(said.find(secret) == std::string_view::npos, "the token is not told");
      }
      write_bytes(guest.get(), bytes_of(Ack{.flow = hello.flow, .from = 0, .flows = 1}));
      listener.reset();
    }
    rank.meet();
  });
}

/// A port on loopback where nobody listens.
TcpAddress closed_port() {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const TcpAddress any = *TcpAddress::parse("127.0.0.1:0");
  require(bind(socket.get(), any.get(), any.length()) == 0, "bind");
  return TcpAddress::local(socket.get());
}

void refused(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    TcpListener listener = rank.publish();
    rank.meet();
    if (rank.rank == 0) return;
    TcpEndpoints endpoints = listener.endpoints();
    endpoints.addresses = {closed_port()};
    rank.gathering.published[0] = endpoints.text();
    const Clock::time_point start = Clock::now();
    const Error error = error_of([&] { (void)rank.connect(std::move(listener)); });
    require(error.kind() == Error::Kind::system && error.ranks() == std::vector<int>{0}, "names rank 0");
    require_in("rank 0 at " + endpoints.addresses[0].text() + " refused the connection (Connection refused)",
               error.what());
    require(Clock::now() - start < seconds(10), "at once, not at the deadline");
  });
}

void no_address(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    TcpListener listener = rank.publish();
    rank.meet();
    if (rank.rank == 0) return;
    rank.gathering.published[0] = "machine=elsewhere 127.0.0.1:4242";
    require_in("rank 0 published no address that another machine can reach",
               error_of([&] { (void)rank.connect(std::move(listener)); }).what());
    rank.gathering.published[0] = "machine=elsewhere rhubarb";
    const Error error = error_of([&] { (void)rank.connect(TcpListener({})); });
    require_in("rank 0 published no usable address: 'rhubarb'", error.what());
    require(error.ranks() == std::vector<int>{0}, "names rank 0");
  });
}

/// The right address comes after a closed port, one that hangs up, one that sends garbage, and one that never answers.
void several_addresses(std::uint64_t) {
  const auto listen_here = [](int backlog) {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const TcpAddress any = *TcpAddress::parse("127.0.0.1:0");
    require(bind(socket.get(), any.get(), any.length()) == 0 && listen(socket.get(), backlog) == 0, "listen");
    return socket;
  };
  const UniqueFd rude = listen_here(16);
  const UniqueFd babbling = listen_here(16);
  const UniqueFd deaf = listen_here(0);
  std::atomic<bool> over = false;
  std::jthread strangers([&] {
    std::vector<UniqueFd> kept;
    while (!over) {
      if (readable(rude.get(), milliseconds(5))) UniqueFd(accept(rude.get(), nullptr, nullptr)).reset();
      if (!readable(babbling.get(), milliseconds(5))) continue;
      kept.emplace_back(accept(babbling.get(), nullptr, nullptr));
      const std::array<std::uint64_t, 16> noise{1, 2, 3};
      write_bytes(kept.back().get(), bytes_of(noise));
    }
  });
  // A full queue of a listener that never accepts leaves further connections unanswered.
  std::vector<UniqueFd> queue;
  for (int i = 0; i < 4; ++i) {
    queue.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const TcpAddress address = TcpAddress::local(deaf.get());
    (void)connect(queue.back().get(), address.get(), address.length());
  }
  run_ranks(2, [&](Rank& rank) {
    TcpListener listener = rank.publish();
    rank.meet();
    if (rank.rank == 0) {
      TcpEndpoints endpoints = listener.endpoints();
      const TcpAddress right = endpoints.addresses.back();
      endpoints.addresses = {closed_port(), TcpAddress::local(rude.get()), TcpAddress::local(babbling.get()),
                             TcpAddress::local(deaf.get()), right};
      rank.gathering.published[0] = endpoints.text();
    }
    rank.meet();
    std::vector<TcpPeer> peers = rank.connect(std::move(listener), {.flows = 1});
    require_connected(rank, peers, 1);
    rank.meet();
  });
  over = true;
}

/// Rank 3 of 4 never arrives: the others say so, whichever of them gives up first.
void missing(std::uint64_t) {
  run_ranks(4, [](Rank& rank) {
    TcpListener listener = rank.publish();
    if (rank.rank < 3) {
      const Error error = error_of([&] { (void)rank.connect(std::move(listener), {}, milliseconds(300)); });
      require(error.kind() == Error::Kind::timeout || error.kind() == Error::Kind::dead ||
                  error.kind() == Error::Kind::system,
              "late, or told by another's end");
      require(std::ranges::find(error.ranks(), 3) != error.ranks().end() || error.kind() == Error::Kind::system,
              error.what());
      if (error.kind() == Error::Kind::timeout) {
        require_in("no connection within 300 ms", error.what());
        require_in("ms with rank 3", error.what());
      }
    }
    rank.meet();
  });
}

/// Rank 2 never arrives and rank 1 gives up: rank 0 does not wait for its own, much later, deadline.
void given_up(std::uint64_t) {
  run_ranks(3, [](Rank& rank) {
    TcpListener listener = rank.publish();
    if (rank.rank == 0) {
      const Error error = error_of([&] { (void)rank.connect(std::move(listener), {}, seconds(600)); });
      require(error.kind() == Error::Kind::dead && error.ranks() == std::vector<int>{1, 2}, error.what());
      require_in("rank 1 at 127.0.0.1:", error.what());
      require_in("still missing: rank 2", error.what());
    } else if (rank.rank == 1) {
      const Error error = error_of([&] { (void)rank.connect(std::move(listener), {}, seconds(1)); });
      require(error.kind() == Error::Kind::timeout && error.ranks() == std::vector<int>{2}, error.what());
    }
    rank.meet();
  });
}

/// Rank 1 is connected with all, done, and gone with a goodbye before rank 2 gets to rank 0: that is no failure.
void early_leaver(std::uint64_t) {
  run_ranks(3, [](Rank& rank) {
    TcpListener listener = rank.publish();
    const auto connect_with = [&](TcpListener own, std::vector<std::uint32_t> remote) {
      return rank.connect(std::move(own), remote);
    };
    std::vector<TcpPeer> peers;
    if (rank.rank == 2) {
      peers = connect_with(std::move(listener), {1});
      rank.meet();
      peers = connect_with(TcpListener({}), {0});
    } else {
      std::jthread goodbye;
      if (rank.rank == 0) goodbye = std::jthread([&rank] { rank.meet(); });
      peers = connect_with(std::move(listener), rank.others());
      if (rank.rank == 1) {
        TcpControl(rank.identity(), peers).leave();
        peers.clear();
        rank.meet();
      }
    }
    rank.meet();
  });
}

int option(const TcpStream& socket, int level, int name) {
  int value = 0;
  socklen_t length = sizeof(value);
  require(getsockopt(socket.get(), level, name, &value, &length) == 0, "the option can be read");
  return value;
}

/// The socket options that detect a vanished host without mistaking a slow peer for one.
void tuned(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect({.flows = 1, .send_buffer = 50'000, .receive_buffer = 60'000});
    const TcpStream& data = peers[0].flows[0];
    const TcpStream& control = peers[0].control;
    for (const TcpStream* socket : {&data, &control}) {
      require(option(*socket, IPPROTO_TCP, TCP_NODELAY) == 1, "no delay");
      require(option(*socket, SOL_SOCKET, SO_KEEPALIVE) == 1 && option(*socket, IPPROTO_TCP, TCP_KEEPIDLE) == 5 &&
                  option(*socket, IPPROTO_TCP, TCP_KEEPCNT) == 5 && option(*socket, IPPROTO_TCP, TCP_KEEPINTVL) == 1,
              "watched while idle");
      require((fcntl(socket->get(), F_GETFL) & O_NONBLOCK) != 0, "never blocks");
      require((fcntl(socket->get(), F_GETFD) & FD_CLOEXEC) != 0, "closed on exec");
    }
    require(option(control, IPPROTO_TCP, TCP_USER_TIMEOUT) == 10'000, "control messages arrive or fail");
    require(option(data, IPPROTO_TCP, TCP_USER_TIMEOUT) == 0, "data may wait for a busy peer");
    require(option(data, SOL_SOCKET, SO_SNDBUF) == 100'000 && option(data, SOL_SOCKET, SO_RCVBUF) == 120'000,
            "as asked (the kernel doubles)");
    rank.meet();
  });
  run_ranks(2, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect({.flows = 1, .keepalive = 1000});
    for (const TcpStream* socket : {&peers[0].flows[0], &peers[0].control}) {
      require(option(*socket, IPPROTO_TCP, TCP_KEEPIDLE) +
                      option(*socket, IPPROTO_TCP, TCP_KEEPCNT) * option(*socket, IPPROTO_TCP, TCP_KEEPINTVL) ==
                  1004,
              "as patient as asked, to the interval between two probes");
    }
    require(option(peers[0].control, IPPROTO_TCP, TCP_USER_TIMEOUT) == 1'000'000, "so for control messages");
    rank.meet();
  });
}

void flows_differ(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    const TcpOptions options{.flows = 2 + rank.rank};
    TcpListener listener = rank.publish(options);
    const Error error = error_of([&] { (void)rank.connect(std::move(listener), options); });
    require(error.kind() == Error::Kind::mismatch, error.what());
    require(error.ranks() == std::vector<int>{1 - static_cast<int>(rank.rank)}, "names the other");
    require_in("SYNTONY_TCP_FLOWS must be equal", error.what());
    rank.meet();
  });
}

constexpr std::array kMeshTests{Test{"mesh", mesh},
                                Test{"mesh_of_some", mesh_of_some},
                                Test{"strangers", strangers},
                                Test{"replayed", replayed},
                                Test{"crowd", crowd},
                                Test{"flood", flood},
                                Test{"slow_strangers", slow_strangers},
                                Test{"impostor", impostor},
                                Test{"no_descriptors", no_descriptors},
                                Test{"doubled", doubled},
                                Test{"dialled_again", dialled_again},
                                Test{"refused", refused},
                                Test{"no_address", no_address},
                                Test{"missing", missing},
                                Test{"given_up", given_up},
                                Test{"several_addresses", several_addresses},
                                Test{"flows_differ", flows_differ},
                                Test{"early_leaver", early_leaver},
                                Test{"tuned", tuned}};

}  // namespace

std::span<const Test> mesh_tests() { return kMeshTests; }

}  // namespace tests
