#include "stream_order.h"

#include <atomic>
#include <cstdio>
#include <map>
#include <thread>
#include <vector>

#include "bound_program.h"
#include "cuda/cuda_api.h"

namespace trt_et::gpu_check {

int check_order(const std::string& path, int rounds) {
  const std::map<int, Floats> expected = expected_of(path);
  int wrong = 0;
  {
    BoundProgram program(path);
    for (int i = 0; i < rounds; ++i) {
      const int value = 1 + i % 2;
      if (program.run_between_copies(static_cast<float>(value)) != expected.at(value)) ++wrong;
    }
  }
  std::atomic<int> wrong_in_threads{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < rounds; i += 10) {
        BoundProgram program(path);
        for (int run = 0; run < 10; ++run) {
          const int value = 1 + (run + thread) % 2;
          const Floats found = program.run_between_copies(static_cast<float>(value));
          if (found != expected.at(value)) ++wrong_in_threads;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("runs %d\nwrong %d\nwrong_in_threads %d\n", rounds, wrong, wrong_in_threads.load());
  return wrong == 0 && wrong_in_threads == 0 ? 0 : 2;
}

}  // namespace trt_et::gpu_check
