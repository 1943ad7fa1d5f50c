// A small group, in which one system call of one rank fails:
//
//   faults RANKS HOSTS RANK OFFSET TURN ERRNO   the TURN-th call of site OFFSET on RANK fails (0: none does)
//
// HOSTS: one letter per rank, naming its host. Every rank is a process that forms the group, calls some collectives,
// checks their results, and ends. Prints a line for each: "RANK ok|error|wrong|died|hangs|left KIND GUILTY SENTENCE",
// then the sites of RANK: "site OFFSET CALL FUNCTION", and "fired" if the call was made.
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/group/communicator.hpp"
#include "core/progress/progress_engine.hpp"
#include "faults/system_calls.hpp"

namespace {

using namespace syntony;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTimeout{1500};  // of the group
constexpr std::chrono::milliseconds kLongest{6000};  // of a rank

struct Arguments {
  std::uint32_t ranks;
  std::string hosts;
  std::uint32_t rank;
  std::uint64_t offset, turn;
  int error;
};

/// Writes to a socket, completely or until it ends: length, then bytes.
void say(int fd, const std::string& text) {
  const auto length = static_cast<std::uint32_t>(text.size());
  std::string all(reinterpret_cast<const char*>(&length), sizeof(length));
  all += text;
  for (std::size_t done = 0; done < all.size();) {
    const ssize_t went = ::send(fd, all.data() + done, all.size() - done, MSG_NOSIGNAL);
    if (went <= 0) return;  // the reader notices its end
    done += static_cast<std::size_t>(went);
  }
}

bool hear(int fd, void* bytes, std::size_t count) {
  for (std::size_t done = 0; done < count;) {
    const ssize_t came = ::read(fd, static_cast<char*>(bytes) + done, count - done);
    if (came <= 0) return false;
    done += static_cast<std::size_t>(came);
  }
  return true;
}

bool hear(int fd, std::string& text) {
  std::uint32_t length = 0;
  if (!hear(fd, &length, sizeof(length))) return false;
  text.resize(length);
  return hear(fd, text.data(), length);
}

/// The ranks meet at the parent, which tells them all when one is gone.
class ParentBootstrap final : public Bootstrap {
 public:
  ParentBootstrap(int fd, std::uint32_t rank, std::uint32_t size) : fd_(fd), rank_(rank), size_(size) {}
  [[nodiscard]] std::uint32_t rank() const override { return rank_; }
  [[nodiscard]] std::uint32_t size() const override { return size_; }
  std::vector<std::string> all_gather(const std::string& /*name*/, const std::string& blob) override {
    say(fd_, blob);
    std::vector<std::string> blobs(size_);
    for (std::string& their : blobs) {
      if (!hear(fd_, their)) throw Error(Error::Kind::dead, "met at the parent in vain: a rank is gone");
    }
    return blobs;
  }

 private:
  int fd_;
  std::uint32_t rank_, size_;
};

std::size_t descriptors() {
  DIR* folder = ::opendir("/proc/self/fd");
  std::size_t count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

void check(bool right, const char* what) {
  if (!right) throw std::logic_error(what);
}

void all_reduce(Communicator& group, std::size_t count, const CallOptions& options = {}) {
  std::vector<std::int32_t> data(count, static_cast<std::int32_t>(group.rank()) + 1);
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  const auto work = group.run({.dtype = DType::int32, .blocks = {Block{bytes, bytes, count}}, .options = options});
  if (work) work->wait();
  const auto sum = static_cast<std::int32_t>(group.size() * (group.size() + 1) / 2);
  check(std::ranges::all_of(data, [&](std::int32_t value) { return value == sum; }), "an all_reduce gave a wrong sum");
}

void messages(Communicator& group) {
  std::vector<std::byte> data(100'000, std::byte(group.rank())), theirs(data.size());
  const std::uint32_t next = (group.rank() + 1) % group.size(), last = (group.rank() + group.size() - 1) % group.size();
  CallOptions async;
  async.async = true;
  const auto came = group.receive(theirs.data(), theirs.size(), static_cast<int>(last), 1, async);
  const auto went = group.send(data.data(), data.size(), next, 1, async);
  went->wait();
  came->wait();
  check(std::ranges::all_of(theirs, [&](std::byte value) { return value == std::byte(last); }), "a message is wrong");
}

/// Forms the group, runs the collectives, ends.
void live(const Arguments& arguments, std::uint32_t rank, int meeting) {
  ParentBootstrap bootstrap(meeting, rank, arguments.ranks);
  CommunicatorOptions options;
  options.timeout = kTimeout;
  const auto engine = std::make_shared<ProgressEngine>();
  Communicator group(engine, bootstrap, options);
  group.barrier();
  all_reduce(group, 10);
  all_reduce(group, 300'000);
  // On one host, read from the peers' own buffers.
  if (arguments.hosts.find_first_not_of(arguments.hosts.front()) == std::string::npos) all_reduce(group, 2'200'000);
  CallOptions other;
  other.algorithm = "ring";
  other.async = true;
  all_reduce(group, 100'000, other);
  messages(group);
  CommunicatorOptions as_here;
  as_here.timeout = std::chrono::milliseconds(0);
  const auto half = group.split(0, 0, as_here);
  all_reduce(*half, 1000);
  group.barrier();
}

std::string on_one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

[[noreturn]] void be_a_rank(const Arguments& arguments, std::uint32_t rank, int meeting, int outcome) {
  ::setenv("SYNTONY_HOST", arguments.hosts.substr(rank, 1).c_str(), 1);
  const std::size_t before = descriptors();
  const bool guilty = rank == arguments.rank;
  if (guilty) faults::arm(arguments.offset, arguments.turn, arguments.error);
  std::string text = "ok";
  try {
    live(arguments, rank, meeting);
  } catch (const Error& error) {
    std::string ranks;
    for (const int number : error.ranks()) ranks += (ranks.empty() ? "" : ",") + std::to_string(number);
    text = "error " + std::to_string(static_cast<int>(error.kind())) + " " + (ranks.empty() ? "-" : ranks) + " " +
           on_one_line(error.what());
  } catch (const std::logic_error& error) {
    text = std::string("wrong ") + error.what();
  } catch (const std::exception& error) {
    text = std::string("error - - ") + on_one_line(error.what());
  }
  faults::disarm();
  const std::size_t after = descriptors();
  if (after != before) text = "left " + std::to_string(after - before) + " descriptors; " + text;
  std::string all = std::to_string(rank) + " " + text + "\n";
  for (const faults::Site& site : guilty ? faults::sites() : std::vector<faults::Site>()) {
    all += "site " + std::to_string(site.offset) + " " + site.call + " " + site.function + "\n";
  }
  if (guilty && faults::failed()) all += "fired\n";
  say(outcome, all);
  std::_Exit(0);
}

struct Child {
  pid_t process;
  int meeting, outcome;
  std::string blob;
  bool came = false, over = false;
};

/// Serves one gathering after another until all ranks have reported how they ended, or are late.
void serve(std::vector<Child>& children, Clock::time_point end) {
  while (!std::ranges::all_of(children, &Child::over)) {
    std::vector<pollfd> entries;
    for (const Child& child : children) {
      entries.push_back({child.over || child.came ? -1 : child.meeting, POLLIN, 0});
      entries.push_back({child.over ? -1 : child.outcome, POLLIN, 0});
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0 || ::poll(entries.data(), entries.size(), static_cast<int>(left)) == 0) break;
    for (std::size_t rank = 0; rank < children.size(); ++rank) {
      Child& child = children[rank];
      if (entries[2 * rank + 1].revents != 0) {
        std::string text;
        std::fputs(hear(child.outcome, text) ? text.c_str() : (std::to_string(rank) + " died\n").c_str(), stdout);
        child.over = true;
        for (Child& other : children) ::shutdown(other.meeting, SHUT_RDWR);
      } else if (entries[2 * rank].revents != 0) {
        child.came = hear(child.meeting, child.blob);
      }
    }
    if (std::ranges::all_of(children, &Child::came)) {
      for (Child& child : children) {
        child.came = false;
        for (const Child& other : children) say(child.meeting, other.blob);
      }
    }
  }
  for (std::size_t rank = 0; rank < children.size(); ++rank) {
    if (!children[rank].over) std::printf("%zu hangs\n", rank);
    ::kill(children[rank].process, SIGKILL);
    ::waitpid(children[rank].process, nullptr, 0);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "faults RANKS HOSTS RANK OFFSET TURN ERRNO\n");
    return 2;
  }
  const Arguments arguments{static_cast<std::uint32_t>(std::atoi(argv[1])),
                            argv[2],
                            static_cast<std::uint32_t>(std::atoi(argv[3])),
                            std::strtoull(argv[4], nullptr, 10),
                            std::strtoull(argv[5], nullptr, 10),
                            std::atoi(argv[6])};
  std::vector<Child> children;
  for (std::uint32_t rank = 0; rank < arguments.ranks; ++rank) {
    int meeting[2], outcome[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, meeting) != 0 ||
        ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, outcome) != 0) {
      return 3;
    }
    const pid_t process = ::fork();
    if (process == 0) {
      for (const Child& child : children) {
        ::close(child.meeting);
        ::close(child.outcome);
      }
      ::close(meeting[0]);
      ::close(outcome[0]);
      be_a_rank(arguments, rank, meeting[1], outcome[1]);
    }
    ::close(meeting[1]);
    ::close(outcome[1]);
    children.push_back({process, meeting[0], outcome[0], {}});
  }
  serve(children, Clock::now() + kLongest);
  return 0;
}
