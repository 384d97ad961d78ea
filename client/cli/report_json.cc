// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/report_json.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kvcompress/error.h"
#include "kvcompress/metric_table.h"

namespace kvcompress::cli {
namespace {

using Json = nlohmann::ordered_json;

Json OrNull(bool known, const Json& value) { return known ? value : Json(); }

// "DATA_TYPE_BF16" to "BF16", and null for the unspecified value.
Json EnumJson(absl::string_view name, absl::string_view prefix) {
  const absl::string_view value = absl::StripPrefix(name, prefix);
  return OrNull(!value.empty() && value != "UNSPECIFIED", std::string(value));
}

Json LevelJson(v1::QualityLevel level) {
  return EnumJson(v1::QualityLevel_Name(level), "QUALITY_LEVEL_");
}

// The metric of this name, which the message has.
Json MetricJson(const v1::QualityMetrics& metrics, absl::string_view name) {
  const google::protobuf::Reflection& fields = *metrics.GetReflection();
  const auto* const field =
      metrics.GetDescriptor()->FindFieldByName(std::string(name));
  return OrNull(!field->has_presence() || fields.HasField(metrics, field),
                fields.GetDouble(metrics, field));
}

// Appends the metrics that `json` has not got a place for.
void AddOtherMetrics(const v1::QualityMetrics& metrics, Json* json) {
  for (const MetricTraits& metric : AllMetrics()) {
    const std::string name(metric.name);
    if (!json->contains(name)) (*json)[name] = MetricJson(metrics, name);
  }
}

Json ViolationsJson(const v1::QualityVerdict& verdict) {
  Json list = Json::array();
  for (const std::string& violation : verdict.violations()) {
    list.push_back(violation);
  }
  return list;
}

Json RoleJson(v1::TensorRole role) {
  switch (role) {
    case v1::TENSOR_ROLE_KEY:
      return "key";
    case v1::TENSOR_ROLE_VALUE:
      return "value";
    default:
      return nullptr;
  }
}

Json RolesJson(const v1::RoleCounts& roles) {
  return {{"keys", roles.keys()},
          {"values", roles.values()},
          {"neither", roles.neither()}};
}

Json WarningsJson(const v1::CompressionReport& report) {
  Json list = Json::array();
  for (const v1::Warning& warning : report.warnings()) {
    list.push_back(
        {{"code", warning.code()},
         {"message", warning.message()},
         {"tensor", OrNull(!warning.tensor().empty(), warning.tensor())}});
  }
  return list;
}

Json ScalingJson(const v1::RopeScaling& scaling) {
  switch (scaling.scaling_case()) {
    case v1::RopeScaling::kLinear:
      return "linear";
    case v1::RopeScaling::kLlama3:
      return "llama3";
    case v1::RopeScaling::kYarn:
      return "yarn";
    default:
      return nullptr;
  }
}

// The rotation that was removed; null for none.
Json RopeJson(const v1::TensorReport& tensor) {
  if (!tensor.has_rope()) return nullptr;
  const v1::RopeEmbedding& embedding = tensor.rope().embedding();
  return {
      {"theta", embedding.theta()},
      {"pairs", embedding.pairs() == v1::ROPE_PAIRS_INTERLEAVED ? "interleaved"
                                                                : "halves"},
      {"first_channel", embedding.first_channel()},
      {"rotary_channels", embedding.rotary_channels()},
      {"scaling", ScalingJson(embedding.scaling())},
      {"declared", tensor.rope().declared()}};
}

Json ExpectationJson(const v1::PresetExpectation& expected) {
  return {{"ratio", expected.ratio()},
          {"divergence", expected.divergence()},
          {"int4_divergence", expected.int4_divergence()},
          {"least_share", expected.least_share()},
          {"most_share", expected.most_share()}};
}

// The profile that was used, or is needed; null for none.
template <typename Report>
Json ProfileJson(const Report& report) {
  if (!report.has_profile()) return nullptr;
  Json json = {{"digest", report.profile().digest()},
               {"label", report.profile().label()},
               {"tensor_count", report.profile().tensor_count()}};
  if (report.profile().has_first_token()) {
    json["first_token"] = report.profile().first_token();
  }
  if (report.profile().has_fit()) json["fit"] = report.profile().fit();
  if (report.profile().has_expected()) {
    json["expected"] = ExpectationJson(report.profile().expected());
  }
  return json;
}

Json WorstTensorJson(const v1::CompressionReport& report) {
  if (!report.has_worst_tensor()) return nullptr;
  const v1::TensorReport& tensor = report.worst_tensor();
  const v1::QualityMetrics& metrics = tensor.metrics();
  return {{"name", tensor.name()},
          {"rmse", metrics.rmse()},
          {"snr_db", MetricJson(metrics, "snr_db")},
          {"centred_snr_db", MetricJson(metrics, "centred_snr_db")},
          {"max_error", metrics.max_error()},
          {"cosine_similarity", metrics.cosine_similarity()}};
}

Json TensorJson(const v1::TensorReport& tensor) {
  const v1::QualityMetrics& metrics = tensor.metrics();
  Json shape = Json::array();
  for (const uint64_t dimension : tensor.shape()) shape.push_back(dimension);
  Json json = {
      {"name", tensor.name()},
      {"dtype", EnumJson(v1::DataType_Name(tensor.dtype()), "DATA_TYPE_")},
      {"shape", std::move(shape)},
      {"role", RoleJson(tensor.role())},
      {"layer", OrNull(tensor.has_layer(), tensor.layer())},
      {"codec", tensor.codec()},
      {"original_size_bytes", tensor.original_size_bytes()},
      {"compressed_size_bytes", tensor.compressed_size_bytes()},
      {"bits_per_value", tensor.bits_per_value()},
      {"mse", metrics.mse()},
      {"rmse", metrics.rmse()},
      {"mae", metrics.mae()},
      {"max_error", metrics.max_error()},
      {"snr_db", MetricJson(metrics, "snr_db")},
      {"psnr_db", MetricJson(metrics, "psnr_db")},
      {"cosine_similarity", metrics.cosine_similarity()},
      {"quality_level", LevelJson(tensor.verdict().level())},
      {"passed", tensor.verdict().passed()},
      {"violations", ViolationsJson(tensor.verdict())},
      {"digest", tensor.digest()},
      {"rope", RopeJson(tensor)}};
  if (!tensor.layout().empty()) json["layout"] = tensor.layout();
  if (tensor.has_profile_group()) {
    json["profile_group"] = tensor.profile_group();
  }
  AddOtherMetrics(metrics, &json);
  return json;
}

}  // namespace

Json CompressionJson(const v1::CompressionReport& report, bool verbose) {
  const v1::QualityMetrics& metrics = report.metrics();
  Json json = {{"compression_ratio", report.compression_ratio()},
               {"original_size_bytes", report.original_size_bytes()},
               {"compressed_size_bytes", report.compressed_size_bytes()},
               {"rmse", metrics.rmse()},
               {"snr_db", MetricJson(metrics, "snr_db")},
               {"cosine_similarity", metrics.cosine_similarity()},
               {"max_error", metrics.max_error()},
               {"quality_level", LevelJson(report.verdict().level())},
               {"processing_time_ms", 1e3 * report.processing_seconds()},
               {"quality_passed", report.verdict().passed()},
               {"violations", ViolationsJson(report.verdict())},
               {"codec", report.codec()},
               {"bits_per_value", report.bits_per_value()},
               {"mse", metrics.mse()},
               {"mae", metrics.mae()},
               {"psnr_db", MetricJson(metrics, "psnr_db")},
               {"tensor_count", report.tensor_count()},
               {"tensors_failed", report.tensors_failed()},
               {"worst_tensor", WorstTensorJson(report)},
               {"payload_digest", report.payload_digest()}};
  AddOtherMetrics(metrics, &json);
  json["roles"] = RolesJson(report.roles());
  json["warnings"] = WarningsJson(report);
  json["profile"] = ProfileJson(report);
  if (!verbose) return json;
  Json::object_t named;
  Json tensors = Json::array();
  for (const v1::TensorReport& tensor : report.tensors()) {
    // Names are unique, and looking for duplicates would take quadratic time.
    named.emplace_back(absl::StrCat(tensor.name(), "_rmse"),
                       tensor.metrics().rmse());
    tensors.push_back(TensorJson(tensor));
  }
  json["tensor_metrics"] = std::move(named);
  json["tensors"] = std::move(tensors);
  return json;
}

Json DecompressionJson(const v1::DecompressionReport& report) {
  const std::map<std::string, std::string> labels(report.labels().begin(),
                                                  report.labels().end());
  return {{"compression_ratio", report.compression_ratio()},
          {"original_size_bytes", report.original_size_bytes()},
          {"compressed_size_bytes", report.compressed_size_bytes()},
          {"rmse", nullptr},
          {"snr_db", nullptr},
          {"cosine_similarity", nullptr},
          {"max_error", nullptr},
          {"quality_level", nullptr},
          {"processing_time_ms", 1e3 * report.processing_seconds()},
          {"quality_passed", nullptr},
          {"violations", Json::array()},
          {"format_version", report.format_version()},
          {"output_size_bytes", report.output_size_bytes()},
          {"tensor_count", report.tensor_count()},
          {"tensors_selected", report.tensors_selected()},
          {"labels", labels},
          {"payload_digest", report.payload_digest()},
          {"profile", ProfileJson(report)}};
}

Json VerifiedJson(const v1::DecompressionReport& report) {
  Json json = {{"verified", true}};
  json.update(DecompressionJson(report));
  return json;
}

Json DamagedJson(const absl::Status& error) {
  Json json = {{"verified", false}};
  json.update(ErrorJson(error));
  return json;
}

Json ErrorJson(const absl::Status& error) {
  Json json = {{"code", absl::StatusCodeToString(error.code())},
               {"message", std::string(error.message())}};
  if (const auto detail = GetErrorDetail(error)) {
    json["reason"] = detail->reason;
    if (detail->tensor) json["tensor"] = *detail->tensor;
    if (detail->offset) json["offset"] = *detail->offset;
    if (detail->element) json["element"] = *detail->element;
    if (detail->profile) json["profile"] = *detail->profile;
  }
  return json;
}

std::string Print(const Json& json) {
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::string PrintLine(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace kvcompress::cli
