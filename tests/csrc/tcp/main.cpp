// tcp_test list | measure | explain | all [SEED] | NAME [SEED]      exit code 0 when it passes
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "ranks.hpp"

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "list";
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  if (wanted == "measure") {
    tests::measure();
    return 0;
  }
  if (wanted == "explain") {
    try {
      const syntony::TcpListener listener(syntony::TcpOptions::from_environment());
      return 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
  }
  bool found = false;
  for (const auto& group : {tests::address_tests(), tests::mesh_tests(), tests::stream_tests(), tests::failure_tests(),
                            tests::failover_tests(), tests::encryption_tests(), tests::control_tests(),
                            tests::relay_tests(), tests::cut_tests(), tests::many_tests()}) {
    for (const tests::Test& test : group) {
      if (wanted == "list") std::printf("%.*s\n", static_cast<int>(test.name.size()), test.name.data());
      if (wanted != "all" && wanted != test.name) continue;
      found = true;
      std::fprintf(stderr, "%.*s (seed %llu)\n", static_cast<int>(test.name.size()), test.name.data(),
                   static_cast<unsigned long long>(seed));
      try {
        test.run(seed);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
      }
    }
  }
  return found || wanted == "list" ? 0 : 2;
}
