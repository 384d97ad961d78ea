// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/compressor.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "digest/digest.h"
#include "kvcompress/error.h"
#include "metrics/token_quality.h"
#include "pipeline/attention.h"
#include "pipeline/hints.h"
#include "pipeline/tensor_table.h"
#include "pipeline/working_memory.h"
#include "status/macros.h"
#include "tensor/slabs.h"

namespace kvcompress {
namespace {

// Bytes that are encoded, decoded and measured before the next are: few enough
// that they are still in a processor's nearer caches.
constexpr uint64_t kAtOnce = 64 << 10;

absl::Status Invalid(absl::string_view message, const ErrorDetail& detail) {
  return MakeError(absl::StatusCode::kInvalidArgument, message, detail);
}

}  // namespace

class Compressor::Impl {
 public:
  Impl(CompressOptions options, CompressLimits limits)
      : options_(std::move(options)),
        limits_(std::move(limits)),
        codec_(ParseCodec(options_.codec)),
        header_reader_(limits_.max_header_bytes) {}

  absl::Status ValidateOptions() const {
    KVC_RETURN_IF_ERROR(ValidateRope(options_));
    KVC_RETURN_IF_ERROR(ValidateAttention(options_.attention));
    KVC_RETURN_IF_ERROR(ValidateThresholds(options_.thresholds));
    KVC_RETURN_IF_ERROR(ValidateThresholds(ThresholdsOf(TensorRole::kKey)));
    KVC_RETURN_IF_ERROR(ValidateThresholds(ThresholdsOf(TensorRole::kValue)));
    KVC_RETURN_IF_ERROR(ValidateRolePatterns(options_.roles));
    KVC_RETURN_IF_ERROR(ValidateLabels(options_.labels));
    return codec_.status();
  }

  absl::Status Append(absl::string_view bytes, CompressOutput* output) {
    if (!begun_) {
      KVC_RETURN_IF_ERROR(header_reader_.Append(&bytes));
      if (!header_reader_.done()) return absl::OkStatus();
      KVC_ASSIGN_OR_RETURN(SafetensorsHeader header,
                           ParseSafetensorsHeader(header_reader_.json()));
      position_ = header_reader_.raw().size();
      KVC_RETURN_IF_ERROR(Begin(std::move(header), output));
      header_reader_ = SafetensorsHeaderReader(0);
    }
    return AppendData(bytes, output);
  }

  absl::Status DeclareTensors(
      const std::vector<TensorSpec>& tensors,
      std::vector<std::pair<std::string, std::string>> metadata,
      CompressOutput* output) {
    KVC_ASSIGN_OR_RETURN(SafetensorsHeader header,
                         HeaderOf(tensors, std::move(metadata)));
    // Parsing what a file would begin with applies every rule of the format.
    const std::string raw = SerializeSafetensorsHeader(header);
    if (raw.size() - 8 > limits_.max_header_bytes) {
      return MakeError(
          absl::StatusCode::kOutOfRange,
          absl::StrCat("the table of tensors needs a header of ",
                       raw.size() - 8, " bytes"),
          {.reason = "HEADER_TOO_LARGE", .limit = limits_.max_header_bytes});
    }
    KVC_RETURN_IF_ERROR(
        ParseSafetensorsHeader(absl::string_view(raw).substr(8)).status());
    return Begin(std::move(header), output);
  }

  absl::Status AppendTensor(absl::string_view tensor, absl::string_view bytes,
                            CompressOutput* output) {
    const bool more = index_ < artefact_.tensors.size();
    if (!tensor.empty() && (!more || tensor != Current().spec.name)) {
      return Invalid(
          absl::StrCat("data of this tensor came when ",
                       more ? QuoteName(Current().spec.name) : "no data",
                       " was due"),
          {.reason = "WRONG_TENSOR", .tensor = std::string(tensor)});
    }
    if (more && bytes.size() > remaining_) {
      return Invalid(absl::StrCat("a chunk of ", bytes.size(),
                                  " bytes runs over the end of the tensor"),
                     {.reason = "CHUNK_TOO_LARGE",
                      .tensor = Current().spec.name,
                      .offset = position_,
                      .limit = remaining_});
    }
    return AppendData(bytes, output);
  }

  absl::StatusOr<CompressReport> Finish() {
    if (!begun_) return header_reader_.TruncatedError();
    if (index_ < artefact_.tensors.size()) {
      return Invalid(absl::StrCat("the input ends ", remaining_,
                                  " bytes before the end of the tensor"),
                     {.reason = "TRUNCATED",
                      .tensor = Current().spec.name,
                      .offset = position_});
    }
    KVC_ASSIGN_OR_RETURN(header_,
                         SerializeArtefactHeader(reserved_size_, &artefact_));
    report_.compressed_size = reserved_size_ + payload_size_;
    report_.metrics = pooled_.Compute();
    AddTokenMetrics(pooled_tokens_, &report_.metrics);
    report_.verdict = Judge(report_.metrics, options_.thresholds);
    if (report_.elements > 0) {
      const double elements = static_cast<double>(report_.elements);
      const double bytes = static_cast<double>(report_.compressed_size);
      report_.compression_ratio = 2 * elements / bytes;
      report_.bits_per_value = 8 * bytes / elements;
    }
    report_.payload_digest = artefact_.checksum;
    return std::move(report_);
  }

  uint64_t working_bytes(uint64_t next) const {
    if (!begun_) {
      return kHeaderMemory * std::min(header_reader_.raw().size() + next,
                                      header_reader_.announced_size());
    }
    return kHeaderMemory * reserved_size_ + tensor_memory_;
  }

  bool begun() const { return begun_; }
  uint64_t reserved_size() const { return reserved_size_; }
  uint64_t original_size() const { return report_.original_size; }
  uint64_t tensor_count() const { return artefact_.tensors.size(); }
  const std::string& codec() const { return report_.codec; }
  const std::string& header() const { return header_; }

 private:
  // Takes over the header of the input, of a file or of a table.
  absl::Status Begin(SafetensorsHeader header, CompressOutput* output) {
    KVC_RETURN_IF_ERROR(ValidateOptions());
    const CodecSpec& codec = *codec_;
    if (header.metadata.size() > kMaxMetadata) {
      return Invalid(
          absl::StrCat("the metadata has ", header.metadata.size(), " entries"),
          {.reason = "TOO_MUCH_METADATA", .limit = kMaxMetadata});
    }
    for (const auto& [key, value] : header.metadata) {
      if (IsReservedMetadataKey(key)) {
        return MakeError(
            absl::StatusCode::kFailedPrecondition,
            absl::StrCat("the input is already compressed: its metadata has ",
                         QuoteName(key)),
            {.reason = "ALREADY_COMPRESSED"});
      }
    }
    if (options_.reconstruct) {
      output->reconstructed = SerializeSafetensorsHeader(header);
    }
    for (SafetensorsEntry& entry : header.tensors) {
      KVC_ASSIGN_OR_RETURN(const CodecSpec own,
                           CodecFor(entry.spec.dtype, codec));
      const CodecTraits& traits = own.codec->traits();
      KVC_RETURN_IF_ERROR(
          CheckTensor(entry, position_, traits, limits_.max_tensor_bytes));
      tensor_memory_ = std::max(
          tensor_memory_, EncoderMemory(entry, traits, options_.reconstruct));
      artefact_.tensors.push_back(
          {.spec = std::move(entry.spec), .codec = own});
    }
    KVC_RETURN_IF_ERROR(AssignRolesTo(options_.roles, &artefact_.tensors));
    KVC_RETURN_IF_ERROR(CheckThresholdsMatch(options_, artefact_.tensors));
    KVC_RETURN_IF_ERROR(CheckAttention(
        options_.attention, codec.codec->traits(), artefact_.tensors));
    hints_ = HintsFrom(options_, header.metadata);
    hints_.buffers = &buffers_;
    if (limits_.still_wanted) {
      hints_.checkpoint = &checkpoint_.emplace(limits_.still_wanted);
    }
    artefact_.labels = options_.labels;
    artefact_.metadata = std::move(header.metadata);
    report_.codec = codec.ToString();
    report_.original_size = header.data_size;
    ReportRoles(codec.codec->traits(), artefact_.tensors, &report_);
    KVC_ASSIGN_OR_RETURN(reserved_size_, ReservedHeaderSize(artefact_));
    begun_ = true;
    KVC_RETURN_IF_ERROR(StartTensor());
    return FinishCompleteTensors(output);
  }

  absl::Status AppendData(absl::string_view bytes, CompressOutput* output) {
    while (!bytes.empty()) {
      if (index_ == artefact_.tensors.size()) {
        return Invalid(absl::StrCat(bytes.size(),
                                    " bytes follow the end of the last tensor"),
                       {.reason = "TRAILING_BYTES", .offset = position_});
      }
      if (Stops(hints_.checkpoint)) return hints_.checkpoint->status();
      const absl::string_view part =
          bytes.substr(0, std::min(remaining_, kAtOnce));
      if (tokens_) tokens_->AddSource(part);
      bytes.remove_prefix(part.size());
      remaining_ -= part.size();
      position_ += part.size();
      KVC_RETURN_IF_ERROR(Encode(output, [&](std::string* decoded) {
        return encoder_->Append(part, &output->artefact, decoded);
      }));
      KVC_RETURN_IF_ERROR(FinishCompleteTensors(output));
    }
    return absl::OkStatus();
  }

  // Runs a step of the encoder and accounts for the payload it gave.
  template <typename Step>
  absl::Status Encode(CompressOutput* output, Step step) {
    const size_t before = output->artefact.size();
    scratch_.clear();
    std::string* const decoded =
        options_.reconstruct ? &output->reconstructed : &scratch_;
    const size_t decoded_before = decoded->size();
    KVC_RETURN_IF_ERROR(
        step(tokens_ || options_.reconstruct ? decoded : nullptr));
    if (tokens_) {
      tokens_->AddDecoded(absl::string_view(*decoded).substr(decoded_before),
                          hints_.checkpoint);
    }
    const absl::string_view added =
        absl::string_view(output->artefact).substr(before);
    InSlabs(hints_.checkpoint, added.size(), [&](size_t first, size_t size) {
      digest_.Update(added.substr(first, size));
    });
    KVC_RETURN_IF_ERROR(StatusOf(hints_.checkpoint));
    Current().payload_size += added.size();
    payload_size_ += added.size();
    return absl::OkStatus();
  }

  // Sets up the encoder of the tensor at index_, if there is one.
  absl::Status StartTensor() {
    if (index_ == artefact_.tensors.size()) return absl::OkStatus();
    const ArtefactTensor& tensor = Current();
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(tensor.spec));
    remaining_ = elements * DTypeSize(tensor.spec.dtype);
    tensor_size_ = remaining_;
    report_.elements += elements;
    hints_.thresholds = ThresholdsOf(tensor.spec.role);
    attention_.Tell(tensor.spec, options_.attention, &hints_);
    KVC_RETURN_IF_ERROR(CheckRope(*tensor.codec.codec, tensor.spec, hints_));
    KVC_ASSIGN_OR_RETURN(encoder_,
                         tensor.codec.codec->NewEncoder(
                             tensor.spec, tensor.codec.parameters, hints_));
    digest_ = Digest();
    tokens_.reset();
    if (TokenAccumulator::Applies(tensor.spec) &&
        !encoder_->measures_tokens()) {
      tokens_.emplace(tensor.spec);
    }
    return absl::OkStatus();
  }

  // Ends the current tensor if all of it has come, and the empty ones after it.
  absl::Status FinishCompleteTensors(CompressOutput* output) {
    while (index_ < artefact_.tensors.size() && remaining_ == 0) {
      KVC_RETURN_IF_ERROR(Encode(output, [&](std::string* decoded) {
        return encoder_->Finish(&output->artefact, decoded);
      }));
      ArtefactTensor& tensor = Current();
      if (encoder_->chosen() != nullptr) tensor.codec = *encoder_->chosen();
      KeyHints told = encoder_->key_hints();
      tensor.digest = digest_.Hex();
      AddReport(tensor, told);
      attention_.Learn(tensor.spec, std::move(told));
      ++index_;
      KVC_RETURN_IF_ERROR(StartTensor());
    }
    return absl::OkStatus();
  }

  void AddReport(const ArtefactTensor& tensor, const KeyHints& told) {
    TensorReport report;
    report.rope = told.rope;
    report.spec = tensor.spec;
    report.codec = tensor.codec.ToString();
    report.original_size = tensor_size_;
    report.compressed_size = tensor.payload_size;
    report.metrics = encoder_->distortion().Compute();
    if (IsNumber(tensor.spec.dtype)) JudgeTensor(&report);
    report.digest = tensor.digest;
    if (!report.verdict.passed) ++report_.tensors_failed;
    if (report.metrics.snr_db &&
        (report_.worst_tensor < 0 ||
         *report.metrics.snr_db <
             *report_.tensors[report_.worst_tensor].metrics.snr_db)) {
      report_.worst_tensor = static_cast<int64_t>(report_.tensors.size());
    }
    report_.tensors.push_back(std::move(report));
  }

  // Of a tensor of numbers: what is none is exact, and bounds are not on it.
  void JudgeTensor(TensorReport* report) {
    pooled_.Merge(encoder_->distortion());
    const TokenSums sums = SumsOfTokens(*report);
    AddTokenMetrics(sums, &report->metrics);
    pooled_tokens_.Merge(sums);
    report->verdict = Judge(report->metrics, ThresholdsOf(report->spec.role));
  }

  TokenSums SumsOfTokens(const TensorReport& report) {
    if (tokens_) return tokens_->Compute();
    const TokenSums* const measured = encoder_->token_sums();
    if (measured != nullptr) return *measured;
    return TokenSums::Unknown(report.spec, report.metrics.max_error);
  }

  const QualityThresholds& ThresholdsOf(TensorRole role) const {
    const std::optional<QualityThresholds>& own =
        role == TensorRole::kKey ? options_.key_thresholds
                                 : options_.value_thresholds;
    return own && role != TensorRole::kNone ? *own : options_.thresholds;
  }

  ArtefactTensor& Current() { return artefact_.tensors[index_]; }

  const CompressOptions options_;
  const CompressLimits limits_;
  const absl::StatusOr<CodecSpec> codec_;
  std::optional<Checkpoint> checkpoint_;  // outlives the encoder
  SafetensorsHeaderReader header_reader_;
  bool begun_ = false;
  uint64_t position_ = 0;  // in the input
  uint64_t reserved_size_ = 0;
  uint64_t tensor_memory_ = 0;  // bytes that the largest tensor takes
  uint64_t payload_size_ = 0;
  EncodeHints hints_;
  AttentionHints attention_;
  ArtefactHeader artefact_;
  CompressReport report_;
  DistortionAccumulator pooled_;
  TokenSums pooled_tokens_;
  std::string header_;

  // The tensor that is being encoded.
  size_t index_ = 0;
  uint64_t remaining_ = 0;  // bytes of it still to come
  uint64_t tensor_size_ = 0;
  EncoderBuffers buffers_;  // outlives the encoder
  std::unique_ptr<TensorEncoder> encoder_;
  std::optional<TokenAccumulator> tokens_;
  std::string scratch_;  // what is decoded only to be measured
  Digest digest_;
};

Compressor::Compressor(CompressOptions options, CompressLimits limits)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(limits))) {}
Compressor::~Compressor() = default;

absl::Status Compressor::ValidateOptions() const {
  return impl_->ValidateOptions();
}
absl::Status Compressor::Append(absl::string_view bytes,
                                CompressOutput* output) {
  return impl_->Append(bytes, output);
}
absl::Status Compressor::DeclareTensors(
    const std::vector<TensorSpec>& tensors,
    std::vector<std::pair<std::string, std::string>> metadata,
    CompressOutput* output) {
  return impl_->DeclareTensors(tensors, std::move(metadata), output);
}
absl::Status Compressor::AppendTensor(absl::string_view tensor,
                                      absl::string_view bytes,
                                      CompressOutput* output) {
  return impl_->AppendTensor(tensor, bytes, output);
}
absl::StatusOr<CompressReport> Compressor::Finish() { return impl_->Finish(); }
bool Compressor::begun() const { return impl_->begun(); }
uint64_t Compressor::working_bytes(uint64_t next) const {
  return impl_->working_bytes(next);
}
uint64_t Compressor::reserved_header_size() const {
  return impl_->reserved_size();
}
uint64_t Compressor::original_size() const { return impl_->original_size(); }
uint64_t Compressor::tensor_count() const { return impl_->tensor_count(); }
const std::string& Compressor::codec() const { return impl_->codec(); }
const std::string& Compressor::header() const { return impl_->header(); }

}  // namespace kvcompress
