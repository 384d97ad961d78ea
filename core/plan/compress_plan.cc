// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "plan/compress_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "kvcompress/layout.h"
#include "kvcompress/metric_table.h"
#include "pipeline/attention.h"
#include "pipeline/hints.h"
#include "pipeline/tensor_table.h"
#include "pipeline/views.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

// INVALID_ARGUMENT for a bound on what is not measured.
absl::Status CheckMetricsLevel(const CompressOptions& options,
                               const ReportBuilder& builder) {
  if (options.metrics == MetricsLevel::kFull) return absl::OkStatus();
  for (const QualityThresholds& thresholds :
       {options.thresholds, builder.ThresholdsOf(TensorRole::kKey),
        builder.ThresholdsOf(TensorRole::kValue)}) {
    for (const MetricTraits& metric : AllMetrics()) {
      if (metric.scope == MetricScope::kAll || metric.bound == nullptr ||
          !(thresholds.*metric.bound)) {
        continue;
      }
      return MakeError(absl::StatusCode::kInvalidArgument,
                       absl::StrCat(metric.bound_name, " bounds ", metric.name,
                                    ", which basic metrics leave out"),
                       {.reason = "THRESHOLD_NEEDS_FULL_METRICS",
                        .field = "options.metrics"});
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMetadata(const SafetensorsHeader& header) {
  if (header.metadata.size() > kMaxMetadata) {
    return MakeError(
        absl::StatusCode::kInvalidArgument,
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
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateCompressOptions(const CompressOptions& options,
                                     const ReportBuilder& builder) {
  KVC_RETURN_IF_ERROR(ValidateRope(options));
  KVC_RETURN_IF_ERROR(ValidateLayout(options.layout));
  KVC_RETURN_IF_ERROR(ValidateAttention(options.attention));
  KVC_RETURN_IF_ERROR(ValidateThresholds(options.thresholds));
  KVC_RETURN_IF_ERROR(
      ValidateThresholds(builder.ThresholdsOf(TensorRole::kKey)));
  KVC_RETURN_IF_ERROR(
      ValidateThresholds(builder.ThresholdsOf(TensorRole::kValue)));
  KVC_RETURN_IF_ERROR(CheckMetricsLevel(options, builder));
  KVC_RETURN_IF_ERROR(ValidateRolePatterns(options.roles));
  if (options.block_tokens < kLeastBlockTokens ||
      options.block_tokens > kMaxBlockTokens) {
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("blocks have ", kLeastBlockTokens, " to ", kMaxBlockTokens,
                     " tokens, not ", options.block_tokens),
        {.reason = "INVALID_OPTIONS", .field = "options.block_tokens"});
  }
  return ValidateLabels(options.labels);
}

absl::StatusOr<CompressPlan> CompressPlan::Make(const CompressOptions& options,
                                                const CompressLimits& limits,
                                                const CodecSpec& codec,
                                                Input input,
                                                Checkpoint* checkpoint,
                                                CompressReport* report) {
  CompressPlan plan;
  SafetensorsHeader& header = input.header;
  ArtefactHeader& artefact = plan.artefact;
  KVC_RETURN_IF_ERROR(CheckMetadata(header));
  if (options.reconstruct) {
    plan.source_header = SerializeSafetensorsHeader(header, checkpoint);
    KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  }
  KVC_ASSIGN_OR_RETURN(const std::string layout,
                       DefaultLayout(options, header.metadata));
  KVC_RETURN_IF_ERROR(
      AssignRolesTo(options.roles, checkpoint, &header.tensors));
  uint64_t views = 0;
  for (SafetensorsEntry& entry : header.tensors) {
    if (StopsAt(artefact.tensors.size(), checkpoint)) {
      return checkpoint->status();
    }
    KVC_ASSIGN_OR_RETURN(const CodecSpec own,
                         CodecFor(entry.spec.dtype, codec));
    KVC_ASSIGN_OR_RETURN(
        const uint64_t memory,
        AddTensor(std::move(entry), layout, own, input.position, options,
                  limits, &views, &artefact));
    plan.tensor_memory = std::max(plan.tensor_memory, memory);
  }
  KVC_RETURN_IF_ERROR(CheckThresholdsMatch(options, artefact.tensors));
  KVC_RETURN_IF_ERROR(CheckAttention(options.attention, codec.codec->traits(),
                                     artefact.tensors));
  plan.hints = HintsFrom(options, header.metadata);
  plan.hints.checkpoint = checkpoint;
  plan.hints.measures_tokens = options.metrics == MetricsLevel::kFull;
  KVC_ASSIGN_OR_RETURN(const std::optional<uint64_t> first_position,
                       FirstPosition(header.metadata));
  KVC_ASSIGN_OR_RETURN(plan.groups,
                       GroupCompression::Plan(options, codec, first_position,
                                              &artefact, report));
  artefact.labels = options.labels;
  artefact.metadata = std::move(header.metadata);
  report->codec = codec.ToString();
  report->original_size = header.data_size;
  ReportRoles(codec.codec->traits(), artefact.tensors, report);
  KVC_ASSIGN_OR_RETURN(plan.reserved_size,
                       ReservedHeaderSize(artefact, checkpoint));
  plan.reserved_size += (plan.groups.HeaderGrowth() + 7) / 8 * 8;
  plan.reserved_size -= plan.groups.HeaderSavings() / 8 * 8;
  return plan;
}

}  // namespace kvcompress
