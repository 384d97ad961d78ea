// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The one place that lists codecs. A new codec is a new folder and a line here.

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "codecs/auto/auto.h"
#include "codecs/ecsq/ecsq.h"
#include "codecs/int4/int4.h"
#include "codecs/int4_hadamard/int4_hadamard.h"
#include "codecs/int8/int8.h"
#include "codecs/lossless/lossless.h"
#include "kvcompress/codec.h"
#include "kvcompress/error.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

const std::vector<const Codec*>& Registry() {
  static const auto* const codecs = new std::vector<const Codec*>{
      &Int4Codec(),     &Int4HadamardCodec(), &Int8Codec(),
      &LosslessCodec(), &EcsqCodec(),         &AutoCodec(),
  };
  return *codecs;
}

const Codec* Find(absl::string_view name) {
  for (const Codec* codec : Registry()) {
    if (codec->traits().name == name) return codec;
  }
  return nullptr;
}

absl::Status UnknownCodec(absl::string_view name) {
  const std::string known =
      absl::StrJoin(Registry(), ", ", [](std::string* out, const Codec* codec) {
        out->append(codec->traits().name);
      });
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("unknown codec ", QuoteName(name),
                                "; this build has: ", known),
                   {.reason = "UNKNOWN_CODEC", .field = "options.codec"});
}

}  // namespace

std::string CodecSpec::ToString() const {
  return parameters.empty()
             ? codec->traits().name
             : absl::StrCat(codec->traits().name, ":", parameters);
}

absl::Span<const Codec* const> AllCodecs() { return Registry(); }

absl::StatusOr<CodecSpec> ResolveCodec(const CodecChoice& choice) {
  const Codec* codec = Find(choice.name);
  if (codec == nullptr) return UnknownCodec(choice.name);
  KVC_ASSIGN_OR_RETURN(std::string parameters, codec->Resolve(choice));
  return CodecSpec{codec, std::move(parameters)};
}

absl::StatusOr<CodecSpec> ParseCodecSpec(absl::string_view text) {
  const std::vector<std::string> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const Codec* codec = Find(parts[0]);
  if (codec == nullptr) return UnknownCodec(parts[0]);
  CodecSpec spec{codec, parts.size() > 1 ? parts[1] : ""};
  if (spec.ToString() != text || !codec->stored()) return UnknownCodec(text);
  // Asking for a size makes the codec check its parameters.
  KVC_RETURN_IF_ERROR(
      codec->MaxEncodedSize(TensorSpec(), spec.parameters).status());
  return spec;
}

}  // namespace kvcompress
