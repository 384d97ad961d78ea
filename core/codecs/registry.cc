// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The one place that lists codecs. A new codec is a new folder and a line here.

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "codecs/auto/auto.h"
#include "codecs/ecsq/ecsq.h"
#include "codecs/int4/int4.h"
#include "codecs/int4_hadamard/int4_hadamard.h"
#include "codecs/int4_kivi/int4_kivi.h"
#include "codecs/int8/int8.h"
#include "codecs/klt/klt.h"
#include "codecs/last_stage/compressor.h"
#include "codecs/last_stage/last_stage.h"
#include "codecs/lossless/lossless.h"
#include "codecs/sparse/sparse.h"
#include "kvcompress/codec.h"
#include "kvcompress/error.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

const Codec* Find(absl::string_view name);

std::string StagedName(const Codec& inner, absl::string_view stage) {
  return absl::StrCat(inner.traits().name, "+", stage);
}

const std::vector<const Codec*>& Registry() {
  static const auto* const codecs = new std::vector<const Codec*>{
      &Int4Codec(), &Int4HadamardCodec(), &Int4KiviCodec(),
      &Int8Codec(), &SparseCodec(),       &LosslessCodec(),
      &EcsqCodec(), &KltCodec(),          &AutoCodec(),
  };
  return *codecs;
}

const ByteCompressor* const kStages[] = {&Lz4(), &Zstd()};

// Codecs with a last stage, by name.
using StagedCodecs = std::map<std::string, std::unique_ptr<Codec>>;

const StagedCodecs& Staged() {
  static const auto* const all = [] {
    auto* const codecs = new StagedCodecs;
    for (const Codec* codec : Registry()) {
      for (const ByteCompressor* stage : kStages) {
        std::unique_ptr<Codec> staged =
            NewLastStage(*codec, *stage, [stage](const Codec& inner) {
              return Find(StagedName(inner, stage->name));
            });
        codecs->emplace(staged->traits().name, std::move(staged));
      }
    }
    return codecs;
  }();
  return *all;
}

const Codec* Find(absl::string_view name) {
  for (const Codec* codec : Registry()) {
    if (codec->traits().name == name) return codec;
  }
  const auto staged = Staged().find(std::string(name));
  return staged == Staged().end() ? nullptr : staged->second.get();
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

absl::Status UnknownStage(absl::string_view name) {
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("unknown last stage ", QuoteName(name),
                   "; this build has: ", absl::StrJoin(LastStages(), ", ")),
      {.reason = "UNKNOWN_LAST_STAGE", .field = "options.last_stage"});
}

bool HasParameter(const CodecTraits& traits, absl::string_view name) {
  return std::any_of(
      traits.parameters.begin(), traits.parameters.end(),
      [&](const CodecParameter& each) { return each.name == name; });
}

// Refuses an option that would do nothing.
absl::Status CheckOptions(const CodecTraits& traits,
                          const CodecChoice& choice) {
  const auto refuse = [&](absl::string_view option, absl::string_view reason) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat(traits.name, " has no ", option),
                     {.reason = std::string(reason),
                      .field = absl::StrCat("options.", option)});
  };
  if (choice.group_size && !HasParameter(traits, "group_size")) {
    return refuse("group_size", "INVALID_GROUP_SIZE");
  }
  if (choice.sparsity && !HasParameter(traits, "sparsity")) {
    return refuse("sparsity", "INVALID_SPARSITY");
  }
  if (!choice.preset.empty() && traits.presets.empty()) {
    return refuse("preset", "INVALID_PRESET");
  }
  return absl::OkStatus();
}

}  // namespace

std::string CodecSpec::ToString() const {
  return parameters.empty()
             ? codec->traits().name
             : absl::StrCat(codec->traits().name, ":", parameters);
}

absl::Span<const Codec* const> AllCodecs() { return Registry(); }

const std::vector<std::string>& LastStages() {
  static const auto* const names = [] {
    auto* const all = new std::vector<std::string>;
    for (const ByteCompressor* stage : kStages) all->push_back(stage->name);
    return all;
  }();
  return *names;
}

absl::StatusOr<CodecSpec> ResolveCodec(const CodecChoice& choice) {
  const Codec* codec = Find(choice.name);
  if (codec == nullptr || &codec->base() != codec) {
    return UnknownCodec(choice.name);
  }
  KVC_RETURN_IF_ERROR(CheckOptions(codec->traits(), choice));
  if (!choice.last_stage.empty()) {
    codec = Find(StagedName(*codec, choice.last_stage));
    if (codec == nullptr) return UnknownStage(choice.last_stage);
  }
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
