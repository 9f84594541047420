#include "lost_bias.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <string_view>
#include <vector>

namespace trt_et::tensorrt {
namespace {

using nvinfer::LayerType;
using std::string_view;

uint64_t number_at(string_view bytes, size_t at) {
  uint64_t number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

string_view behind(string_view text, string_view mark) {
  const size_t at = text.find(mark);
  return at == text.npos ? string_view() : text.substr(at + mark.size());
}

// The results of the products that may lose a bias, as `lost_biases` of
// trt_et/inspection/kernels.py. False: the engine's text is not known.
bool find_lost_biases(string_view engine, std::vector<std::string>* results) {
  constexpr size_t kStart = 24, kFrame = 16;  // bytes before an engine's data, and before a text
  const bool known = engine.size() >= kStart && engine.substr(0, 4) == "vtrt";
  if (!known || number_at(engine, kStart - 8) > engine.size()) return false;
  engine = engine.substr(0, number_at(engine, kStart - 8));
  string_view version = "header {\n  version = 5\n";  // of TensorRT-RTX 1.5 to 1.7
  size_t at = 0;
  while ((at = engine.find("header {\n", at)) != engine.npos) {
    const bool framed = at >= kFrame && engine.substr(at - kFrame, 4) == "NLYM";
    if (!framed || number_at(engine, at - 8) > engine.size() - at) return false;
    string_view text = engine.substr(at, number_at(engine, at - 8));
    if (text.substr(0, version.size()) != version) return false;
    at += text.size();
    while (!(text = behind(text, "fully_connected={")).empty()) {
      const string_view product = text.substr(0, text.find('\n'));
      if (product.find(" bias=true ") == product.npos) continue;
      const string_view output = behind(product, " output={\"");
      results->emplace_back(output.substr(0, output.find('"')));
    }
    version = "header {\n  version = 4\n";  // of fusions
  }
  return version.find('4') != version.npos;
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
    auto* const zero = network->addConstant(ones, weights)->getOutput(0);
    auto* const sum =
        network->addElementWise(*tensor, *zero, nvinfer::ElementWiseOperation::kSUM)->getOutput(0);
    for (nvinfer::ILayer* user : layers) {
      for (int32_t i = 0; i < user->getNbInputs(); ++i) {
        if (user->getInput(i) == tensor) user->setInput(i, *sum);
      }
    }
  }
  return !products.empty();
}

}  // namespace

Status keep_biases(const Library& library, const nvinfer::IHostMemory& plan, bool is_changed,
                   nvinfer::INetworkDefinition* network, bool* build_again) {
  static std::atomic<bool> told{false};
  std::vector<std::string> results;
  if (!find_lost_biases({static_cast<const char*>(plan.data()), plan.size()}, &results)) {
    const std::string text = "the kernels of engines of " + library.name() +
                             " cannot be read: whether one loses a bias is not checked";
    if (!told.exchange(true)) host().log(TRT_ET_LOG_NOTICE, text.c_str());
    return {};
  }
  *build_again = !results.empty() && !is_changed && add_zeros(network);
  if (results.empty() || *build_again) return {};
  Status lost = fail(Error::DelegateInvalidCompatibility,
                     "%s has a kernel that may lose a bias of node '%.80s': leave the node to the "
                     "CPU (excluded_ops=...), or set TRT_ET_ANY_KERNEL=1",
                     library.name().c_str(), results.front().c_str());
  const char* anyway = host().variable("TRT_ET_ANY_KERNEL");
  if (anyway == nullptr || std::strcmp(anyway, "1") != 0) return lost;
  host().log(TRT_ET_LOG_NOTICE, lost.text.c_str());
  return {};
}

}  // namespace trt_et::tensorrt
