// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "plan/decompress_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "kvcompress/safetensors.h"
#include "pipeline/identity.h"
#include "pipeline/working_memory.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

using Source = DecompressPlan::Source;

absl::Status DataLoss(absl::string_view message, const ErrorDetail& detail) {
  return MakeError(absl::StatusCode::kDataLoss, message, detail);
}

// Whether a tensor comes before another one by layers: keys before values, and
// what is of no layer last.
bool IsOfEarlierLayer(const TensorSpec& a, const TensorSpec& b) {
  if (a.layer.has_value() != b.layer.has_value()) return a.layer.has_value();
  if (a.layer != b.layer) return a.layer < b.layer;
  const auto place = [](TensorRole role) {
    return role == TensorRole::kKey ? 0 : role == TensorRole::kValue ? 1 : 2;
  };
  return place(a.role) < place(b.role);
}

absl::Status CheckSize(absl::string_view what, uint64_t size,
                       const std::string& tensor, uint64_t limit) {
  if (size <= limit) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kOutOfRange,
      absl::StrCat(what, " has ", size, " bytes"),
      {.reason = "TENSOR_TOO_LARGE", .tensor = tensor, .limit = limit});
}

}  // namespace

absl::Status TrailingBytes(uint64_t offset) {
  return DataLoss("bytes follow the end of the artefact",
                  {.reason = "TRAILING_BYTES", .offset = offset});
}

absl::Status ArtefactHeaderError(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kInvalidArgument) return status;
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  const bool truncated = detail && detail->reason == "TRUNCATED";
  return Reclassify(status, absl::StatusCode::kDataLoss,
                    truncated ? "TRUNCATED" : "HEADER_DAMAGED",
                    "the artefact is damaged: ");
}

absl::StatusOr<DecompressPlan> DecompressPlan::Make(
    const DecompressOptions& options, const DecompressLimits& limits,
    ArtefactHeader header, uint64_t header_size, Checkpoint* checkpoint) {
  KVC_RETURN_IF_ERROR(CheckIdentity(options, header));
  DecompressPlan plan;
  plan.header = std::move(header);
  plan.header_size = header_size;
  plan.verify_only = options.verify_only;
  plan.tokens = options.tokens;
  plan.sources = plan.SourcesOfHeader();
  KVC_RETURN_IF_ERROR(plan.Select(options.tensors));
  // Whole tensors are restored by more threads.
  if (plan.tokens && plan.HasAllTokens()) plan.tokens.reset();
  KVC_ASSIGN_OR_RETURN(plan.groups,
                       GroupDecompression::Plan(options.profiles, plan.header));
  plan.report.profile = plan.groups.use();
  for (size_t i = 0; i < plan.header.tensors.size(); ++i) {
    if (StopsAt(i, checkpoint)) return checkpoint->status();
    KVC_RETURN_IF_ERROR(plan.Measure(i, limits));
  }
  if (options.order == TensorOrder::kLayers) {
    std::stable_sort(plan.sources.begin(), plan.sources.end(),
                     [&](const Source& a, const Source& b) {
                       return IsOfEarlierLayer(
                           plan.header.tensors[a.first].spec,
                           plan.header.tensors[b.first].spec);
                     });
  }
  KVC_RETURN_IF_ERROR(plan.Place(limits, checkpoint));
  return plan;
}

const Layout& DecompressPlan::LaidOut(size_t index) const {
  const auto found = narrowed.find(index);
  return found == narrowed.end() ? header.laid_out[index].layout
                                 : found->second;
}

absl::StatusOr<TensorSpec> DecompressPlan::SpecOf(const Source& source) const {
  if (const Layout* const layout = LayoutOf(source)) return layout->source();
  TensorSpec spec = header.tensors[source.first].spec;
  if (tokens) KVC_RETURN_IF_ERROR(NarrowToTokens(*tokens, &spec));
  return spec;
}

uint64_t DecompressPlan::PayloadBegin(size_t tensor) const {
  uint64_t offset = header_size;
  for (size_t i = 0; i < tensor; ++i) offset += header.tensors[i].payload_size;
  return offset;
}

bool DecompressPlan::Needs(size_t group) const {
  const absl::Span<const size_t> members = groups.MembersOf(group);
  return verify_only ||
         std::any_of(members.begin(), members.end(),
                     [this](size_t member) { return selected[member]; });
}

size_t DecompressPlan::NeededFor(size_t tensor) const {
  return groups.Has(tensor) ? groups.LastOf(groups.GroupOf(tensor)) : tensor;
}

uint64_t DecompressPlan::MemoryWith(unsigned workers, size_t places) const {
  if (workers == 1 && places == 1) return decoder_memory + 2 * aside_memory;
  const uint64_t place_memory = std::min(decoder_memory, kMaxPlaceMemory);
  // And what waits to be used again.
  return workers * (decoder_memory + kMaxDecodedBlock + 2 * tensor_memory +
                    (places - 1) * place_memory +
                    places * groups.memory_of_reader()) +
         tensor_memory;
}

std::optional<ThreadPlan> DecompressPlan::ThreadsOf(
    const Threads& threads) const {
  bool shares = !verify_only && !tokens;
  bool pays = false;
  for (const ArtefactTensor& tensor : header.tensors) {
    // What a group of a profile shares are blocks of its payload.
    shares &= tensor.codec.codec->shares_blocks() ||
              tensor.codec.codec->coded_in_groups();
    pays |= !tensor.codec.codec->at_memory_speed();
  }
  if (!pays) return std::nullopt;
  return PlanOf(threads, header.tensors.size(), shares,
                [this](unsigned workers, size_t places) {
                  return MemoryWith(workers, places) - MemoryWith(1, 1);
                });
}

DecompressReport DecompressPlan::TakeReport(uint64_t compressed_size) {
  report.compressed_size = compressed_size;
  report.format_version = header.format_version;
  if (report.elements > 0) {
    report.compression_ratio = 2 * static_cast<double>(report.elements) /
                               static_cast<double>(compressed_size);
  }
  report.labels = std::move(header.labels);
  report.payload_digest = header.checksum;
  return std::move(report);
}

absl::Status DecompressPlan::CutShort(size_t tensor, uint64_t missing,
                                      uint64_t size) const {
  return DataLoss(absl::StrCat("the artefact is cut short: ", missing,
                               " bytes of the payload are missing"),
                  {.reason = "TRUNCATED",
                   .tensor = header.tensors[tensor].spec.name,
                   .offset = size});
}

// In the order of the header.
std::vector<Source> DecompressPlan::SourcesOfHeader() const {
  std::vector<Source> found;
  size_t laid_out = 0;
  ForEachSource(header, [&](const TensorSpec&, size_t first, size_t count,
                            const Layout* layout) {
    found.push_back({.first = first, .count = count});
    if (layout != nullptr) found.back().laid_out = laid_out++;
    return absl::OkStatus();
  }).IgnoreError();
  return found;
}

// Selects tensors by name, each with all of its views.
absl::Status DecompressPlan::Select(const std::vector<std::string>& patterns) {
  std::vector<absl::string_view> names;
  for (const Source& source : sources) {
    const Layout* const layout = LayoutOf(source);
    names.push_back(layout == nullptr ? header.tensors[source.first].spec.name
                                      : layout->source().name);
  }
  KVC_ASSIGN_OR_RETURN(const std::vector<bool> matches,
                       SelectTensors(patterns, names));
  for (size_t i = 0; i < sources.size(); ++i) {
    selected.resize(selected.size() + sources[i].count,
                    matches[i] && !verify_only);
  }
  return absl::OkStatus();
}

// Whether a range leaves all that is given back as it is.
bool DecompressPlan::HasAllTokens() const {
  for (const Source& source : sources) {
    if (!selected[source.first]) continue;
    const Layout* const layout = LayoutOf(source);
    const TensorSpec& whole = layout == nullptr
                                  ? header.tensors[source.first].spec
                                  : layout->source();
    TensorSpec kept = whole;
    if (layout != nullptr) {
      const absl::StatusOr<Layout> part = layout->Narrowed(*tokens);
      if (!part.ok()) return false;
      kept = part->source();
    } else if (!NarrowToTokens(*tokens, &kept).ok()) {
      return false;
    }
    if (kept.shape != whole.shape) return false;
  }
  return true;
}

// Takes into account what decoding a tensor or view needs.
absl::Status DecompressPlan::Measure(size_t tensor,
                                     const DecompressLimits& limits) {
  const ArtefactTensor& its = header.tensors[tensor];
  const Codec& codec = *its.codec.codec;
  KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(its.spec));
  const uint64_t size = elements * DTypeSize(its.spec.dtype);
  if (codec.decoder_holds_tensor()) {
    KVC_RETURN_IF_ERROR(
        CheckSize(absl::StrCat(codec.traits().name,
                               " holds a whole tensor, and this one"),
                  size, its.spec.name, limits.max_tensor_bytes));
  }
  DecoderBounds bounds;
  if (groups.Has(tensor)) {
    bounds.memory = groups.MemoryOfDecoder(tensor);
  } else {
    KVC_ASSIGN_OR_RETURN(bounds,
                         codec.BoundsOfDecoder(its.spec, its.codec.parameters));
  }
  decoder_memory = std::max(decoder_memory, bounds.memory);
  block_memory = std::max(block_memory, bounds.block);
  payload_memory = std::max(payload_memory, its.payload_size);
  if (!selected[tensor] || tokens || !header.laid_out.empty()) {
    aside_memory =
        std::max<uint64_t>({aside_memory, kAsideBytes, bounds.block});
  }
  tensor_memory =
      std::max(tensor_memory, its.payload_size + (selected[tensor] ? size : 0));
  report.elements += elements;
  report.original_size += size;
  report.decoded_bytes[codec.base().traits().name] += size;
  return absl::OkStatus();
}

// Takes into account the slabs of a layout that is given back.
absl::Status DecompressPlan::Narrow(const Source& source,
                                    const DecompressLimits& limits) {
  const size_t index = *source.laid_out;
  if (tokens) {
    KVC_ASSIGN_OR_RETURN(Layout part,
                         header.laid_out[index].layout.Narrowed(*tokens));
    narrowed.emplace(index, std::move(part));
  }
  const Layout& layout = *LayoutOf(source);
  const uint64_t size = layout.slab_bytes();
  slab_memory = std::max(slab_memory, size);
  return CheckSize(
      absl::StrCat("layout ", layout.text(), " is restored by parts, and one"),
      size, layout.source().name, limits.max_tensor_bytes);
}

// Decides where what is selected goes.
absl::Status DecompressPlan::Place(const DecompressLimits& limits,
                                   Checkpoint* checkpoint) {
  SafetensorsHeader out;
  out.metadata = header.metadata;
  for (size_t i = 0; i < sources.size(); ++i) {
    Source& source = sources[i];
    if (StopsAt(i, checkpoint)) return checkpoint->status();
    if (!selected[source.first]) continue;
    if (source.laid_out) KVC_RETURN_IF_ERROR(Narrow(source, limits));
    SafetensorsEntry entry;
    KVC_ASSIGN_OR_RETURN(entry.spec, SpecOf(source));
    KVC_ASSIGN_OR_RETURN(const uint64_t kept, ElementCount(entry.spec));
    source.begin = entry.begin = out.data_size;
    out.data_size += kept * DTypeSize(entry.spec.dtype);
    entry.end = out.data_size;
    out.tensors.push_back(std::move(entry));
  }
  report.tensor_count = sources.size();
  report.tensors_selected = out.tensors.size();
  if (verify_only) return absl::OkStatus();
  output_header = SerializeSafetensorsHeader(out, checkpoint);
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  report.output_size = output_header.size() + out.data_size;
  for (Source& source : sources) source.begin += output_header.size();
  return absl::OkStatus();
}

}  // namespace kvcompress
