#include "lost_bias.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>

namespace trt_et::tensorrt {
namespace {

using nvinfer::LayerType;
using std::string_view;

// How texts of TensorRT-RTX 1.5 to 1.7 begin, the first one and the others.
constexpr string_view kText = "header {\n", kProgram = "header {\n  version = 5\n",
                      kFusion = "header {\n  version = 4\n";

uint64_t number_at(string_view bytes, size_t at) {
  uint64_t number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

void find_in(string_view text, std::vector<std::string>* results) {
  constexpr string_view kProduct = "fully_connected={", kOutput = " output={\"";
  for (size_t at = text.find(kProduct); at != text.npos; at = text.find(kProduct, at + 1)) {
    const string_view statement = text.substr(at, text.find('\n', at) - at);
    if (statement.find(" bias=true ") == statement.npos) continue;
    const size_t output = statement.find(kOutput);
    const string_view name =
        output == statement.npos ? "" : statement.substr(output + kOutput.size());
    results->emplace_back(name.substr(0, name.find('"')));
  }
}

// The nearest products on all ways from activations back to the network's inputs.
std::vector<nvinfer::ILayer*> products_before_activations(
    const std::vector<nvinfer::ILayer*>& layers) {
  std::map<const nvinfer::ITensor*, nvinfer::ILayer*> makers;
  std::vector<nvinfer::ILayer*> pending, products;
  for (nvinfer::ILayer* layer : layers) {
    makers[layer->getOutput(0)] = layer;
    const LayerType type = layer->getType();
    if (type == LayerType::kACTIVATION || type == LayerType::kUNARY) pending.push_back(layer);
  }
  while (!pending.empty()) {
    const nvinfer::ILayer* const layer = pending.back();
    pending.pop_back();
    for (int32_t i = 0; i < layer->getNbInputs(); ++i) {
      const auto maker = makers.extract(layer->getInput(i));
      if (maker.empty()) continue;
      const bool is_product = maker.mapped()->getType() == LayerType::kMATRIX_MULTIPLY;
      (is_product ? products : pending).push_back(maker.mapped());
    }
  }
  return products;
}

bool add_zeros(nvinfer::INetworkDefinition* network) {
  static constexpr float kZero = 0;  // in each floating-point type
  std::vector<nvinfer::ILayer*> layers;
  for (int32_t i = 0; i < network->getNbLayers(); ++i) layers.push_back(network->getLayer(i));
  const std::vector<nvinfer::ILayer*> products = products_before_activations(layers);
  for (const nvinfer::ILayer* product : products) {
    nvinfer::ITensor* const tensor = product->getOutput(0);
    nvinfer::Dims ones = tensor->getDimensions();
    std::fill(ones.d, ones.d + ones.nbDims, 1);
    const nvinfer::Weights weights{tensor->getType(), &kZero, 1};
    auto* const zero = network->addConstant(ones, weights);
    auto* const sum =
        network->addElementWise(*tensor, *zero->getOutput(0), nvinfer::ElementWiseOperation::kSUM);
    for (nvinfer::ILayer* user : layers) {
      for (int32_t i = 0; i < user->getNbInputs(); ++i) {
        if (user->getInput(i) == tensor) user->setInput(i, *sum->getOutput(0));
      }
    }
  }
  return !products.empty();
}

}  // namespace

bool find_lost_biases(string_view engine, std::vector<std::string>* results) {
  constexpr size_t kStart = 24, kFrame = 16;  // bytes before an engine's data, and before a text
  if (engine.size() < kStart || engine.substr(0, 4) != "vtrt") return false;
  if (number_at(engine, kStart - 8) > engine.size()) return false;
  engine = engine.substr(0, number_at(engine, kStart - 8));
  bool found = false;
  for (size_t at = engine.find(kText); at != engine.npos; at = engine.find(kText, at)) {
    if (at < kFrame || engine.substr(at - kFrame, 4) != "NLYM") return false;
    const uint64_t size = number_at(engine, at - 8);
    if (size > engine.size() - at) return false;
    const string_view text = engine.substr(at, size);
    if (text.rfind(found ? kFusion : kProgram, 0) != 0) return false;
    find_in(text, results);
    at += size;
    found = true;
  }
  return found;
}

Status keep_biases(const Library& library, const nvinfer::IHostMemory& plan, bool is_changed,
                   nvinfer::INetworkDefinition* network, bool* build_again) {
  static std::atomic<bool> told{false};
  const string_view engine(static_cast<const char*>(plan.data()), plan.size());
  std::vector<std::string> results;
  *build_again = false;
  if (!find_lost_biases(engine, &results) && !told.exchange(true)) {
    const Status text = fail(Error::Ok,
                             "the kernels of engines of %s cannot be read: whether one loses the "
                             "bias of a linear layer before ReLU or GELU is not checked",
                             library.name().c_str());
    host().log(TRT_ET_LOG_NOTICE, text.text.c_str());
  }
  if (results.empty()) return {};
  if (!is_changed && add_zeros(network)) {
    *build_again = true;
    return {};
  }
  const char* anyway = std::getenv("TRT_ET_ANY_KERNEL");
  const Status lost = fail(Error::DelegateInvalidCompatibility,
                           "%s has a kernel that may lose a bias of node '%.80s': leave the node "
                           "to the CPU (excluded_ops=...), or set TRT_ET_ANY_KERNEL=1",
                           library.name().c_str(), results.front().c_str());
  if (anyway == nullptr || std::strcmp(anyway, "1") != 0) return lost;
  host().log(TRT_ET_LOG_NOTICE, lost.text.c_str());
  return {};
}

}  // namespace trt_et::tensorrt
