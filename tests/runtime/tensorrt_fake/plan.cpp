#include "plan.h"

#include <sstream>

namespace fake {
namespace {

bool parse_dims(const std::string& text, nvinfer1::Dims* dims) {
  *dims = {};
  if (text == "-") return true;
  std::stringstream stream(text);
  std::string number;
  while (std::getline(stream, number, ',')) {
    if (dims->nbDims == 8) return false;
    dims->d[dims->nbDims++] = std::stoll(number);
  }
  return dims->nbDims > 0;
}

bool parse_dtype(const std::string& text, nvinfer1::DataType* dtype) {
  using nvinfer1::DataType;
  static const std::map<std::string, DataType> known = {
      {"float32", DataType::kFLOAT},
      {"int32", DataType::kINT32},
      {"fp8", DataType::kFP8},
#if NV_TENSORRT_MAJOR >= 10  // tests/gpu/native reads plans with older headers, too
      {"int64", DataType::kINT64},
#endif
  };
  const auto found = known.find(text);
  if (found == known.end()) return false;
  *dtype = found->second;
  return true;
}

// The rest of a line of linear.
bool parse_linear(std::stringstream& words, PlanLayer* layer) {
  words >> layer->columns_in >> layer->columns_out;
  for (std::string word; words >> word;) layer->numbers.push_back(std::stof(word));
  return layer->columns_in > 0 && layer->columns_out > 0 &&
         layer->numbers.size() == (layer->columns_in + 1) * layer->columns_out;
}

bool parse_line(const std::string& line, Plan* plan) {
  std::stringstream words(line);
  std::string kind, a, b, c, d;
  words >> kind >> a >> b;
  if (kind != "linear") words >> c >> d;
  if (kind.empty() || kind == "fake") return true;
  if (kind == "plain") return plan->plain = true;
  if (kind == "host_code") return plan->host_code = true;
  if (kind == "dla") return plan->dla = true;
  if (kind == "user_memory") return plan->user_memory = true;
  if (kind == "no_context") return plan->why_no_context = a, plan->no_context = true;
  if (kind == "plugin") return plan->plugins.push_back(a), true;
  if (kind == "weights") return plan->weights = std::stoll(a), true;
  if (kind == "streamable") return plan->streamable = std::stoll(a), true;
  if (kind == "scratch") return plan->scratch = std::stoll(a), true;
  if (kind == "input" || kind == "output") {
    PlanTensor tensor;
    tensor.name = a;
    tensor.is_input = kind == "input";
    plan->tensors.push_back(tensor);
    return parse_dtype(b, &plan->tensors.back().dtype) && parse_dims(c, &plan->tensors.back().dims);
  }
  if (kind == "profile") return plan->profiles.emplace_back(), true;
  const size_t output = plan->find(a), first = plan->find(b);
  if (output == plan->tensors.size()) return false;
  if (kind == "late") return plan->tensors[output].late = true;
  if (kind == "alias") return plan->tensors[output].alias = b, true;
  if (kind == "range") {
    if (plan->profiles.empty()) plan->profiles.emplace_back();
    Range range{};
    const bool good =
        parse_dims(b, &range.low) && parse_dims(c, &range.best) && parse_dims(d, &range.high);
    plan->profiles.back()[a] = range;
    return good;
  }
  if (first == plan->tensors.size()) return false;
  PlanLayer layer;
  layer.kind = kind;
  layer.name = d.empty() || kind == "linear" ? kind : d;
  layer.output = output;
  layer.first = layer.second = first;
  if (kind == "sum" || kind == "write") layer.second = plan->find(c);
  if (kind == "scale" || kind == "shift") layer.value = std::stof(c);
  if (kind == "linear" && !parse_linear(words, &layer)) return false;
  plan->layers.push_back(layer);
  return layer.second < plan->tensors.size();
}

}  // namespace

size_t Plan::find(const std::string& name) const {
  size_t i = 0;
  while (i < tensors.size() && tensors[i].name != name) ++i;
  return i;
}

std::string parse_plan(const std::string& text, Plan* plan) {
  if (text.rfind("fake\n", 0) != 0) return "not an engine: the magic tag does not match";
  std::stringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    try {
      if (!parse_line(line, plan)) return "bad line in the engine: " + line;
    } catch (const std::exception&) {
      return "bad number in the engine: " + line;
    }
  }
  if (plan->profiles.empty()) plan->profiles.emplace_back();
  return "";
}

}  // namespace fake
