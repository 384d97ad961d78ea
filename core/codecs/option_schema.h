// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The schema of a codec's options: what they are called, take and default to,
// and where their values go. It is the one place that an option is declared in;
// parsing, messages, help, GetServerInfo and the text in artefacts follow.
//
//   struct Parameters {
//     uint32_t group = 0;
//   };
//
//   const OptionSchema<Parameters>& Schema() {
//     static const auto* const schema = new OptionSchema<Parameters>(
//         "int4", {{GroupSizeOption(), [](double value, Parameters* out) {
//                     out->group = static_cast<uint32_t>(value);
//                   }}});
//     return *schema;
//   }
//
// Internal to the library.

#ifndef KVCOMPRESS_CODECS_OPTION_SCHEMA_H_
#define KVCOMPRESS_CODECS_OPTION_SCHEMA_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/codec.h"
#include "status/macros.h"

namespace kvcompress {

// The longest codec string that is read, in bytes.
inline constexpr size_t kMaxCodecString = 256;

// What PARAMETERS of a codec string say: a preset, or values.
struct OptionValues {
  std::optional<size_t> preset;
  // For each option; empty with a preset.
  std::vector<std::optional<double>> values;
  std::string canonical_text;
};

// Reads `text`: "", a preset, or VALUE,...,NAME=VALUE,... with the values that
// have no name first, in the order of the options. Each number has one form:
// "0.52", but not "00.52", ".52", "0.520" or "1.". INVALID_ARGUMENT, with the
// option and what it takes.
absl::StatusOr<OptionValues> ParseOptions(
    absl::string_view codec, const std::vector<CodecOption>& options,
    const std::vector<std::string>& presets, absl::string_view text);

// "group_size (32, 64 or 128; default 64)" for each option; "no options".
std::string DescribeOptions(const std::vector<CodecOption>& options);

// How many consecutive elements share a scale, for the codecs that scale so.
CodecOption GroupSizeOption();

// A schema whose values go into a T.
template <typename T>
class OptionSchema {
 public:
  struct Option {
    CodecOption option;
    std::function<void(double value, T* out)> set;
  };
  struct Preset {
    std::string name;
    T values;
  };

  // The first preset is what a codec string without parameters stands for.
  OptionSchema(std::string codec, std::vector<Option> options,
               std::vector<Preset> presets = {})
      : codec_(std::move(codec)) {
    for (Option& option : options) {
      options_.push_back(std::move(option.option));
      setters_.push_back(std::move(option.set));
    }
    for (Preset& preset : presets) {
      preset_names_.push_back(std::move(preset.name));
      preset_values_.push_back(std::move(preset.values));
    }
  }

  const std::string& codec() const { return codec_; }
  const std::vector<CodecOption>& options() const { return options_; }
  const std::vector<std::string>& presets() const { return preset_names_; }

  // As Codec::Parse.
  absl::StatusOr<CodecParameters> Parse(absl::string_view text) const {
    KVC_ASSIGN_OR_RETURN(OptionValues parsed,
                         ParseOptions(codec_, options_, preset_names_, text));
    if (parsed.preset) {
      return CodecParameters::Of(std::move(parsed.canonical_text),
                                 preset_values_[*parsed.preset]);
    }
    T out;
    for (size_t i = 0; i < setters_.size(); ++i) {
      if (parsed.values[i]) setters_[i](*parsed.values[i], &out);
    }
    return CodecParameters::Of(std::move(parsed.canonical_text),
                               std::move(out));
  }

 private:
  const std::string codec_;
  std::vector<CodecOption> options_;
  std::vector<std::function<void(double, T*)>> setters_;
  std::vector<std::string> preset_names_;
  std::vector<T> preset_values_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_OPTION_SCHEMA_H_
