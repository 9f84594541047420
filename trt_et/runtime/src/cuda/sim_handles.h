// The stream and event handles that simulated CUDA has given out: any other is refused.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "sim_stream.h"

namespace trt_et::cuda {

class SimHandles {
 public:
  Stream add_stream(int device);
  Status find_stream(Stream stream, std::shared_ptr<SimStream>* out);
  void remove_stream(Stream stream);

  Event add_event(int device);
  Status remove_event(Event event);
  // Makes the event stand behind what is queued on the stream now.
  Status record(Event event, SimStream& stream);
  // The point that the event stands for; its stream is null before the first record.
  Status find_mark(Event event, SimMark* mark);

 private:
  struct SimEvent {
    int device = 0;
    SimMark mark;
  };

  std::mutex mutex_;
  std::unordered_map<Stream, std::shared_ptr<SimStream>> streams_;
  std::unordered_map<Event, std::unique_ptr<SimEvent>> events_;
};

}  // namespace trt_et::cuda
