// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A stream of chunks through compression and back: any input is refused, or
// produces an artefact that does not depend on how it was cut, decodes, and,
// when the codec is lossless, to the very same bytes.

#include <iterator>
#include <string>

#include "input.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/safetensors.h"
#include "restoring.h"

namespace kvcompress::fuzz {
namespace {

struct Outcome {
  absl::Status status;
  std::string artefact;
  std::string reconstructed;
};

Outcome Compress(const CompressOptions& options, absl::string_view file,
                 uint8_t seed) {
  Outcome outcome;
  CompressOutput output;
  Compressor compressor(options, {.max_header_bytes = 1 << 20});
  outcome.status = compressor.ValidateOptions();
  if (!outcome.status.ok()) return outcome;
  InChunks(file, seed, [&](absl::string_view chunk) {
    outcome.status = compressor.Append(chunk, &output);
    return outcome.status.ok();
  });
  if (!outcome.status.ok()) return outcome;
  const absl::StatusOr<CompressReport> report = compressor.Finish();
  outcome.status = report.status();
  if (!report.ok()) return outcome;
  outcome.artefact = compressor.header() + output.artefact;
  outcome.reconstructed = output.reconstructed;
  Require(report->compressed_size == outcome.artefact.size(),
          "the report has the size of the artefact");
  return outcome;
}

std::string Restore(absl::string_view artefact, uint8_t seed) {
  std::string restored;
  Decompressor decompressor({}, {});
  InChunks(artefact, seed, [&](absl::string_view chunk) {
    const absl::Status status =
        RestoreChunk(chunk, seed, &decompressor, &restored);
    Require(status.ok(), "an artefact of ours decodes");
    return true;
  });
  Require(decompressor.Finish().ok(), "an artefact of ours is complete");
  return restored;
}

// A file of one tensor, so that mutations reach the codecs: its values are the
// bytes that are left, over and over.
std::string FileOf(Input* input) {
  SafetensorsHeader header;
  SafetensorsEntry entry;
  entry.spec = DrawSpec(input);
  entry.spec.name = input->Byte() % 2 == 0 ? "layer_0_key" : "layer_0_value";
  entry.end = *ElementCount(entry.spec) * DTypeSize(entry.spec.dtype);
  header.data_size = entry.end;
  header.tensors.push_back(entry);
  return SerializeSafetensorsHeader(header) + Repeat(input->rest(), entry.end);
}

CompressOptions DrawOptions(Input* input) {
  const absl::Span<const Codec* const> codecs = AllCodecs();
  const Codec* codec = codecs[input->Byte() % codecs.size()];
  const std::vector<std::string> choices = codec->SelfTestParameters();
  const std::string& parameters = choices[input->Byte() % choices.size()];
  const size_t stage = input->UpTo(ByteCompressors().size());
  CompressOptions options;
  options.codec = CodecString(codec->traits().name, parameters,
                              stage == 0 ? "" : ByteCompressors()[stage - 1]);
  options.reconstruct = true;
  // Most fit few shapes.
  constexpr const char* kLayouts[] = {
      "",         "bthd",    "thd",       "hdt",   "td:h=1",
      "2ltd:h=2", "ltf:d=1", "(th)d:t=2", "paged", "ph(2s)d",
      "2pshd",    "phs(2d)", "mla:r=1",   "lbthd", "gtdh"};
  options.layout = kLayouts[input->UpTo(std::size(kLayouts) - 1)];
  return options;
}

void Fuzz(Input input) {
  const bool raw = input.Byte() % 4 == 0;
  const uint8_t seed = input.Byte();
  const CompressOptions options = DrawOptions(&input);
  const std::string file = raw ? std::string(input.rest()) : FileOf(&input);
  const Outcome chunked = Compress(options, file, seed);
  const Outcome whole = Compress(options, file, 0);
  Require(chunked.status.code() == whole.status.code(),
          "chunks do not matter to what is refused");
  if (!chunked.status.ok()) return;
  Require(chunked.artefact == whole.artefact, "chunks do not matter");
  const std::string restored = Restore(chunked.artefact, seed);
  Require(restored == chunked.reconstructed,
          "what decoding gives is what encoding said it would");
  const absl::StatusOr<CodecSpec> spec = ParseCodec(options.codec);
  if (spec->codec->base().traits().lossless && !raw) {
    Require(restored == file, "lossless means lossless");
  }
}

}  // namespace
}  // namespace kvcompress::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvcompress::fuzz::Fuzz({data, size});
  return 0;
}
