#include "faults/system_calls.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace syntony::faults {
namespace {

struct Seen {
  std::atomic<std::uint64_t> offset{0};
  const char* call = nullptr;
};
std::array<Seen, 512> seen;
std::atomic<bool> armed{false}, fired{false};
std::atomic<std::uint64_t> turns{0};
std::uint64_t wanted_offset = 0, wanted_turn = 0;
int wanted_error = 0;

/// 0 if the caller is not in the library.
std::uint64_t offset_of(const void* caller) {
  Dl_info info;
  if (dladdr(caller, &info) == 0 || std::strstr(info.dli_fname, "libsyntony.so") == nullptr) return 0;
  return static_cast<std::uint64_t>(static_cast<const char*>(caller) - static_cast<const char*>(info.dli_fbase));
}

void note(std::uint64_t offset, const char* call) {
  for (Seen& place : seen) {
    std::uint64_t free = 0;
    if (place.offset.compare_exchange_strong(free, offset)) {
      place.call = call;
      return;
    }
    if (free == offset) return;
  }
}

/// The error to fail with, or 0.
int error_for(const char* call, const void* caller) {
  if (!armed.load(std::memory_order_acquire)) return 0;
  const std::uint64_t offset = offset_of(caller);
  if (offset == 0) return 0;
  note(offset, call);
  if (offset != wanted_offset || turns.fetch_add(1) + 1 != wanted_turn) return 0;
  fired = true;
  return wanted_error;
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

void arm(std::uint64_t offset, std::uint64_t turn, int error) {
  wanted_offset = offset;
  wanted_turn = turn;
  wanted_error = error;
  armed.store(true, std::memory_order_release);
}
void disarm() { armed.store(false, std::memory_order_release); }
bool failed() { return fired; }

std::vector<Site> sites() {
  std::vector<Site> all;
  const void* base = nullptr;
  if (void* library = dlopen("libsyntony.so", RTLD_NOLOAD | RTLD_LAZY); library != nullptr) {
    Dl_info info;
    if (dladdr(dlsym(library, "_ZNK7syntony7Program8validateEv"), &info) != 0) base = info.dli_fbase;
    dlclose(library);
  }
  for (const Seen& place : seen) {
    if (place.offset == 0) break;
    Dl_info info{};
    const char* address = static_cast<const char*>(base) + place.offset;
    std::string function = "?";
    if (base != nullptr && dladdr(address, &info) != 0 && info.dli_sname != nullptr) {
      int status = 0;
      char* plain = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
      function = plain != nullptr ? plain : info.dli_sname;
      std::free(plain);
      function = function.substr(0, function.find('('));
    }
    all.push_back({place.offset, place.call, function});
  }
  return all;
}

}  // namespace syntony::faults

// ---- The calls: those that libsyntony.so takes from the C library ---------------------------------------------------
#define FAILS(call, result)                                                                          \
  if (const int error = syntony::faults::error_for(call, __builtin_return_address(0)); error != 0) { \
    errno = error;                                                                                   \
    return result;                                                                                   \
  }
// RESULT NAME(PARAMETERS), called with ARGUMENTS; -1 means that it failed.
#define CALL(RESULT, NAME, PARAMETERS, ARGUMENTS)                        \
  RESULT NAME PARAMETERS {                                               \
    FAILS(#NAME, -1)                                                     \
    using Function = RESULT(*) PARAMETERS;                               \
    static const Function real = syntony::faults::next<Function>(#NAME); \
    return real ARGUMENTS;                                               \
  }

extern "C" {
CALL(int, accept4, (int fd, sockaddr* address, socklen_t* length, int flags), (fd, address, length, flags))
CALL(int, bind, (int fd, const sockaddr* address, socklen_t length), (fd, address, length))
CALL(int, connect, (int fd, const sockaddr* address, socklen_t length), (fd, address, length))
CALL(int, dup, (int fd), (fd))
CALL(int, epoll_create1, (int flags), (flags))
CALL(int, epoll_ctl, (int epoll, int what, int fd, epoll_event* event), (epoll, what, fd, event))
CALL(int, epoll_wait, (int epoll, epoll_event* events, int most, int timeout), (epoll, events, most, timeout))
CALL(int, eventfd, (unsigned start, int flags), (start, flags))
CALL(int, ftruncate, (int fd, off_t length), (fd, length))
CALL(int, gethostname, (char* name, size_t length), (name, length))
CALL(int, getifaddrs, (ifaddrs * *all), (all))
CALL(int, getpeername, (int fd, sockaddr* address, socklen_t* length), (fd, address, length))
CALL(ssize_t, getrandom, (void* bytes, size_t count, unsigned flags), (bytes, count, flags))
CALL(int, getsockname, (int fd, sockaddr* address, socklen_t* length), (fd, address, length))
CALL(int, getsockopt, (int fd, int level, int name, void* value, socklen_t* length), (fd, level, name, value, length))
CALL(int, listen, (int fd, int backlog), (fd, backlog))
CALL(int, memfd_create, (const char* name, unsigned flags), (name, flags))
CALL(int, poll, (pollfd * entries, nfds_t count, int timeout), (entries, count, timeout))
CALL(ssize_t, process_vm_readv,
     (pid_t process, const iovec* local, unsigned long locals, const iovec* remote, unsigned long remotes,
      unsigned long flags),
     (process, local, locals, remote, remotes, flags))
CALL(ssize_t, read, (int fd, void* bytes, size_t count), (fd, bytes, count))
CALL(ssize_t, readv, (int fd, const iovec* parts, int count), (fd, parts, count))
CALL(ssize_t, recv, (int fd, void* bytes, size_t count, int flags), (fd, bytes, count, flags))
CALL(ssize_t, recvmsg, (int fd, msghdr* message, int flags), (fd, message, flags))
CALL(ssize_t, send, (int fd, const void* bytes, size_t count, int flags), (fd, bytes, count, flags))
CALL(ssize_t, sendmsg, (int fd, const msghdr* message, int flags), (fd, message, flags))
CALL(int, setsockopt, (int fd, int level, int name, const void* value, socklen_t length),
     (fd, level, name, value, length))
CALL(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
CALL(ssize_t, write, (int fd, const void* bytes, size_t count), (fd, bytes, count))

void* mmap(void* where, size_t length, int protection, int flags, int fd, off_t offset) {
  FAILS("mmap", MAP_FAILED)
  using Function = void* (*)(void*, size_t, int, int, int, off_t);
  static const auto real = syntony::faults::next<Function>("mmap");
  return real(where, length, protection, flags, fd, offset);
}

// The core passes at most six words: pidfd_open, membarrier, futex.
long syscall(long number, ...) {
  FAILS("syscall", -1)
  std::array<long, 6> words{};
  va_list list;
  va_start(list, number);
  for (long& word : words) word = va_arg(list, long);
  va_end(list);
  using Function = long (*)(long, ...);
  static const auto real = syntony::faults::next<Function>("syscall");
  return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
}
