// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "convert.h"

#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "convert_rope.h"
#include "kvcompress/error.h"
#include "kvcompress/metric_table.h"

namespace kvcompress {
namespace {

struct DTypeEntry {
  DType dtype;
  v1::DataType proto;
};
constexpr DTypeEntry kDTypeEntries[] = {
    {DType::kF32, v1::DATA_TYPE_F32},
    {DType::kF16, v1::DATA_TYPE_F16},
    {DType::kBF16, v1::DATA_TYPE_BF16},
    {DType::kF8E4M3, v1::DATA_TYPE_F8_E4M3},
    {DType::kF8E5M2, v1::DATA_TYPE_F8_E5M2},
    {DType::kF64, v1::DATA_TYPE_F64},
    {DType::kBool, v1::DATA_TYPE_BOOL},
    {DType::kU8, v1::DATA_TYPE_U8},
    {DType::kI8, v1::DATA_TYPE_I8},
    {DType::kI16, v1::DATA_TYPE_I16},
    {DType::kU16, v1::DATA_TYPE_U16},
    {DType::kI32, v1::DATA_TYPE_I32},
    {DType::kU32, v1::DATA_TYPE_U32},
    {DType::kI64, v1::DATA_TYPE_I64},
    {DType::kU64, v1::DATA_TYPE_U64},
    {DType::kF8E8M0, v1::DATA_TYPE_F8_E8M0},
    {DType::kF8E4M3Fnuz, v1::DATA_TYPE_F8_E4M3FNUZ},
    {DType::kF8E5M2Fnuz, v1::DATA_TYPE_F8_E5M2FNUZ},
    {DType::kC64, v1::DATA_TYPE_C64},
};

bool FromProto(v1::DataType proto, DType* dtype) {
  for (const DTypeEntry& entry : kDTypeEntries) {
    if (entry.proto != proto) continue;
    *dtype = entry.dtype;
    return true;
  }
  return false;
}

v1::TensorRole ToProto(TensorRole role) {
  switch (role) {
    case TensorRole::kKey:
      return v1::TENSOR_ROLE_KEY;
    case TensorRole::kValue:
      return v1::TENSOR_ROLE_VALUE;
    case TensorRole::kNone:
      break;
  }
  return v1::TENSOR_ROLE_UNSPECIFIED;
}

TensorRole FromProto(v1::TensorRole proto) {
  switch (proto) {
    case v1::TENSOR_ROLE_KEY:
      return TensorRole::kKey;
    case v1::TENSOR_ROLE_VALUE:
      return TensorRole::kValue;
    default:
      return TensorRole::kNone;
  }
}

Effort FromProto(v1::Effort proto) {
  switch (proto) {
    case v1::EFFORT_FAST:
      return Effort::kFast;
    case v1::EFFORT_BEST:
      return Effort::kBest;
    default:
      return Effort::kBalanced;
  }
}

// Takes over the bounds that are set, and notes that they were requested.
void Override(const v1::QualityThresholds& proto, QualityThresholds* bounds) {
  const google::protobuf::Reflection& fields = *proto.GetReflection();
  for (const MetricTraits& metric : AllMetrics()) {
    if (metric.bound == nullptr) continue;
    const auto* const field =
        proto.GetDescriptor()->FindFieldByName(std::string(metric.bound_name));
    if (!fields.HasField(proto, field)) continue;
    bounds->*metric.bound = fields.GetDouble(proto, field);
    bounds->requested.insert(metric.bound_name);
  }
}

v1::QualityLevel ToProto(QualityLevel level) {
  switch (level) {
    case QualityLevel::kExcellent:
      return v1::QUALITY_LEVEL_EXCELLENT;
    case QualityLevel::kGood:
      return v1::QUALITY_LEVEL_GOOD;
    case QualityLevel::kAcceptable:
      return v1::QUALITY_LEVEL_ACCEPTABLE;
    case QualityLevel::kPoor:
      break;
  }
  return v1::QUALITY_LEVEL_POOR;
}

v1::QualityMetrics ToProto(const Metrics& metrics) {
  v1::QualityMetrics proto;
  proto.set_elements(metrics.elements);
  for (const MetricTraits& metric : AllMetrics()) {
    const std::optional<double> value = metric.Value(metrics);
    if (!value) continue;
    proto.GetReflection()->SetDouble(
        &proto,
        proto.GetDescriptor()->FindFieldByName(std::string(metric.name)),
        *value);
  }
  return proto;
}

v1::QualityVerdict ToProto(const QualityVerdict& verdict) {
  v1::QualityVerdict proto;
  proto.set_passed(verdict.passed);
  proto.set_level(ToProto(verdict.level));
  for (const std::string& violation : verdict.violations) {
    proto.add_violations(violation);
  }
  for (const MissedBound& missed : verdict.missed) {
    v1::MissedBound& bound = *proto.add_missed();
    bound.set_metric(std::string(missed.metric));
    if (missed.value) bound.set_value(*missed.value);
    bound.set_bound(std::string(missed.bound));
    bound.set_limit(missed.limit);
    bound.set_requested(missed.requested);
  }
  return proto;
}

v1::ProfileUse ToProto(const ProfileUse& use) {
  v1::ProfileUse proto;
  proto.set_digest(use.id.digest);
  proto.set_label(use.id.label);
  proto.set_tensor_count(use.tensors);
  if (use.first_token) proto.set_first_token(*use.first_token);
  if (use.fit) proto.set_fit(*use.fit);
  if (use.preset && use.preset->expected) {
    *proto.mutable_expected() =
        ToProto(use.preset->name, *use.preset->expected);
  }
  return proto;
}

v1::TensorReport ToProto(const TensorReport& report) {
  v1::TensorReport proto;
  proto.set_name(report.spec.name);
  proto.set_dtype(ToProto(report.spec.dtype));
  for (uint64_t dimension : report.spec.shape) proto.add_shape(dimension);
  proto.set_role(ToProto(report.spec.role));
  if (report.spec.layer) proto.set_layer(*report.spec.layer);
  proto.set_codec(report.codec);
  proto.set_original_size_bytes(report.original_size);
  proto.set_compressed_size_bytes(report.compressed_size);
  if (report.metrics.elements > 0) {
    proto.set_bits_per_value(8 * static_cast<double>(report.compressed_size) /
                             static_cast<double>(report.metrics.elements));
  }
  *proto.mutable_metrics() = ToProto(report.metrics);
  *proto.mutable_verdict() = ToProto(report.verdict);
  proto.set_digest(report.digest);
  if (report.rope) *proto.mutable_rope() = ToProto(*report.rope);
  if (report.profile_group) proto.set_profile_group(*report.profile_group);
  proto.set_layout(report.spec.layout);
  return proto;
}

}  // namespace

v1::PresetExpectation ToProto(absl::string_view preset,
                              const ProfileExpectation& expected) {
  v1::PresetExpectation proto;
  proto.set_preset(std::string(preset));
  proto.set_ratio(expected.ratio);
  proto.set_divergence(expected.divergence);
  proto.set_int4_divergence(expected.int4_divergence);
  proto.set_least_share(expected.least_share);
  proto.set_most_share(expected.most_share);
  return proto;
}

v1::DataType ToProto(DType dtype) {
  for (const DTypeEntry& entry : kDTypeEntries) {
    if (entry.dtype == dtype) return entry.proto;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

absl::StatusOr<CompressOptions> FromProto(const v1::CompressOptions& proto) {
  CompressOptions options;
  options.codec = proto.codec().empty() ? "auto" : proto.codec();
  if (!v1::Effort_IsValid(proto.effort())) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("unknown effort ", proto.effort()),
                     {.reason = "INVALID_OPTIONS", .field = "options.effort"});
  }
  options.effort =
      proto.codec().empty() && proto.effort() == v1::EFFORT_UNSPECIFIED
          ? Effort::kFast
          : FromProto(proto.effort());
  if (!v1::MetricsLevel_IsValid(proto.metrics())) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("unknown level of metrics ", proto.metrics()),
                     {.reason = "INVALID_OPTIONS", .field = "options.metrics"});
  }
  if (proto.block_tokens() != 0) options.block_tokens = proto.block_tokens();
  options.metrics = proto.metrics() == v1::METRICS_LEVEL_BASIC
                        ? MetricsLevel::kBasic
                        : MetricsLevel::kFull;
  for (const v1::LayerAttention& layer : proto.attention()) {
    const auto [place, added] = options.attention.try_emplace(
        layer.layer(), layer.octaves().begin(), layer.octaves().end());
    if (!added) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          absl::StrCat("attention of layer ", layer.layer(), " is given twice"),
          {.reason = "INVALID_ATTENTION", .field = "options.attention"});
    }
  }
  Override(proto.thresholds(), &options.thresholds);
  if (proto.has_key_thresholds()) {
    options.key_thresholds = options.thresholds;
    Override(proto.key_thresholds(), &*options.key_thresholds);
  }
  if (proto.has_value_thresholds()) {
    options.value_thresholds = options.thresholds;
    Override(proto.value_thresholds(), &*options.value_thresholds);
  }
  options.roles.keys.assign(proto.key_patterns().begin(),
                            proto.key_patterns().end());
  options.roles.values.assign(proto.value_patterns().begin(),
                              proto.value_patterns().end());
  if (proto.has_rope_theta()) options.rope_theta = proto.rope_theta();
  if (proto.has_rope()) options.rope = FromProto(proto.rope());
  options.labels.insert(proto.labels().begin(), proto.labels().end());
  options.reconstruct = proto.reconstruct();
  options.layout = proto.layout();
  return options;
}

absl::StatusOr<DecompressOptions> FromProto(
    const v1::DecompressOptions& proto) {
  DecompressOptions options;
  if (!v1::TensorOrder_IsValid(proto.order())) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("unknown order of tensors ", proto.order()),
                     {.reason = "INVALID_OPTIONS", .field = "options.order"});
  }
  options.order = proto.order() == v1::TENSOR_ORDER_LAYERS
                      ? TensorOrder::kLayers
                      : TensorOrder::kFile;
  options.expected_labels.insert(proto.expected_labels().begin(),
                                 proto.expected_labels().end());
  options.expected_payload_digest = proto.expected_payload_digest();
  options.tensors.assign(proto.tensors().begin(), proto.tensors().end());
  if (proto.has_tokens()) {
    options.tokens = {proto.tokens().begin(), proto.tokens().end()};
  }
  options.verify_only = proto.verify_only();
  return options;
}

absl::StatusOr<std::vector<TensorSpec>> TensorsFromProto(
    const v1::TensorTable& proto, Checkpoint* checkpoint) {
  std::vector<TensorSpec> tensors;
  for (const v1::TensorSpec& tensor : proto.tensors()) {
    if (StopsAt(tensors.size(), checkpoint)) return checkpoint->status();
    TensorSpec spec;
    spec.name = tensor.name();
    if (!FromProto(tensor.dtype(), &spec.dtype)) {
      return MakeError(absl::StatusCode::kInvalidArgument,
                       "the data type is missing or unknown",
                       {.reason = "UNSUPPORTED_DTYPE",
                        .tensor = tensor.name(),
                        .field = "tensors.tensors.dtype"});
    }
    spec.shape.assign(tensor.shape().begin(), tensor.shape().end());
    spec.role = FromProto(tensor.role());
    if (tensor.has_layer()) spec.layer = tensor.layer();
    spec.layout = tensor.layout();
    tensors.push_back(std::move(spec));
  }
  return tensors;
}

std::vector<std::pair<std::string, std::string>> MetadataFromProto(
    const v1::TensorTable& proto) {
  const std::map<std::string, std::string> sorted(proto.metadata().begin(),
                                                  proto.metadata().end());
  return {sorted.begin(), sorted.end()};
}

v1::CompressionReport ToProto(const CompressReport& report, bool with_tensors,
                              double seconds, Checkpoint* checkpoint) {
  v1::CompressionReport proto;
  proto.set_codec(report.codec);
  proto.set_original_size_bytes(report.original_size);
  proto.set_compressed_size_bytes(report.compressed_size);
  proto.set_compression_ratio(report.compression_ratio);
  proto.set_bits_per_value(report.bits_per_value);
  *proto.mutable_metrics() = ToProto(report.metrics);
  *proto.mutable_verdict() = ToProto(report.verdict);
  proto.set_tensor_count(report.tensors.size());
  proto.set_tensors_failed(report.tensors_failed);
  if (report.worst_tensor >= 0) {
    *proto.mutable_worst_tensor() =
        ToProto(report.tensors[report.worst_tensor]);
  }
  if (with_tensors) {
    for (const TensorReport& tensor : report.tensors) {
      if (StopsAt(proto.tensors_size(), checkpoint)) break;
      *proto.add_tensors() = ToProto(tensor);
    }
  }
  proto.set_payload_digest(report.payload_digest);
  proto.set_processing_seconds(seconds);
  if (report.profile) *proto.mutable_profile() = ToProto(*report.profile);
  v1::RoleCounts& roles = *proto.mutable_roles();
  roles.set_keys(report.roles.keys);
  roles.set_values(report.roles.values);
  roles.set_neither(report.roles.neither);
  for (const Warning& warning : report.warnings) {
    v1::Warning& added = *proto.add_warnings();
    added.set_code(warning.code);
    added.set_message(warning.message);
    added.set_tensor(warning.tensor);
  }
  return proto;
}

v1::DecompressionReport ToProto(const DecompressReport& report,
                                double seconds) {
  v1::DecompressionReport proto;
  proto.set_format_version(static_cast<uint32_t>(report.format_version));
  proto.set_compressed_size_bytes(report.compressed_size);
  proto.set_original_size_bytes(report.original_size);
  proto.set_output_size_bytes(report.output_size);
  proto.set_compression_ratio(report.compression_ratio);
  proto.set_tensor_count(report.tensor_count);
  proto.set_tensors_selected(report.tensors_selected);
  proto.mutable_labels()->insert(report.labels.begin(), report.labels.end());
  proto.set_payload_digest(report.payload_digest);
  proto.set_processing_seconds(seconds);
  if (report.profile) *proto.mutable_profile() = ToProto(*report.profile);
  return proto;
}

}  // namespace kvcompress
