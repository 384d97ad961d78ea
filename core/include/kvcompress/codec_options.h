// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Options of codecs: what a codec declares of each, and the values that a codec
// string gives them.

#ifndef KVCOMPRESS_CODEC_OPTIONS_H_
#define KVCOMPRESS_CODEC_OPTIONS_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace kvcompress {

// One option of a codec. Parsing, messages, help, GetServerInfo and the text in
// artefacts all follow from it; see codecs/option_schema.h.
struct CodecOption {
  enum class Type { kBoolean, kInteger, kDecimal };

  std::string name;
  Type type = Type::kInteger;
  // The range of a number. A decimal has at most four digits after the point.
  double least = 0;
  double most = 0;
  // Where not empty, the only numbers taken.
  std::vector<double> values;
  // Not set: it is required where no preset is named, or the codec finds one.
  std::optional<double> default_value;
  bool required = false;
  // Whether the canonical text has it where it was not given. Not for options
  // that came after artefacts without them.
  bool always_written = false;
  // A sentence without its full stop.
  std::string description;

  // What is taken: "32, 64 or 128", "a number from 0 to 1", "true or false".
  std::string Range() const;
  // `values` as they would be given.
  std::vector<std::string> ValueTexts() const;
  // The default as it would be given; empty when there is none.
  std::string DefaultText() const;
};

// The values of a codec's options, as its schema read them, and their canonical
// text. Immutable and cheap to copy.
class CodecParameters {
 public:
  // Of a codec without options.
  CodecParameters() = default;

  template <typename T>
  static CodecParameters Of(std::string text, T values) {
    CodecParameters parameters;
    auto typed = std::make_shared<Typed<T>>();
    typed->text = std::move(text);
    typed->values = std::move(values);
    parameters.values_ = std::move(typed);
    return parameters;
  }

  absl::string_view text() const {
    return values_ == nullptr ? absl::string_view() : values_->text;
  }

  // REQUIRES: the codec that is asked returned them, and T is its type.
  template <typename T>
  const T& As() const {
    return static_cast<const Typed<T>&>(*values_).values;
  }

 private:
  struct Values {
    std::string text;
  };
  template <typename T>
  struct Typed : Values {
    T values;
  };

  std::shared_ptr<const Values> values_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODEC_OPTIONS_H_
