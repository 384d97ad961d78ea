// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/info.h"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/artefact.h"
#include "kvcompress/dtype.h"
#include "kvcompress/error.h"
#include "kvcompress/layout_guess.h"
#include "kvcompress/roles.h"
#include "kvcompress/safetensors.h"

namespace kvcompress::cli {
namespace {

using Json = nlohmann::ordered_json;

struct HeaderAndSize {
  std::string raw;         // length field included
  uint64_t file_size = 0;  // bytes
};

// What the values of each tensor of a plain file say of its layout. Knows
// nothing where the header is wrong, which others report.
class LayoutGuesses {
 public:
  explicit LayoutGuesses(const RolePatterns& patterns) : patterns_(patterns) {}

  // `raw` has the length field too.
  void Begin(absl::string_view raw) {
    absl::StatusOr<SafetensorsHeader> header =
        ParseSafetensorsHeader(raw.substr(8));
    if (!header.ok()) return;
    std::vector<TensorSpec*> specs;
    for (SafetensorsEntry& entry : header->tensors) {
      specs.push_back(&entry.spec);
    }
    if (!AssignRoles(patterns_, specs).ok()) return;
    tensors_ = std::move(header->tensors);
    likely_.resize(tensors_.size());
    Start();
  }

  // Takes the next bytes behind the header.
  void Add(absl::string_view bytes) {
    while (!bytes.empty() && index_ < tensors_.size()) {
      const absl::string_view part =
          bytes.substr(0, tensors_[index_].end - position_);
      if (guess_) guess_->Add(part);
      position_ += part.size();
      bytes.remove_prefix(part.size());
      if (position_ < tensors_[index_].end) return;
      if (guess_) likely_[index_] = guess_->Likely();
      ++index_;
      Start();
    }
  }

  Json Of(size_t tensor) const {
    const bool none = tensor >= likely_.size() || likely_[tensor].empty();
    return none ? Json() : Json(likely_[tensor]);
  }

 private:
  void Start() {
    guess_.reset();
    while (index_ < tensors_.size() && tensors_[index_].end == position_) {
      ++index_;
    }
    if (index_ < tensors_.size() &&
        LayoutGuess::Applies(tensors_[index_].spec)) {
      guess_.emplace(tensors_[index_].spec);
    }
  }

  const RolePatterns& patterns_;
  std::vector<SafetensorsEntry> tensors_;
  std::vector<std::string> likely_;  // empty for what may be usual
  std::optional<LayoutGuess> guess_;
  size_t index_ = 0;
  uint64_t position_ = 0;  // behind the header
};

absl::StatusOr<HeaderAndSize> ReadAll(ByteSource* source,
                                      LayoutGuesses* guesses) {
  SafetensorsHeaderReader reader(kMaxSafetensorsHeader);
  HeaderAndSize result;
  std::string buffer(1 << 16, '\0');
  while (true) {
    const absl::StatusOr<size_t> size = source->Read(absl::MakeSpan(buffer));
    if (!size.ok()) return size.status();
    if (*size == 0) break;
    result.file_size += *size;
    absl::string_view bytes(buffer.data(), *size);
    if (!reader.done()) {
      if (absl::Status status = reader.Append(&bytes); !status.ok()) {
        return status;
      }
      if (reader.done()) guesses->Begin(reader.raw());
    }
    guesses->Add(bytes);
  }
  if (!reader.done()) return reader.TruncatedError();
  result.raw = reader.raw();
  return result;
}

// Refuses a file that ends before or after the bytes that its header
// describes.
absl::Status CheckSize(uint64_t expected, const HeaderAndSize& file,
                       absl::StatusCode code, absl::string_view what) {
  if (file.file_size == expected) return absl::OkStatus();
  const bool cut = file.file_size < expected;
  return MakeError(
      code,
      absl::StrCat("the ", what, " is damaged: ", file.file_size,
                   " bytes instead of the ", expected, " its header describes"),
      {.reason = cut ? "TRUNCATED" : "TRAILING_BYTES",
       .offset = cut ? file.file_size : expected});
}

Json RoleJson(TensorRole role) {
  const absl::string_view name = RoleName(role);
  return name.empty() ? Json() : Json(std::string(name));
}

Json LayerJson(const TensorSpec& spec) {
  return spec.layer ? Json(*spec.layer) : Json();
}

Json RolesJson(const RoleCounts& roles) {
  return {{"keys", roles.keys},
          {"values", roles.values},
          {"neither", roles.neither}};
}

Json MetadataJson(
    const std::vector<std::pair<std::string, std::string>>& metadata) {
  Json::object_t json;
  for (const auto& [key, value] : metadata) json.emplace_back(key, value);
  return json;
}

double Ratio(double numerator, uint64_t denominator) {
  return denominator == 0 ? 0 : numerator / static_cast<double>(denominator);
}

absl::StatusOr<Json> ArtefactJson(const ArtefactHeader& header,
                                  const HeaderAndSize& file) {
  uint64_t all_elements = 0, original_size = 0;
  RoleCounts roles;
  Json tensors = Json::array();
  for (const ArtefactTensor& tensor : header.tensors) {
    const TensorSpec& spec = tensor.spec;
    const absl::StatusOr<uint64_t> elements = ElementCount(spec);
    if (!elements.ok()) return elements.status();
    const uint64_t size = *elements * DTypeSize(spec.dtype);
    all_elements += *elements;
    original_size += size;
    roles.Add(spec.role);
    Json entry = {
        {"name", spec.name},
        {"codec", tensor.codec.ToString()},
        {"dtype", std::string(DTypeName(spec.dtype))},
        {"shape", spec.shape},
        {"role", RoleJson(spec.role)},
        {"layer", LayerJson(spec)},
        {"original_size_bytes", size},
        {"payload_size_bytes", tensor.payload_size},
        {"bits_per_value",
         Ratio(8.0 * static_cast<double>(tensor.payload_size), *elements)},
        {"digest", tensor.digest}};
    if (!spec.layout.empty()) entry["layout"] = spec.layout;
    tensors.push_back(std::move(entry));
  }
  Json profile;
  if (header.profile) {
    profile = {{"digest", header.profile->digest},
               {"label", header.profile->label}};
  }
  const auto compressed_size = static_cast<double>(file.file_size);
  return Json{{"format_version", header.format_version},
              {"payload_digest", header.checksum},
              {"compression_ratio",
               Ratio(2.0 * static_cast<double>(all_elements), file.file_size)},
              {"bits_per_value", Ratio(8 * compressed_size, all_elements)},
              {"original_size_bytes", original_size},
              {"compressed_size_bytes", file.file_size},
              {"header_size_bytes", file.raw.size()},
              {"labels", header.labels},
              {"metadata", MetadataJson(header.metadata)},
              {"tensor_count", header.tensors.size()},
              {"tensors", std::move(tensors)},
              {"profile", std::move(profile)},
              {"format", "kvcompress"},
              {"roles", RolesJson(roles)}};
}

absl::StatusOr<Json> PlainJson(const HeaderAndSize& file,
                               const RolePatterns& patterns,
                               const LayoutGuesses& guesses) {
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(absl::string_view(file.raw).substr(8));
  if (!header.ok()) return header.status();
  absl::Status status =
      CheckSize(file.raw.size() + header->data_size, file,
                absl::StatusCode::kInvalidArgument, "safetensors file");
  std::vector<TensorSpec*> specs;
  specs.reserve(header->tensors.size());
  for (SafetensorsEntry& entry : header->tensors) specs.push_back(&entry.spec);
  status.Update(AssignRoles(patterns, specs));
  if (!status.ok()) return status;
  RoleCounts roles;
  std::map<std::string, uint64_t> dtypes;
  Json tensors = Json::array();
  for (const SafetensorsEntry& entry : header->tensors) {
    const TensorSpec& spec = entry.spec;
    const std::string dtype(DTypeName(spec.dtype));
    roles.Add(spec.role);
    ++dtypes[dtype];
    tensors.push_back({{"name", spec.name},
                       {"dtype", dtype},
                       {"shape", spec.shape},
                       {"role", RoleJson(spec.role)},
                       {"layer", LayerJson(spec)},
                       {"kept_bit_for_bit", !IsNumber(spec.dtype)},
                       {"original_size_bytes", entry.end - entry.begin},
                       {"likely_layout", guesses.Of(tensors.size())}});
  }
  Json layout;
  for (const auto& [key, value] : header->metadata) {
    if (key == "layout") layout = value;
  }
  return Json{{"format", "safetensors"},
              {"original_size_bytes", header->data_size},
              {"header_size_bytes", file.raw.size()},
              {"metadata", MetadataJson(header->metadata)},
              {"tensor_count", header->tensors.size()},
              {"roles", RolesJson(roles)},
              {"dtypes", dtypes},
              {"layout", std::move(layout)},
              {"tensors", std::move(tensors)}};
}

bool IsPlain(const absl::Status& status) {
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return detail && detail->reason == "NOT_AN_ARTEFACT";
}

}  // namespace

absl::StatusOr<Json> InfoJson(ByteSource* source, const RolePatterns& roles) {
  LayoutGuesses guesses(roles);
  const absl::StatusOr<HeaderAndSize> file = ReadAll(source, &guesses);
  if (!file.ok()) return file.status();
  absl::StatusOr<ArtefactHeader> header = ParseArtefactHeader(file->raw);
  if (IsPlain(header.status())) return PlainJson(*file, roles, guesses);
  if (!header.ok()) return header.status();
  if (!roles.keys.empty() || !roles.values.empty()) {
    return absl::InvalidArgumentError(
        "-keys and -values need a file that is not yet compressed: the roles "
        "of an artefact are bound to it");
  }
  uint64_t expected = file->raw.size();
  for (const ArtefactTensor& tensor : header->tensors) {
    expected += tensor.payload_size;
  }
  const absl::Status sized =
      CheckSize(expected, *file, absl::StatusCode::kDataLoss, "artefact");
  if (!sized.ok()) return sized;
  return ArtefactJson(*header, *file);
}

}  // namespace kvcompress::cli
