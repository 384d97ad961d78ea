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
#include "codecs/option_schema.h"
#include "codecs/sparse/sparse.h"
#include "kvcompress/codec.h"
#include "kvcompress/error.h"
#include "kvcompress/nearest_name.h"
#include "profile/codec.h"
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

// Codecs with a byte compressor, by name.
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

absl::Status Refuse(absl::string_view reason, absl::string_view message) {
  return MakeError(absl::StatusCode::kInvalidArgument, message,
                   {.reason = std::string(reason), .field = "options.codec"});
}

std::vector<std::string> CodecNames() {
  std::vector<std::string> names;
  for (const Codec* codec : Registry()) names.push_back(codec->traits().name);
  return names;
}

// `suggestion` is for people who may have misspelt the name.
absl::Status UnknownCodec(absl::string_view name,
                          absl::string_view suggestion = "") {
  return Refuse(
      "UNKNOWN_CODEC",
      absl::StrCat("unknown codec ", QuoteName(name), "; this build has: ",
                   absl::StrJoin(CodecNames(), ", "), suggestion));
}

absl::Status UnknownByteCompressor(absl::string_view name) {
  return Refuse(
      "UNKNOWN_BYTE_COMPRESSOR",
      absl::StrCat("unknown byte compressor ", QuoteName(name),
                   "; this build has: ", absl::StrJoin(ByteCompressors(), ", "),
                   "; one may stand at the end: int4:64+zstd",
                   DidYouMean(name, ByteCompressors())));
}

}  // namespace

std::string CodecString(absl::string_view name, absl::string_view parameters,
                        absl::string_view byte_compressor) {
  return absl::StrCat(name, parameters.empty() ? "" : ":", parameters,
                      byte_compressor.empty() ? "" : "+", byte_compressor);
}

std::string CodecSpec::ToString() const {
  return CodecString(codec->base().traits().name, parameters.text(),
                     codec->byte_compressor());
}

std::string CodecSpec::ManifestField() const {
  return CodecString(codec->traits().name, parameters.text());
}

absl::Span<const Codec* const> AllCodecs() { return Registry(); }

const std::vector<std::string>& ByteCompressors() {
  static const auto* const names = [] {
    auto* const all = new std::vector<std::string>;
    for (const ByteCompressor* stage : kStages) all->push_back(stage->name);
    return all;
  }();
  return *names;
}

absl::StatusOr<CodecSpec> ParseCodec(absl::string_view text) {
  if (text.size() > kMaxCodecString) {
    return Refuse("INVALID_CODEC_OPTION",
                  absl::StrCat("the codec string has ", text.size(),
                               " bytes, but at most ", kMaxCodecString,
                               " are read: NAME[:PARAMETERS]"
                               "[+BYTE_COMPRESSOR]"));
  }
  const size_t plus = text.find('+');
  const absl::string_view front = text.substr(0, plus);
  const size_t colon = front.find(':');
  const absl::string_view name = front.substr(0, colon);
  const Codec* codec = Find(name);
  if (codec == nullptr) {
    return UnknownCodec(name, DidYouMean(name, CodecNames()));
  }
  if (plus != absl::string_view::npos) {
    const absl::string_view stage = text.substr(plus + 1);
    codec = Find(StagedName(*codec, stage));
    if (codec == nullptr) return UnknownByteCompressor(stage);
  }
  const absl::string_view parameters =
      colon == absl::string_view::npos ? "" : front.substr(colon + 1);
  if (colon != absl::string_view::npos && parameters.empty()) {
    return Refuse("INVALID_CODEC_OPTION",
                  absl::StrCat("parameters are missing after the colon of ",
                               QuoteName(text), "; ", name, " takes ",
                               DescribeOptions(codec->traits().options)));
  }
  KVC_ASSIGN_OR_RETURN(CodecParameters parsed, codec->Parse(parameters));
  return CodecSpec{codec, std::move(parsed)};
}

absl::StatusOr<CodecSpec> ParseManifestField(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  // Nobody asks for these by name, but for klt or lossless and a profile.
  const Codec* codec = FindProfileCodec(parts.first);
  if (codec == nullptr) codec = Find(parts.first);
  if (codec == nullptr || text.size() > kMaxCodecString) {
    return UnknownCodec(parts.first);
  }
  KVC_ASSIGN_OR_RETURN(CodecParameters parameters, codec->Parse(parts.second));
  CodecSpec spec{codec, std::move(parameters)};
  if (spec.ManifestField() != text || !codec->stored()) {
    return UnknownCodec(text);
  }
  return spec;
}

}  // namespace kvcompress
