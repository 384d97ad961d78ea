// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "self_test.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "call.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/error.h"
#include "service.h"

namespace kvcompress {
namespace {

// White noise is the hardest cache there is; every preset of every codec keeps
// more than this of it.
constexpr double kLeastSnrDb = 6;

// A cache of keys and values in every type, with a length that no block or
// group divides. Values are spread over [-0.5, 0.5) by a linear congruential
// generator (Knuth, MMIX), so that any machine builds the same bytes.
struct BuiltInCache {
  std::vector<TensorSpec> tensors;
  std::string data;
};

BuiltInCache MakeCache() {
  BuiltInCache cache;
  uint64_t state = 1;
  uint32_t layer = 0;
  for (DType dtype : NumberDTypes()) {
    for (absl::string_view role : {"key", "value"}) {
      TensorSpec spec;
      spec.name = absl::StrCat("layer_", layer, "_", role);
      spec.dtype = dtype;
      spec.shape = {1, 2, 37, 64};
      for (uint64_t i = 0; i < uint64_t{2} * 37 * 64; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const float value = static_cast<float>(state >> 40) * 0x1p-24f - 0.5f;
        AppendElement(dtype, value, &cache.data);
      }
      cache.tensors.push_back(std::move(spec));
    }
    ++layer;
  }
  return cache;
}

absl::StatusOr<CompressReport> RunCodec(const std::string& codec,
                                        const BuiltInCache& cache,
                                        bool lossless) {
  CompressOptions options;
  options.codec = codec;
  options.reconstruct = true;
  Compressor compressor(std::move(options), {});
  CompressOutput output;
  if (absl::Status status =
          compressor.DeclareTensors(cache.tensors, {}, &output);
      !status.ok()) {
    return status;
  }
  const size_t header_size = output.reconstructed.size();
  size_t position = 0;
  for (const TensorSpec& spec : cache.tensors) {
    const absl::StatusOr<uint64_t> elements = ElementCount(spec);
    if (!elements.ok()) return elements.status();
    const size_t size = *elements * DTypeSize(spec.dtype);
    if (absl::Status status = compressor.AppendTensor(
            spec.name, absl::string_view(cache.data).substr(position, size),
            &output);
        !status.ok()) {
      return status;
    }
    position += size;
  }
  absl::StatusOr<CompressReport> report = compressor.Finish();
  if (!report.ok()) return report;

  std::string artefact = compressor.header() + output.artefact;
  const absl::StatusOr<std::string> restored = RestoreWhole(artefact);
  if (!restored.ok()) return restored.status();
  if (*restored != output.reconstructed) {
    return absl::InternalError(
        "decoded values differ from those the encoder reported");
  }
  if (lossless && restored->substr(header_size) != cache.data) {
    return absl::InternalError("a lossless codec changed a value");
  }
  if (report->metrics.snr_db && *report->metrics.snr_db < kLeastSnrDb) {
    return absl::InternalError(absl::StrCat("quality is too low: SNR ",
                                            *report->metrics.snr_db, " dB"));
  }
  artefact[artefact.size() / 2] ^= 1;
  if (RestoreWhole(artefact).status().code() != absl::StatusCode::kDataLoss) {
    return absl::InternalError("a flipped bit was not detected");
  }
  return report;
}

}  // namespace

absl::StatusOr<std::vector<SelfTestOutcome>> SelfTest(absl::string_view codec) {
  if (!codec.empty()) {
    const absl::StatusOr<CodecSpec> known = ParseCodec(codec);
    if (!known.ok()) return known.status();
    const std::string& name = known->codec->base().traits().name;
    if (name != codec) {
      return MakeError(absl::StatusCode::kInvalidArgument,
                       absl::StrCat("SelfTest takes the name of a codec, ",
                                    name, ", not ", QuoteName(codec)),
                       {.reason = "UNKNOWN_CODEC", .field = "codec"});
    }
  }
  const BuiltInCache cache = MakeCache();
  std::vector<SelfTestOutcome> outcomes;
  for (const Codec* candidate : AllCodecs()) {
    const CodecTraits& traits = candidate->traits();
    if (!codec.empty() && codec != traits.name) continue;
    std::vector<std::string> codecs;
    for (const std::string& parameters : candidate->SelfTestParameters()) {
      codecs.push_back(CodecString(traits.name, parameters));
    }
    for (const std::string& compressor : ByteCompressors()) {
      codecs.push_back(CodecString(traits.name, "", compressor));
    }
    for (const std::string& text : codecs) {
      SelfTestOutcome outcome;
      const absl::StatusOr<CodecSpec> spec = ParseCodec(text);
      outcome.codec = spec.ok() ? spec->ToString() : text;
      {
        const StageTimer timer(&outcome.seconds);
        absl::StatusOr<CompressReport> report =
            RunCodec(text, cache, traits.lossless);
        outcome.status = report.status();
        if (report.ok()) outcome.report = *std::move(report);
      }
      outcomes.push_back(std::move(outcome));
    }
  }
  return outcomes;
}

absl::StatusOr<std::vector<SelfTestOutcome>> RecentSelfTests::Get(
    const std::string& codec) {
  const absl::MutexLock lock(&mutex_);
  if (const auto found = recent_.find(codec);
      found != recent_.end() && now_() - found->second.ended < kFresh) {
    return found->second.outcomes;
  }
  absl::StatusOr<std::vector<SelfTestOutcome>> outcomes = SelfTest(codec);
  if (outcomes.ok()) recent_[codec] = {*outcomes, now_()};
  return outcomes;
}

absl::Status SelfTestQueue::Add(absl::string_view client,
                                std::function<void()> task) {
  if (++waiting_ > kMaxWaiting) {
    --waiting_;
    return MakeError(absl::StatusCode::kResourceExhausted,
                     "too many self-tests wait already",
                     {.reason = "TOO_MANY_STREAMS", .limit = kMaxWaiting});
  }
  try {
    workers_.Run(client, [this, task = std::move(task)] {
      --waiting_;
      task();
    });
  } catch (const std::bad_alloc&) {
    --waiting_;
    throw;
  }
  return absl::OkStatus();
}

absl::Status RunSelfTest() {
  const absl::StatusOr<std::vector<SelfTestOutcome>> outcomes = SelfTest("");
  if (!outcomes.ok()) return outcomes.status();
  for (const SelfTestOutcome& outcome : *outcomes) {
    if (outcome.status.ok()) continue;
    return MakeError(absl::StatusCode::kInternal,
                     absl::StrCat("self-test of ", outcome.codec,
                                  " failed: ", outcome.status.message()),
                     {.reason = "SELF_TEST_FAILED"});
  }
  return absl::OkStatus();
}

}  // namespace kvcompress
