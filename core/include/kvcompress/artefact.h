// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The header of an artefact (core/FORMAT.md, sections 1 to 3): what is in it,
// how it is written, and how it is checked.

#ifndef KVCOMPRESS_ARTEFACT_H_
#define KVCOMPRESS_ARTEFACT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/codec.h"
#include "kvcompress/layout.h"
#include "kvcompress/profile.h"
#include "kvcompress/tensor.h"

namespace kvcompress {

// Labels a caller binds to an artefact.
using Labels = std::map<std::string, std::string>;
inline constexpr size_t kMaxLabels = 32;
inline constexpr size_t kMaxLabelKeyBytes = 64;
inline constexpr size_t kMaxLabelValueBytes = 1024;

// INVALID_ARGUMENT when a label breaks the rules of FORMAT.md.
absl::Status ValidateLabels(const Labels& labels);

// What one payload stores: a tensor of the source, or a view of one.
struct ArtefactTensor {
  TensorSpec spec;
  CodecSpec codec;
  uint64_t payload_size = 0;  // bytes
  std::string digest;         // 32 hexadecimal digits
  // For an empty payload of a codec that is coded_in_groups(): whether the
  // manifest has the full digest instead of "-". Earlier versions wrote it.
  bool full_digest = false;
};

// A tensor of the source in a layout of its own.
struct LaidOutTensor {
  Layout layout;
  size_t first = 0;  // of its views, in ArtefactHeader::tensors
};

struct ArtefactHeader {
  int format_version = 0;
  Labels labels;
  // The profile that decoding needs; set exactly where a codec is
  // coded_in_groups().
  std::optional<ProfileId> profile;
  // The source's own metadata, in its order.
  std::vector<std::pair<std::string, std::string>> metadata;
  // In the order of the payloads.
  std::vector<ArtefactTensor> tensors;
  // Those of which `tensors` has views instead, in their order.
  std::vector<LaidOutTensor> laid_out;
  // "xxh3-128:" and 32 hexadecimal digits: identifies the artefact.
  std::string checksum;
};

// Calls visit(spec, first, count, layout) for each tensor of the source, in
// order: its spec, which of header.tensors store it, and its layout, null when
// it is one of these itself. Stops at the first error, and returns it.
template <typename Visit>
absl::Status ForEachSource(const ArtefactHeader& header, Visit visit) {
  size_t laid_out = 0;
  for (size_t i = 0; i < header.tensors.size();) {
    const Layout* layout = nullptr;
    if (laid_out < header.laid_out.size() &&
        header.laid_out[laid_out].first == i) {
      layout = &header.laid_out[laid_out++].layout;
    }
    const TensorSpec& spec =
        layout == nullptr ? header.tensors[i].spec : layout->source();
    const size_t count = layout == nullptr ? 1 : layout->views();
    absl::Status status = visit(spec, i, count, layout);
    if (!status.ok()) return status;
    i += count;
  }
  return absl::OkStatus();
}

// These three return the error of the checkpoint where it stops them.

// Bytes that the header takes in the file, the length field included: the same
// whatever the digests, as long as no payload is larger than its codec's bound.
absl::StatusOr<uint64_t> ReservedHeaderSize(const ArtefactHeader& header,
                                            Checkpoint* checkpoint = nullptr);

// The first bytes of the file, exactly `reserved_size` of them, with the
// checksum computed; also sets header->checksum. INTERNAL when it does not fit.
absl::StatusOr<std::string> SerializeArtefactHeader(
    uint64_t reserved_size, ArtefactHeader* header,
    Checkpoint* checkpoint = nullptr);

// Verifies and reads the first bytes of a file, length field included.
// DATA_LOSS for damage, FAILED_PRECONDITION for a safetensors file that is no
// artefact, UNIMPLEMENTED for a later format version or an unknown codec.
absl::StatusOr<ArtefactHeader> ParseArtefactHeader(
    absl::string_view raw, Checkpoint* checkpoint = nullptr);

// Whether a metadata key belongs to the format, and so marks an artefact.
bool IsReservedMetadataKey(absl::string_view key);

}  // namespace kvcompress

#endif  // KVCOMPRESS_ARTEFACT_H_
