// Streams, events, graphs, and what is queued on them.
#include <utility>

#include "simulated_api.h"

namespace trt_et::cuda {

Status SimulatedApi::create_stream(StreamKind kind, Stream* stream) {
  const Inside inside;
  TRT_ET_TRY(enter("create_stream"));
  *stream = streams_.add(t_device, kind);
  return {};
}

Status SimulatedApi::destroy_stream(Stream stream) {
  const Inside inside;
  Status failure = enter("destroy_stream");
  SimStreamPtr queue;
  TRT_ET_TRY(streams_.find(stream, t_device, &queue));
  streams_.remove(stream);
  return failure;
}

Status SimulatedApi::synchronize_stream(Stream stream) {
  // Made to fail, it waits all the same: CUDA reports failed work here, not work left undone.
  const Inside inside;
  Status failure = enter("synchronize_stream");
  SimStreamPtr queue;
  TRT_ET_TRY(streams_.find(stream, t_device, &queue));
  if (queue->breaks_capture()) {
    return {Error::InvalidState, "wait for a stream while it is captured"};
  }
  counters_.add(kSynchronizations);
  TRT_ET_TRY(streams_.join(*queue));
  Status status = queue->synchronize();
  return failure.ok() ? status : failure;
}

Status SimulatedApi::stream_device(Stream stream, int* device) {
  const Inside inside;
  TRT_ET_TRY(enter("stream_device"));
  SimStreamPtr queue;
  TRT_ET_TRY(streams_.find(stream, t_device, &queue));
  *device = queue->device();
  return {};
}

Status SimulatedApi::is_captured(Stream stream, bool* captured) {
  const Inside inside;
  TRT_ET_TRY(enter("is_captured"));
  SimStreamPtr queue;
  TRT_ET_TRY(streams_.find(stream, t_device, &queue));
  *captured = queue->captured();
  return {};
}

Status SimulatedApi::create_event(Event* event, bool) {
  const Inside inside;
  TRT_ET_TRY(enter("create_event"));
  *event = handles_.add_event(t_device);
  return {};
}

Status SimulatedApi::destroy_event(Event event) {
  const Inside inside;
  Status failure = enter("destroy_event");
  TRT_ET_TRY(handles_.remove_event(event));
  return failure;
}

Status SimulatedApi::record_event(Event event, Stream stream) {
  const Inside inside;
  TRT_ET_TRY(enter("record_event"));
  SimStreamPtr queue;
  TRT_ET_TRY(streams_.find(stream, t_device, &queue));
  TRT_ET_TRY(streams_.join(*queue));
  return handles_.record(event, *queue);
}

Status SimulatedApi::wait_event(Stream stream, Event event) {
  const Inside inside;
  TRT_ET_TRY(enter("wait_event"));
  SimStreamPtr queue;
  SimMark mark;
  TRT_ET_TRY(streams_.find(stream, t_device, &queue));
  TRT_ET_TRY(handles_.find_mark(event, &mark));
  if (mark.stream == nullptr) return {};
  if (mark.captured != queue->captured()) {
    (void)queue->breaks_capture();
    return {Error::InvalidState, "a stream waits for work on the other side of a capture"};
  }
  if (mark.stream == queue) return {};
  return streams_.enqueue(*queue, [mark] { return mark.stream->run_until(mark.position); });
}

Status SimulatedApi::synchronize_event(Event event) {
  const Inside inside;
  Status failure = enter("synchronize_event");
  SimMark mark;
  TRT_ET_TRY(handles_.find_mark(event, &mark));
  counters_.add(kSynchronizations);
  if (mark.captured) return {Error::InvalidState, "wait for an event of a captured stream"};
  Status status = mark.stream == nullptr ? Status{} : mark.stream->run_until(mark.position);
  return failure.ok() ? status : failure;
}

Status SimulatedApi::launch(Stream stream, std::function<Status()> function) {
  const Inside inside;
  TRT_ET_TRY(enter("launch"));
  SimStreamPtr queue;
  TRT_ET_TRY(streams_.find(stream, t_device, &queue));
  if (queue->device() != t_device) {
    return fail(Error::InvalidArgument, "launch on a stream of cuda:%d while cuda:%d is current",
                queue->device(), t_device);
  }
  counters_.add(kLaunches);
  return streams_.enqueue(*queue, std::move(function));
}

Status SimulatedApi::begin_capture(Stream stream, CaptureMode mode) {
  const Inside inside;
  TRT_ET_TRY(enter("begin_capture"));
  SimStreamPtr queue;
  TRT_ET_TRY(streams_.find(stream, t_device, &queue));
  return streams_.begin_capture(queue, mode);
}

Status SimulatedApi::end_capture(Stream stream, Graph* graph) {
  const Inside inside;
  Status failure = enter("end_capture");
  SimStreamPtr queue;
  std::shared_ptr<SimWork> work;
  TRT_ET_TRY(streams_.find(stream, t_device, &queue));
  TRT_ET_TRY(streams_.end_capture(*queue, &work));
  if (!failure.ok()) return failure;
  counters_.add(kCaptures);
  *graph = handles_.add_graph(std::move(work), queue->device());
  return {};
}

Status SimulatedApi::launch_graph(Graph graph, Stream stream) {
  const Inside inside;
  TRT_ET_TRY(enter("launch_graph"));
  SimStreamPtr queue;
  std::shared_ptr<SimWork> work;
  TRT_ET_TRY(streams_.find(stream, t_device, &queue));
  TRT_ET_TRY(handles_.find_graph(graph, queue->device(), &work));
  counters_.add(kGraphLaunches);
  return streams_.enqueue(*queue, [work] {
    for (const auto& item : *work) TRT_ET_TRY(item());
    return Status{};
  });
}

Status SimulatedApi::destroy_graph(Graph graph) {
  const Inside inside;
  Status failure = enter("destroy_graph");
  TRT_ET_TRY(handles_.remove_graph(graph));
  return failure;
}

}  // namespace trt_et::cuda
