// Runs a generated kernel: a thread of the host for every thread of every block. Comes after the kernels' text.
#include <vector>

extern "C" void syntony_run(void (*kernel)(syntony::Launch), const syntony::Launch* launches, int count, int threads) {
  std::vector<std::unique_ptr<syntony::HostBlock>> blocks;
  std::vector<std::jthread> running;
  for (int i = 0; i < count; ++i) {
    for (int index = 0; index < launches[i].lanes * launches[i].stripes; ++index) {
      syntony::HostBlock* const block = blocks.emplace_back(std::make_unique<syntony::HostBlock>(index, threads)).get();
      for (int thread = 0; thread < threads; ++thread) {
        running.emplace_back([=] {
          syntony::host_block = block;
          syntony::host_thread = thread;
          kernel(launches[i]);
        });
      }
    }
  }
}
