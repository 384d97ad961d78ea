// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "container/manifest.h"

#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "digest/digest.h"
#include "kvcompress/error.h"
#include "kvcompress/layout.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

constexpr absl::string_view kScalar = "-";

std::string RoleField(const TensorSpec& spec) {
  std::string field = "-";
  if (spec.role == TensorRole::kKey) field = "k";
  if (spec.role == TensorRole::kValue) field = "v";
  if (spec.layer) absl::StrAppend(&field, *spec.layer);
  return field;
}

// A decimal number as StrCat writes it.
std::optional<uint64_t> ParseDecimal(absl::string_view text, uint64_t most) {
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  uint64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const uint64_t digit = static_cast<uint64_t>(c - '0');
    if (value > (most - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

bool IsDigest(absl::string_view text) {
  return text.size() == kDigestDigits &&
         text.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}

// How the entry of a tensor in a layout begins.
constexpr char kLayoutMark = '@';
// Fields of an entry, and those that come before the views of a layout and for
// each view.
constexpr size_t kPlainFields = 5;
constexpr size_t kLayoutFields = 3;
constexpr size_t kViewFields = 4;

std::string ShapeField(const TensorSpec& spec) {
  return spec.shape.empty() ? std::string(kScalar)
                            : absl::StrJoin(spec.shape, "x");
}

// The digest of the payload of a tensor whose group has it elsewhere.
constexpr char kElsewhere[] = "-";
// The codec of a view that has the one of the view before it, where tensors are
// coded in groups: many small payloads would else be named at length.
constexpr char kSameCodec[] = "=";

const std::string& EmptyDigest() {
  static const auto* const digest = new std::string(Digest().Hex());
  return *digest;
}

absl::string_view DigestField(const ArtefactTensor& tensor) {
  if (tensor.codec.codec->coded_in_groups() && !tensor.full_digest &&
      tensor.digest == EmptyDigest()) {
    return kElsewhere;
  }
  return tensor.digest.empty() ? kNoDigest : tensor.digest;
}

// Reads entries. Not thread safe.
class Parser {
 public:
  explicit Parser(ArtefactHeader* header) : header_(header) {}

  absl::Status Read(absl::string_view text, const SafetensorsEntry& entry) {
    const std::vector<absl::string_view> fields = absl::StrSplit(text, ' ');
    name_ = entry.spec.name;
    if (!fields[0].empty() && fields[0][0] == kLayoutMark) {
      return ReadLayout(fields, entry.end - entry.begin);
    }
    if (fields.size() != kPlainFields) return Bad("number of fields");
    ArtefactTensor tensor;
    tensor.spec.name = name_;
    tensor.payload_size = entry.end - entry.begin;
    KVC_RETURN_IF_ERROR(ReadCodec(fields[0]));
    KVC_RETURN_IF_ERROR(ReadTypeAndShape(fields[1], fields[2], &tensor.spec));
    return Add(fields[3], fields[4], std::move(tensor));
  }

 private:
  absl::Status Bad(absl::string_view what) const {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("the manifest's entry has a bad ", what),
                     {.reason = "INVALID_MANIFEST", .tensor = name_});
  }

  absl::Status ReadTypeAndShape(absl::string_view dtype,
                                absl::string_view shape,
                                TensorSpec* spec) const {
    const std::optional<DType> known = DTypeFromName(dtype);
    if (!known) return Bad("dtype");
    spec->dtype = *known;
    return ReadShape(shape, spec);
  }

  absl::Status ReadShape(absl::string_view text, TensorSpec* spec) const {
    if (text == kScalar) return absl::OkStatus();
    for (absl::string_view part : absl::StrSplit(text, 'x')) {
      const std::optional<uint64_t> dimension =
          ParseDecimal(part, std::numeric_limits<int64_t>::max());
      if (!dimension) {
        return Bad(absl::StrCat("shape: dimension ", spec->shape.size(),
                                " is not a decimal number below 2^63"));
      }
      spec->shape.push_back(*dimension);
    }
    return absl::OkStatus();
  }

  absl::Status ReadRole(absl::string_view text, TensorSpec* spec) const {
    const char role = text.empty() ? '\0' : text[0];
    if (role == 'k') {
      spec->role = TensorRole::kKey;
    } else if (role == 'v') {
      spec->role = TensorRole::kValue;
    } else if (role != '-') {
      return Bad("role: it does not begin with k, v or -");
    }
    if (text.size() == 1) return absl::OkStatus();
    const std::optional<uint64_t> layer =
        ParseDecimal(text.substr(1), std::numeric_limits<uint32_t>::max());
    if (!layer) {
      return Bad("role: its layer is not a decimal number below 2^32");
    }
    spec->layer = static_cast<uint32_t>(*layer);
    return absl::OkStatus();
  }

  absl::Status ReadCodec(absl::string_view field) {
    if (codec_.codec != nullptr && codec_field_ == field) {
      return absl::OkStatus();
    }
    const absl::StatusOr<CodecSpec> parsed = ParseManifestField(field);
    if (!parsed.ok()) {
      return MakeError(absl::StatusCode::kUnimplemented,
                       parsed.status().message(),
                       {.reason = "UNKNOWN_CODEC", .tensor = name_});
    }
    codec_ = *parsed;
    codec_field_ = field;
    return absl::OkStatus();
  }

  // With the codec that was read last.
  absl::Status Add(absl::string_view role, absl::string_view digest,
                   ArtefactTensor tensor) {
    if (!codec_.codec->traits().Takes(tensor.spec.dtype)) return Bad("dtype");
    KVC_RETURN_IF_ERROR(ReadRole(role, &tensor.spec));
    tensor.codec = codec_;
    if (codec_.codec->coded_in_groups()) {
      tensor.full_digest = digest == EmptyDigest();
      if (digest == kElsewhere) digest = EmptyDigest();
    }
    if (!IsDigest(digest)) return Bad("digest");
    tensor.digest = std::string(digest);
    header_->tensors.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  absl::Status ReadLayout(absl::Span<const absl::string_view> fields,
                          uint64_t size) {
    if (fields.size() < kLayoutFields) return Bad("number of fields");
    const absl::string_view text = fields[0].substr(1);
    if (IsPlainLayout(text)) return Bad("layout");
    if (absl::Status status = ValidateLayout(text); !status.ok()) {
      return MakeError(absl::StatusCode::kUnimplemented, status.message(),
                       {.reason = "UNKNOWN_LAYOUT", .tensor = name_});
    }
    TensorSpec source;
    source.name = name_;
    KVC_RETURN_IF_ERROR(ReadTypeAndShape(fields[1], fields[2], &source));
    KVC_ASSIGN_OR_RETURN(Layout layout, Layout::Of(text, source));
    views_ += layout.views() - 1;
    if (views_ > kMaxViews) return Bad("number of views");
    if (fields.size() != kLayoutFields + kViewFields * layout.views()) {
      return Bad("number of fields");
    }
    const size_t first = header_->tensors.size();
    for (size_t i = 0; i < layout.views(); ++i) {
      const absl::Span<const absl::string_view> view =
          fields.subspan(kLayoutFields + kViewFields * i, kViewFields);
      ArtefactTensor tensor;
      tensor.spec = layout.View(i);
      tensor.spec.role = TensorRole::kNone;
      tensor.spec.layer.reset();
      const std::optional<uint64_t> payload =
          ParseDecimal(view[2], std::numeric_limits<int64_t>::max());
      if (!payload || *payload > size) return Bad("size");
      size -= *payload;
      tensor.payload_size = *payload;
      if (view[0] != kSameCodec) {
        KVC_RETURN_IF_ERROR(ReadCodec(view[0]));
      } else if (i == 0 || !codec_.codec->coded_in_groups()) {
        return Bad("codec");
      }
      KVC_RETURN_IF_ERROR(Add(view[1], view[3], std::move(tensor)));
    }
    if (size != 0) return Bad("size");
    header_->laid_out.push_back({std::move(layout), first});
    return absl::OkStatus();
  }

  ArtefactHeader* const header_;
  std::string name_;
  uint64_t views_ = 0;  // that come on top of tensors
  // Of the tensor before, which is likely to have the same.
  absl::string_view codec_field_;
  CodecSpec codec_;
};

}  // namespace

absl::StatusOr<std::string> SerializeManifest(const ArtefactHeader& header,
                                              Checkpoint* checkpoint) {
  std::string out;
  size_t sources = 0;
  const auto add_source = [&](const TensorSpec& spec, size_t first,
                              size_t count, const Layout* layout) {
    if (StopsAt(sources++, checkpoint)) return checkpoint->status();
    if (first > 0) out += ';';
    if (layout != nullptr) {
      absl::StrAppend(&out, absl::string_view(&kLayoutMark, 1), layout->text(),
                      " ", DTypeName(spec.dtype), " ", ShapeField(spec));
    }
    std::string before;
    for (size_t i = first; i < first + count; ++i) {
      const ArtefactTensor& tensor = header.tensors[i];
      if (layout != nullptr) {
        std::string codec = tensor.codec.ManifestField();
        const bool same =
            codec == before && tensor.codec.codec->coded_in_groups();
        absl::StrAppend(&out, " ", same ? kSameCodec : codec, " ",
                        RoleField(tensor.spec), " ", tensor.payload_size, " ",
                        DigestField(tensor));
        before = std::move(codec);
      } else {
        absl::StrAppend(&out, tensor.codec.ManifestField(), " ",
                        DTypeName(spec.dtype), " ", ShapeField(spec), " ",
                        RoleField(spec), " ", DigestField(tensor));
      }
    }
    return absl::OkStatus();
  };
  KVC_RETURN_IF_ERROR(ForEachSource(header, add_source));
  return out;
}

absl::Status ParseManifest(absl::string_view text,
                           absl::Span<const SafetensorsEntry> entries,
                           Checkpoint* checkpoint, ArtefactHeader* header) {
  std::vector<absl::string_view> texts;
  if (!text.empty()) texts = absl::StrSplit(text, ';');
  if (texts.size() != entries.size()) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("the manifest lists ", texts.size(),
                                  " tensors, the header ", entries.size()),
                     {.reason = "INVALID_MANIFEST"});
  }
  Parser parser(header);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (StopsAt(i, checkpoint)) return checkpoint->status();
    KVC_RETURN_IF_ERROR(parser.Read(texts[i], entries[i]));
  }
  return absl::OkStatus();
}

}  // namespace kvcompress
