// A small fuzzer of our own, because libFuzzer needs clang:
//
//   fuzz                              the targets
//   fuzz TARGET COUNT [SEED [FIRST]]  gives inputs FIRST .. FIRST+COUNT-1 of SEED to it (default: 1, 0)
//
// The same SEED makes the same inputs. A crash, a wrong result, or an input that takes more than 20 s ends it with the
// command that reproduces it. Prints, per target: inputs, how many were fully accepted, seconds.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "fuzz/mutate.hpp"

extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*)());

namespace {

using syntony::fuzz::Target;

constexpr unsigned kLongestInputSeconds = 20;
constexpr std::size_t kLongestInput = 4096;
char reproduction[256] = "";  // formatted ahead: a signal handler can only write

void say_how_to_repeat() { (void)!write(STDERR_FILENO, reproduction, std::strlen(reproduction)); }

[[noreturn]] void on_death(int signal) {
  static constexpr char kHang[] = "fuzz: the input takes more than 20 s\n";
  if (signal == SIGALRM) (void)!write(STDERR_FILENO, kHang, sizeof(kHang) - 1);
  say_how_to_repeat();
  std::_Exit(1);
}

void watch_for_death() {
  signal(SIGALRM, on_death);
  signal(SIGABRT, on_death);
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(say_how_to_repeat);  // a sanitizer catches the other signals, and prints more
    return;
  }
  for (const int fatal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(fatal, on_death);
}

void run(const Target& target, std::uint64_t count, std::uint64_t seed, std::uint64_t first) {
  const std::vector<syntony::fuzz::Bytes> seeds = target.seeds();
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t believed = 0;
  for (std::uint64_t number = first; number < first + count; ++number) {
    std::snprintf(reproduction, sizeof(reproduction), "fuzz: again with: fuzz %.*s 1 %llu %llu\n",
                  static_cast<int>(target.name.size()), target.name.data(), static_cast<unsigned long long>(seed),
                  static_cast<unsigned long long>(number));
    alarm(kLongestInputSeconds);
    std::mt19937_64 random(seed * 0x9e3779b97f4a7c15ULL + number);
    believed += target.take(syntony::fuzz::mutated(seeds, random, kLongestInput)) ? 1 : 0;
  }
  target.end();
  alarm(0);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::printf("%.*s: %llu inputs, %llu believed whole, %.1f s (seed %llu)\n", static_cast<int>(target.name.size()),
              target.name.data(), static_cast<unsigned long long>(count), static_cast<unsigned long long>(believed),
              taken.count(), static_cast<unsigned long long>(seed));
}

/// Every unmodified seed must be accepted: otherwise the fuzzer would only mutate invalid inputs.
void require_good_seeds(const Target& target) {
  for (const syntony::fuzz::Bytes& seed : target.seeds()) {
    syntony::fuzz::require(target.take(seed), "a seed is not believed");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int place, std::uint64_t otherwise) {
    return argc > place ? std::strtoull(argv[place], nullptr, 10) : otherwise;
  };
  for (const Target* target : syntony::fuzz::targets()) {
    if (argc < 3) {
      std::printf("%.*s\n", static_cast<int>(target->name.size()), target->name.data());
    } else if (target->name == argv[1]) {
      watch_for_death();
      require_good_seeds(*target);
      run(*target, number(2, 0), number(3, 1), number(4, 0));
      return 0;
    }
  }
  if (argc < 3) return argc == 1 ? 0 : 2;
  std::fprintf(stderr, "fuzz: there is no target '%s'; the first argument is one of those that fuzz lists\n", argv[1]);
  return 2;
}
