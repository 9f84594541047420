#include "sim_handles.h"

namespace trt_et::cuda {

Graph SimHandles::add_graph(std::shared_ptr<SimWork> work, int device) {
  const std::unique_lock<StripedLock> lock(lock_);
  const Graph handle = work.get();
  graphs_[handle] = {device, std::move(work)};
  return handle;
}

Status SimHandles::find_graph(Graph graph, int device, std::shared_ptr<SimWork>* work) {
  const std::shared_lock<StripedLock> lock(lock_);
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return {Error::InvalidArgument, "not a graph of a simulated GPU"};
  if (found->second.first != device) {
    return fail(Error::InvalidArgument, "graph of cuda:%d launched on cuda:%d", found->second.first,
                device);
  }
  *work = found->second.second;
  return {};
}

Status SimHandles::remove_graph(Graph graph) {
  const std::unique_lock<StripedLock> lock(lock_);
  if (graphs_.erase(graph) == 1) return {};
  return {Error::InvalidArgument, "not a graph of a simulated GPU"};
}

size_t SimHandles::live_graphs() {
  const std::shared_lock<StripedLock> lock(lock_);
  return graphs_.size();
}

size_t SimHandles::live_events() {
  const std::shared_lock<StripedLock> lock(lock_);
  return events_.size();
}

Event SimHandles::add_event(int device) {
  auto created = std::make_unique<SimEvent>(device);
  const Event handle = created.get();
  const std::unique_lock<StripedLock> lock(lock_);
  events_[handle] = std::move(created);
  return handle;
}

Status SimHandles::remove_event(Event event) {
  const std::unique_lock<StripedLock> lock(lock_);
  if (events_.erase(event) == 1) return {};
  return {Error::InvalidArgument, "not an event of a simulated GPU"};
}

Status SimHandles::record(Event event, SimStream& stream) {
  const std::shared_lock<StripedLock> lock(lock_);
  const auto found = events_.find(event);
  if (found == events_.end()) return {Error::InvalidArgument, "not an event of a simulated GPU"};
  if (found->second->device != stream.device()) {
    return fail(Error::InvalidArgument, "event of cuda:%d recorded on a stream of cuda:%d",
                found->second->device, stream.device());
  }
  const std::lock_guard<std::mutex> one(found->second->mutex);
  found->second->mark = stream.mark();
  return {};
}

Status SimHandles::find_mark(Event event, SimMark* mark) {
  const std::shared_lock<StripedLock> lock(lock_);
  const auto found = events_.find(event);
  if (found == events_.end()) return {Error::InvalidArgument, "not an event of a simulated GPU"};
  const std::lock_guard<std::mutex> one(found->second->mutex);
  *mark = found->second->mark;
  return {};
}

}  // namespace trt_et::cuda
