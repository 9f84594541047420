// What a delegate reads of its arguments out of its blob and its engine.
#include <algorithm>
#include <unordered_map>

#include "arguments.h"

namespace trt_et {

Status Arguments::create(const Blob& blob, const Engine& engine, const LoadOptions& options) {
  const auto& bindings = blob.metadata.bindings;
  cuda::DeviceInfo gpu;
  TRT_ET_TRY(api_.device_info(device_, &gpu));
  integrated_ = gpu.integrated;
  pageable_access_ = gpu.integrated && gpu.pageable_access;
  alignment_ = std::max<size_t>(1, engine.provider().alignment);
  std::vector<int32_t> aliases;
  for (const bool inputs : {true, false}) {
    for (size_t i = 0; i < bindings.size(); ++i) {
      if (bindings[i].is_input != inputs) continue;
      trt_et_binding described;
      TRT_ET_TRY(engine.describe(i, &described));
      Argument& argument = arguments_.emplace_back();
      argument.binding = i;
      aliases.push_back(described.alias_of);
      TRT_ET_TRY(TensorSpec::create(bindings[i], described, &argument.expected));
    }
    if (inputs) input_count_ = arguments_.size();
  }
  // An engine may have aliases that its blob does not name.
  for (size_t output = input_count_; output < arguments_.size(); ++output) {
    for (size_t input = 0; input < input_count_ && aliases[output] >= 0; ++input) {
      if (arguments_[input].binding == static_cast<size_t>(aliases[output])) {
        TRT_ET_TRY(set_alias(output, input));
      }
    }
  }
  TRT_ET_TRY(read_aliases(blob));
  TRT_ET_TRY(read_state_inputs(options));
  for (Argument& argument : arguments_) {
    if (options.host_planned && argument.expected.max_bytes > 0 && argument.alias_of < 0) {
      TRT_ET_TRY(stage(argument, argument.expected.max_bytes));
    }
  }
  return {};
}

Status Arguments::read_aliases(const Blob& blob) {
  std::unordered_map<std::string, size_t> by_name;
  for (size_t i = 0; i < arguments_.size(); ++i) by_name[arguments_[i].expected.name] = i;
  for (const Alias& alias : blob.metadata.aliases) {
    // The parser has checked that both exist.
    TRT_ET_TRY(set_alias(by_name[alias.output], by_name[alias.input]));
  }
  return {};
}

Status Arguments::read_state_inputs(const LoadOptions& options) {
  for (const size_t index : options.state_inputs) {
    if (index < input_count_) continue;
    return fail(Error::InvalidProgram, "compile spec state_inputs names input %zu of %zu", index,
                input_count_);
  }
  uncleared_ = options.state_inputs;
  for (const size_t index : options.device_state) {
    if (index < arguments_.size() && !arguments_[index].expected.dynamic) continue;
    return fail(Error::InvalidProgram, "compile spec device_state names tensor %zu of %zu", index,
                arguments_.size());
  }
  device_state_ = options.device_state;
  return {};
}

Status Arguments::set_alias(size_t output, size_t input) {
  const TensorSpec& from = arguments_[input].expected;
  const TensorSpec& to = arguments_[output].expected;
  const bool same_shape = from.any_shape || to.any_shape || from.max_shape == to.max_shape;
  if (from.dtype != to.dtype || !same_shape) {
    return fail(Error::InvalidProgram, "aliased output '%.60s' does not have the type of '%.60s'",
                to.name.c_str(), from.name.c_str());
  }
  int& alias_of = arguments_[output].alias_of;
  if (alias_of >= 0 && static_cast<size_t>(alias_of) != input) {
    return fail(Error::InvalidProgram,
                "engine writes output '%.50s' into input '%.50s', its blob says '%.50s'",
                to.name.c_str(), arguments_[static_cast<size_t>(alias_of)].expected.name.c_str(),
                from.name.c_str());
  }
  alias_of = static_cast<int>(input);
  return {};
}

}  // namespace trt_et
