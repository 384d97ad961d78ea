// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/model_config.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/cli/model_defaults.h"
#include "nlohmann/json.hpp"

namespace kvcompress::cli {
namespace {

using Config = nlohmann::json;

// Models whose pairs are neighbouring channels; transformers says it in code.
constexpr absl::string_view kInterleaved[] = {
    "gptj",     "codegen",      "cohere",      "cohere2",     "glm",   "glm4",
    "ernie4_5", "ernie4_5_moe", "cohere2_moe", "llama4_text", "helium"};
// Models without a rotary embedding.
constexpr absl::string_view kWithout[] = {"gpt2",  "gpt_neo", "opt",
                                          "bloom", "mpt",     "gpt_bigcode"};
// Fields of which one says that there is a rotary embedding.
constexpr const char* kFields[] = {
    "rope_theta", "rope_parameters", "rope_scaling",         "rotary_dim",
    "rotary_pct", "rotary_emb_base", "partial_rotary_factor"};

// Each fourth layer has no embedding unless they say otherwise.
constexpr absl::string_view kSkipping[] = {"llama4_text", "smollm3"};
constexpr uint32_t kSkippingInterval = 4;

absl::Status Invalid(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("model config: ", what));
}

// What `json` has as an object under `key`; null for anything else.
const Config& ObjectAt(const Config& json, const char* key) {
  static const auto* const none = new Config(Config::object());
  const auto found = json.find(key);
  return found != json.end() && found->is_object() ? *found : *none;
}

std::optional<double> NumberAt(const Config& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// A count as the messages have it; what makes no sense is refused later.
uint32_t Count(double number) {
  return static_cast<uint32_t>(std::clamp(number, 0.0, 65536.0));
}

std::string TextAt(const Config& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>()
                                                   : "";
}

// The first that has a number under one of the keys.
std::optional<double> FirstNumber(
    const std::vector<std::pair<const Config*, const char*>>& places) {
  for (const auto& [json, key] : places) {
    if (const auto number = NumberAt(*json, key)) return number;
  }
  return std::nullopt;
}

// Reads the configuration of a language model.
class Reader {
 public:
  explicit Reader(const Config& config)
      : config_(config),
        type_(TextAt(config, "model_type")),
        defaults_(DefaultsOf(type_)) {}

  absl::StatusOr<v1::RopeParameters> Read() {
    v1::RopeParameters rope;
    if (std::count(std::begin(kWithout), std::end(kWithout), type_) > 0) {
      return rope;
    }
    if (type_.empty() &&
        std::none_of(std::begin(kFields), std::end(kFields),
                     [&](const char* key) { return config_.contains(key); })) {
      return Invalid("it says nothing of a rotary embedding");
    }
    absl::Status status = HasKinds() ? ReadKinds(&rope)
                          : WindowTheta()
                              ? ReadLocalAndGlobal(&rope)
                              : Add(ObjectAt(config_, Parameters()), &rope);
    if (!status.ok()) return status;
    TakeAwayLayers(&rope);
    return rope;
  }

 private:
  const char* Parameters() const {
    return ObjectAt(config_, "rope_parameters").empty() ? "rope_scaling"
                                                        : "rope_parameters";
  }

  // Whether there are parameters, or none, for each kind of layer.
  bool HasKinds() const {
    const Config& all = ObjectAt(config_, "rope_parameters");
    return !all.empty() &&
           std::all_of(all.begin(), all.end(), [](const Config& each) {
             return each.is_object() || each.is_null();
           });
  }

  absl::Status ReadKinds(v1::RopeParameters* rope) {
    std::map<std::string, uint32_t> numbers;
    for (const auto& [kind, parameters] :
         ObjectAt(config_, "rope_parameters").items()) {
      uint32_t& number = numbers[kind];
      if (parameters.is_null()) continue;
      const absl::Status status = Add(parameters, rope);
      if (!status.ok()) return status;
      number = static_cast<uint32_t>(rope->embeddings_size());
    }
    return AddLayers(numbers, rope);
  }

  // `numbers` has the embedding of each kind of layer.
  absl::Status AddLayers(const std::map<std::string, uint32_t>& numbers,
                         v1::RopeParameters* rope) const {
    for (const std::string& kind : Kinds()) {
      const auto found = numbers.find(kind);
      if (found == numbers.end()) {
        return Invalid(
            absl::StrCat("layers of type ", kind, " have no rope_parameters"));
      }
      rope->add_layers(found->second);
    }
    if (rope->layers().empty()) {
      return Invalid(
          "kinds of layers differ, and neither layer_types nor "
          "num_hidden_layers says which layers there are");
    }
    return absl::OkStatus();
  }

  // The base of layers with a window, where it is one of their own.
  std::optional<double> WindowTheta() const {
    if (const auto theta = NumberAt(config_, "rope_local_base_freq")) {
      return theta;
    }
    if (defaults_.window_theta == 0) return std::nullopt;
    return defaults_.window_theta;
  }

  // Layers with a window have a base of their own, and no scaling (Gemma 3,
  // Olmo 3).
  absl::Status ReadLocalAndGlobal(v1::RopeParameters* rope) {
    const absl::Status status = Add(ObjectAt(config_, Parameters()), rope);
    if (!status.ok()) return status;
    *rope->add_embeddings() = rope->embeddings(0);
    rope->mutable_embeddings(1)->set_theta(*WindowTheta());
    rope->mutable_embeddings(1)->clear_scaling();
    return AddLayers({{"full_attention", 1}, {"sliding_attention", 2}}, rope);
  }

  // Of each layer, where it is known.
  std::vector<std::string> Kinds() const {
    const auto types = config_.find("layer_types");
    std::vector<std::string> kinds;
    if (types != config_.end() && types->is_array()) {
      for (const Config& each : *types) {
        kinds.push_back(each.is_string() ? each.get<std::string>() : "");
      }
      return kinds;
    }
    const uint32_t pattern =
        Count(FirstNumber({{&config_, "sliding_window_pattern"},
                           {&config_, "_sliding_window_pattern"}})
                  .value_or(defaults_.pattern == 0 ? 6 : defaults_.pattern));
    for (uint32_t layer = 1; layer <= Layers(); ++layer) {
      kinds.push_back(pattern != 0 && layer % pattern == 0
                          ? "full_attention"
                          : "sliding_attention");
    }
    return kinds;
  }

  uint32_t Layers() const {
    return Count(NumberAt(config_, "num_hidden_layers").value_or(0));
  }

  // Layers without an embedding.
  void TakeAwayLayers(v1::RopeParameters* rope) const {
    const std::vector<bool> with = LayersWithEmbedding();
    if (rope->layers().empty()) {
      for (size_t i = 0; i < with.size(); ++i) rope->add_layers(1);
    }
    for (int i = 0; i < rope->layers_size(); ++i) {
      const size_t layer = static_cast<size_t>(i);
      if (layer < with.size() && !with[layer]) rope->set_layers(i, 0);
    }
  }

  // Empty where all have one.
  std::vector<bool> LayersWithEmbedding() const {
    std::vector<bool> with;
    const auto said = config_.find("no_rope_layers");
    if (said != config_.end() && said->is_array()) {
      for (const Config& each : *said) with.push_back(each != 0);
    }
    const auto interval = NumberAt(config_, "no_rope_layer_interval");
    const bool skipping =
        std::count(std::begin(kSkipping), std::end(kSkipping), type_) > 0;
    if (!with.empty() || !(interval || skipping)) return with;
    const uint32_t every = Count(interval.value_or(kSkippingInterval));
    for (uint32_t layer = 1; layer <= Layers(); ++layer) {
      with.push_back(every == 0 || layer % every != 0);
    }
    return with;
  }

  absl::Status Add(const Config& parameters, v1::RopeParameters* rope) const {
    v1::RopeEmbedding& embedding = *rope->add_embeddings();
    embedding.set_theta(FirstNumber({{&parameters, "rope_theta"},
                                     {&config_, "rope_theta"},
                                     {&config_, "rotary_emb_base"}})
                            .value_or(defaults_.theta));
    if (std::count(std::begin(kInterleaved), std::end(kInterleaved), type_)) {
      embedding.set_pairs(v1::ROPE_PAIRS_INTERLEAVED);
    }
    const auto latent = NumberAt(config_, "kv_lora_rank");
    const auto rotary = NumberAt(config_, "qk_rope_head_dim");
    if (latent && rotary) {
      embedding.set_first_channel(Count(*latent));
      embedding.set_rotary_channels(Count(*rotary));
    } else {
      embedding.set_rotary_channels(RotaryChannels(parameters));
    }
    const absl::Status status = AddScaling(parameters, &embedding);
    if (status.ok() && embedding.theta() == 0) {
      return Invalid(
          absl::StrCat("it has no rope_theta, and that of model_type \"", type_,
                       "\" is not known here: add rope_theta"));
    }
    return status;
  }

  // 0: all.
  uint32_t RotaryChannels(const Config& parameters) const {
    if (const auto channels = NumberAt(config_, "rotary_dim")) {
      return Count(*channels);
    }
    const double factor = FirstNumber({{&parameters, "partial_rotary_factor"},
                                       {&config_, "partial_rotary_factor"},
                                       {&config_, "rotary_pct"}})
                              .value_or(defaults_.rotated);
    if (!(factor > 0 && factor < 1)) return 0;
    auto head = NumberAt(config_, "head_dim");
    if (!head) {
      const auto hidden = NumberAt(config_, "hidden_size");
      const auto heads = NumberAt(config_, "num_attention_heads");
      if (hidden && heads && *heads >= 1) {
        head = std::floor(*hidden / *heads);
      }
    }
    return Count(head.value_or(0) * factor);
  }

  absl::Status AddScaling(const Config& parameters,
                          v1::RopeEmbedding* embedding) const {
    std::string type = TextAt(parameters, "rope_type");
    if (type.empty()) type = TextAt(parameters, "type");
    // Those of text are the same for all axes.
    if (type.empty() || type == "default" || type == "mrope") {
      return absl::OkStatus();
    }
    const auto factor = NumberAt(parameters, "factor");
    if (type != "linear" && type != "llama3" && type != "yarn") {
      return Invalid(absl::StrCat(
          "rope_type ", type,
          " has frequencies that depend on the length of the prompt, or is "
          "not known: give -rope with the fields that hold, or none of them"));
    }
    if (!factor)
      return Invalid(absl::StrCat("rope_type ", type, " without a factor"));
    v1::RopeScaling& scaling = *embedding->mutable_scaling();
    if (type == "linear") {
      scaling.mutable_linear()->set_factor(*factor);
      return absl::OkStatus();
    }
    const double positions =
        FirstNumber({{&parameters, "original_max_position_embeddings"},
                     {&config_, "original_max_position_embeddings"},
                     {&config_, "max_position_embeddings"}})
            .value_or(0);
    if (type == "llama3") {
      v1::RopeScaling::Llama3& llama3 = *scaling.mutable_llama3();
      llama3.set_factor(*factor);
      llama3.set_original_positions(positions);
      if (const auto low = NumberAt(parameters, "low_freq_factor")) {
        llama3.set_low_frequency_factor(*low);
      }
      if (const auto high = NumberAt(parameters, "high_freq_factor")) {
        llama3.set_high_frequency_factor(*high);
      }
      return absl::OkStatus();
    }
    v1::RopeScaling::Yarn& yarn = *scaling.mutable_yarn();
    yarn.set_factor(*factor);
    yarn.set_original_positions(positions);
    if (const auto fast = NumberAt(parameters, "beta_fast")) {
      yarn.set_beta_fast(*fast);
    }
    if (const auto slow = NumberAt(parameters, "beta_slow")) {
      yarn.set_beta_slow(*slow);
    }
    const auto truncate = parameters.find("truncate");
    if (truncate != parameters.end() && truncate->is_boolean()) {
      yarn.set_truncate(truncate->get<bool>());
    }
    return absl::OkStatus();
  }

  const Config& config_;
  const std::string type_;
  const ModelDefaults defaults_;
};

}  // namespace

absl::StatusOr<v1::RopeParameters> ParseModelConfig(absl::string_view text) {
  const Config json = Config::parse(text.begin(), text.end(), nullptr, false);
  if (!json.is_object()) return Invalid("it is no JSON object");
  // Models of several kinds of input have that of the text inside.
  const Config& inner = ObjectAt(json, "text_config");
  return Reader(inner.empty() ? json : inner).Read();
}

absl::StatusOr<v1::RopeParameters> ReadModelConfig(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::InvalidArgumentError(
        absl::StrCat("model config: cannot open ", path));
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return ParseModelConfig(text);
}

}  // namespace kvcompress::cli
