// Tells whether this object was made in this process or in a parent that has forked since. Asked at every call, so it
// makes no system call: after fork() the kernel gives the child a page of zeros in place of ours.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "core/error.hpp"
#include "core/process/host.hpp"

namespace syntony {

class MadeHere {
 public:
  MadeHere() {
    void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw Error(Error::Kind::system, system_sentence("cannot get a page of memory"));
    mark_ = static_cast<volatile std::uint32_t*>(memory);
    if (::madvise(memory, kBytes, MADV_WIPEONFORK) == 0) {
      *mark_ = 1;
    } else {  // a kernel before 4.14, or similar
      process_ = ::getpid();
    }
  }
  ~MadeHere() { ::munmap(const_cast<std::uint32_t*>(mark_), kBytes); }
  MadeHere(const MadeHere&) = delete;
  MadeHere& operator=(const MadeHere&) = delete;

  explicit operator bool() const { return process_ == 0 ? *mark_ != 0 : process_ == ::getpid(); }

 private:
  static constexpr std::size_t kBytes = 4096;
  volatile std::uint32_t* mark_ = nullptr;
  pid_t process_ = 0;  // 0: the page decides
};

}  // namespace syntony
