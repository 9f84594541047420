// One run of an engine of the fake TensorRT, as it was when it was queued.
#pragma once

#include <memory>
#include <vector>

#include "services.h"

namespace fake {

struct Run {
  std::shared_ptr<const Plan> plan;
  int device = 0;
  std::vector<void*> addresses;
  std::vector<size_t> counts;
  std::vector<nvinfer1::IOutputAllocator*> late;
  std::vector<Dims> shapes;
  void* scratch = nullptr;

  // Memory for the outputs whose shapes are known now.
  bool allocate_late() {
    for (size_t i = 0; i < addresses.size(); ++i) {
      if (late[i] == nullptr) continue;
      const char* name = plan->tensors[i].name.c_str();
      addresses[i] =
          late[i]->reallocateOutputAsync(name, addresses[i], counts[i] * 4, 256, nullptr);
      if (addresses[i] == nullptr) return false;
      late[i]->notifyShape(name, shapes[i]);
    }
    return true;
  }

  // TensorRT demands it of whoever runs the engine.
  bool aliases_share_memory() const {
    for (const PlanTensor& tensor : plan->tensors) {
      if (!tensor.alias.empty() &&
          addresses[plan->find(tensor.name)] != addresses[plan->find(tensor.alias)]) {
        return false;
      }
    }
    return true;
  }
};

}  // namespace fake
