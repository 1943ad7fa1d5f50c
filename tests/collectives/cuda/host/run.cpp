// Runs a generated kernel: a thread of the host for every thread of every block. Comes after the kernels' text.
#include <memory>
#include <thread>
#include <vector>

namespace syntony::cuda::straight {

using Kernel = void (*)(const HostMachine& machine, const Launch& launch, int block);

inline void run_on_threads(Kernel kernel, const Launch* launches, int count, int threads) {
  std::vector<std::unique_ptr<std::barrier<>>> barriers;
  std::vector<std::jthread> running;
  for (int i = 0; i < count; ++i) {
    for (int block = 0; block < launches[i].lanes * launches[i].stripes; ++block) {
      std::barrier<>& barrier = *barriers.emplace_back(std::make_unique<std::barrier<>>(threads));
      for (int thread = 0; thread < threads; ++thread) {
        running.emplace_back([=, &barrier] {
          const HostMachine machine(static_cast<std::uint32_t>(thread), static_cast<std::uint32_t>(threads), barrier);
          kernel(machine, launches[i], block);
        });
      }
    }
  }
}

}  // namespace syntony::cuda::straight
