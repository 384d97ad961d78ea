// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/views.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "kvcompress/layout.h"
#include "pipeline/tensor_table.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

absl::Status CheckSlab(const Layout& layout, uint64_t offset,
                       uint64_t max_bytes) {
  if (layout.slab_bytes() <= max_bytes) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kOutOfRange,
      absl::StrCat("layout ", layout.text(), " holds ", layout.slab_bytes(),
                   " bytes of the tensor; write layers one after the other, or "
                   "as tensors of their own"),
      {.reason = "TENSOR_TOO_LARGE",
       .tensor = layout.source().name,
       .offset = offset,
       .limit = max_bytes});
}

// Counts the views that come on top of tensors.
absl::Status CountViews(const Layout& layout, uint64_t* views) {
  *views += layout.views() - 1;
  if (*views <= kMaxViews) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("the layouts make ", *views, " views or more"),
                   {.reason = "TOO_MANY_VIEWS",
                    .tensor = layout.source().name,
                    .limit = kMaxViews,
                    .field = "options.layout"});
}

absl::Status CheckPlain(const TensorSpec& spec, absl::string_view layout) {
  if (layout != "bhtd" || spec.shape.size() == 4) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("layout bhtd has 4 dimensions, the tensor ",
                                spec.shape.size(),
                                "; declare another layout, or flat for none"),
                   {.reason = "LAYOUT_MISMATCH",
                    .tensor = spec.name,
                    .field = "options.layout"});
}

}  // namespace

absl::StatusOr<std::string> DefaultLayout(
    const CompressOptions& options,
    const std::vector<std::pair<std::string, std::string>>& metadata) {
  if (!options.layout.empty()) return options.layout;
  for (const auto& [key, value] : metadata) {
    if (key != "layout") continue;
    if (absl::Status status = ValidateLayout(value); !status.ok()) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          absl::StrCat("the input's metadata: ", status.message(),
                       "; declare the layout in the options instead"),
          {.reason = "INVALID_LAYOUT", .field = "metadata.layout"});
    }
    return value;
  }
  return std::string();
}

absl::StatusOr<uint64_t> AddTensor(SafetensorsEntry entry,
                                   const std::string& default_layout,
                                   const CodecSpec& codec, uint64_t offset,
                                   const CompressOptions& options,
                                   const CompressLimits& limits,
                                   uint64_t* views, ArtefactHeader* artefact) {
  const CodecTraits& traits = codec.codec->traits();
  std::string declared = entry.spec.layout;
  // What is no number, such as a table of blocks, is no cache either.
  if (declared.empty() && IsNumber(entry.spec.dtype)) declared = default_layout;
  entry.spec.layout.clear();
  std::optional<Layout> layout;
  if (IsPlainLayout(declared)) {
    KVC_RETURN_IF_ERROR(CheckPlain(entry.spec, declared));
  } else {
    KVC_ASSIGN_OR_RETURN(layout, Layout::Of(declared, entry.spec));
  }
  if (!layout || IsPlainLayout(layout->text())) {
    KVC_RETURN_IF_ERROR(
        CheckTensor(entry, offset, traits, limits.max_tensor_bytes));
    const uint64_t memory = EncoderMemory(entry, traits, options.reconstruct);
    artefact->tensors.push_back(
        {.spec = std::move(entry.spec), .codec = codec});
    return memory;
  }
  KVC_RETURN_IF_ERROR(
      CheckSlab(*layout, offset + entry.begin, limits.max_tensor_bytes));
  KVC_RETURN_IF_ERROR(CountViews(*layout, views));
  const size_t first = artefact->tensors.size();
  uint64_t most = 0;
  uint64_t payload = 0;
  for (uint64_t i = 0; i < layout->views(); ++i) {
    SafetensorsEntry view;
    view.spec = layout->View(i);
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(view.spec));
    view.end = elements * DTypeSize(view.spec.dtype);
    most = std::max(most, EncoderMemory(view, traits, options.reconstruct));
    KVC_ASSIGN_OR_RETURN(
        const uint64_t largest,
        codec.codec->MaxEncodedSize(view.spec, codec.parameters));
    if (i < layout->views_per_slab()) payload += largest;
    artefact->tensors.push_back({.spec = std::move(view.spec), .codec = codec});
  }
  // A slab, what its views are encoded to, and what they are restored to.
  const uint64_t held = layout->slab_bytes() * (options.reconstruct ? 2 : 1);
  artefact->laid_out.push_back({*std::move(layout), first});
  return most + held + payload;
}

}  // namespace kvcompress
