// Entry point for libFuzzer, and for AFL++ in its mode: the first byte of an input chooses the target.
//
//   clang++ -std=c++20 -fsanitize=fuzzer,address -Icsrc -Itests/csrc tests/csrc/fuzz/[!m]*.cpp (all but main, mutate)
//     tests/csrc/cuda/{programs,reference}.cpp -Lbuild/... -lsyntony
#include <cstdio>
#include <cstdlib>

#include "fuzz/target.hpp"

namespace syntony::fuzz {

std::span<const Target* const> targets() {
  static constexpr const Target* kAll[] = {&kFrames,     &kControl, &kHandshake, &kDirectory,
                                           &kAggregator, &kPackets, &kPrograms};
  return kAll;
}

void fault(const std::string& what) {
  std::fprintf(stderr, "fuzz: %s\n", what.c_str());
  std::abort();
}

}  // namespace syntony::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto all = syntony::fuzz::targets();
  all[data[0] % all.size()]->take(std::as_bytes(std::span(data, size)).subspan(1));
  return 0;
}
