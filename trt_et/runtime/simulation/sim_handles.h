// The event and graph handles that simulated CUDA has given out: any other is refused.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "common/striped_lock.h"
#include "sim_stream.h"

namespace trt_et::cuda {

class SimHandles {
 public:
  Graph add_graph(std::shared_ptr<SimWork> work, int device);
  Status find_graph(Graph graph, int device, std::shared_ptr<SimWork>* work);
  Status remove_graph(Graph graph);
  // Of leaks: what has been made and not destroyed.
  size_t live_graphs();
  size_t live_events();

  Event add_event(int device);
  Status remove_event(Event event);
  // Makes the event stand behind what is queued on the stream now.
  Status record(Event event, SimStream& stream);
  // The point that the event stands for; its stream is null before the first record.
  Status find_mark(Event event, SimMark* mark);

 private:
  struct SimEvent {
    explicit SimEvent(int index) : device(index) {}
    const int device;
    std::mutex mutex;  // of the mark
    SimMark mark;
  };

  // Shared: what there is; unique: to add and to remove.
  StripedLock lock_;
  std::unordered_map<Event, std::unique_ptr<SimEvent>> events_;
  std::unordered_map<Graph, std::pair<int, std::shared_ptr<SimWork>>> graphs_;
};

}  // namespace trt_et::cuda
