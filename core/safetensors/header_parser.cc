// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "kvcompress/safetensors.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

// The text of a header begins here in its file.
constexpr uint64_t kTextOffset = 8;

// So that a position in a file always fits 63 bits.
constexpr uint64_t kMaxData = std::numeric_limits<int64_t>::max() / 2;

// Of an artefact: what it was made from had kMaxMetadata at most.
constexpr uint64_t kMaxEntries = 2 * kMaxMetadata;

absl::Status InvalidHeader(absl::string_view what, absl::string_view reason,
                           std::optional<std::string> tensor = std::nullopt,
                           std::optional<uint64_t> offset = std::nullopt) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("parse header: ", what),
                   {.reason = std::string(reason),
                    .tensor = std::move(tensor),
                    .offset = offset});
}

absl::Status TooMany(absl::string_view what, absl::string_view reason,
                     uint64_t limit) {
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("parse header: there are more than ", limit, " ", what),
      {.reason = std::string(reason), .limit = limit});
}

// The bytes of a text, which ends early where the work is to end. So the JSON
// library, whatever it makes of the bytes, looks every few thousand of them.
class CheckedBytes {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CheckedBytes(const char* at, const char* end, Checkpoint* checkpoint)
      : at_(at), end_(end), checkpoint_(checkpoint) {}

  reference operator*() const { return *at_; }
  CheckedBytes& operator++() {
    constexpr std::ptrdiff_t kBytes = 16 << 10;
    ++at_;
    if ((end_ - at_) % kBytes == 0 && at_ != end_ && Stops(checkpoint_)) {
      at_ = end_;
    }
    return *this;
  }
  friend bool operator==(const CheckedBytes& a, const CheckedBytes& b) {
    return a.at_ == b.at_;
  }

 private:
  const char* at_;
  const char* end_;
  Checkpoint* checkpoint_;
};

// Builds the table while the JSON library reads. Stops at the first thing out
// of place, so that nesting never goes deeper than the format's.
class HeaderHandler : public nlohmann::json::json_sax_t {
 public:
  SafetensorsHeader header;
  absl::Status status;

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(number_integer_t) override {
    return Unexpected("a negative number");
  }
  bool number_float(number_float_t, const string_t&) override {
    return Unexpected("a number that is no 64-bit integer");
  }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      tensor_.spec.shape.push_back(value);
      return true;
    }
    if (place_ == Place::kOffsets) {
      offsets_.push_back(value);
      return true;
    }
    return Unexpected("a number");
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      if (header.metadata.size() == kMaxEntries) {
        return Fail(TooMany("entries of __metadata__", "TOO_MUCH_METADATA",
                            kMaxEntries));
      }
      header.metadata.emplace_back(std::move(key_), std::move(value));
      return true;
    }
    if (place_ == Place::kTensor && key_ == "dtype") {
      const std::optional<DType> dtype = DTypeFromName(value);
      if (!dtype) {
        constexpr size_t kShown = 40;
        return Fail(InvalidHeader(
            absl::StrCat(
                "unsupported data type: ",
                Printable(absl::Utf8SafeCEscape(TruncateUtf8(value, kShown)))),
            "UNSUPPORTED_DTYPE", tensor_.spec.name));
      }
      tensor_.spec.dtype = *dtype;
      return true;
    }
    return Unexpected("a string");
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
      return true;
    }
    if (place_ == Place::kTop) {
      fields_seen_.clear();
      if (key_ == "__metadata__") {
        place_ = Place::kMetadata;
      } else {
        place_ = Place::kTensor;
        tensor_ = SafetensorsEntry();
        tensor_.spec.name = key_;
      }
      return true;
    }
    return Unexpected("an object");
  }

  bool key(string_t& value) override {
    const bool top = place_ == Place::kTop;
    key_ = std::move(value);
    if (!(top ? names_seen_ : fields_seen_).insert(key_).second) {
      return Fail(InvalidHeader(absl::StrCat("duplicate key ", QuoteName(key_)),
                                "DUPLICATE_KEY", top ? key_ : CurrentTensor()));
    }
    if (place_ == Place::kTensor && key_ != "dtype" && key_ != "shape" &&
        key_ != "data_offsets") {
      return Fail(InvalidHeader(absl::StrCat("unknown field ", QuoteName(key_)),
                                "INVALID_HEADER", CurrentTensor()));
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) return EndTensor();
    place_ = place_ == Place::kMetadata ? Place::kTop : Place::kStart;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kTensor && key_ == "shape") {
      place_ = Place::kShape;
      return true;
    }
    if (place_ == Place::kTensor && key_ == "data_offsets") {
      place_ = Place::kOffsets;
      offsets_.clear();
      return true;
    }
    return Unexpected("an array");
  }

  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(InvalidHeader("invalid JSON", "INVALID_JSON", std::nullopt,
                              kTextOffset + position - (position > 0)));
  }

 private:
  // With a seed, so that nobody can choose names of one bucket.
  using Names = std::unordered_set<std::string, absl::Hash<std::string>>;

  enum class Place { kStart, kTop, kMetadata, kTensor, kShape, kOffsets };

  bool Fail(absl::Status error) {
    status = std::move(error);
    return false;
  }

  // The tensor that a misplaced value belongs to.
  std::optional<std::string> CurrentTensor() const {
    switch (place_) {
      case Place::kTop:
        if (key_ == "__metadata__") return std::nullopt;
        return key_;
      case Place::kTensor:
      case Place::kShape:
      case Place::kOffsets:
        return tensor_.spec.name;
      case Place::kStart:
      case Place::kMetadata:
        break;
    }
    return std::nullopt;
  }

  bool Unexpected(absl::string_view what) {
    return Fail(InvalidHeader(
        absl::StrCat(what, " is not allowed as the value of ", QuoteName(key_)),
        "INVALID_HEADER", CurrentTensor()));
  }

  bool EndTensor() {
    for (absl::string_view field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_seen_.contains(std::string(field))) {
        return Fail(
            InvalidHeader(absl::StrCat("field \"", field, "\" is missing"),
                          "INVALID_HEADER", CurrentTensor()));
      }
    }
    if (offsets_.size() != 2) {
      return Fail(
          InvalidHeader(absl::StrCat("data_offsets has ", offsets_.size(),
                                     " numbers instead of 2"),
                        "INVALID_OFFSETS", CurrentTensor()));
    }
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    if (header.tensors.size() == kMaxTensors) {
      return Fail(TooMany("tensors", "TOO_MANY_TENSORS", kMaxTensors));
    }
    header.tensors.push_back(std::move(tensor_));
    place_ = Place::kTop;
    return true;
  }

  Place place_ = Place::kStart;
  std::string key_;
  SafetensorsEntry tensor_;
  std::vector<uint64_t> offsets_;
  Names names_seen_;
  Names fields_seen_;
};

// Puts the tensors into the order of their data and checks that they cover it
// from 0 to the end, each with the size that its type and shape ask for.
absl::Status OrderAndCheck(uint64_t data_start, Checkpoint* checkpoint,
                           SafetensorsHeader* header) {
  std::vector<SafetensorsEntry*> order;
  order.reserve(header->tensors.size());
  for (SafetensorsEntry& entry : header->tensors) {
    if (StopsAt(order.size(), checkpoint)) return checkpoint->status();
    order.push_back(&entry);
    KVC_ASSIGN_OR_RETURN(const uint64_t count, ElementCount(entry.spec));
    const uint64_t size = count * DTypeSize(entry.spec.dtype);
    if (entry.begin > entry.end || entry.end > kMaxData ||
        entry.end - entry.begin != size) {
      return InvalidHeader(absl::StrCat("data_offsets [", entry.begin, ", ",
                                        entry.end, "] do not hold the ", size,
                                        " bytes of the type and shape"),
                           "INVALID_OFFSETS", entry.spec.name);
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const SafetensorsEntry* a, const SafetensorsEntry* b) {
                     return std::pair(a->begin, a->end) <
                            std::pair(b->begin, b->end);
                   });
  std::vector<SafetensorsEntry> ordered;
  ordered.reserve(order.size());
  for (SafetensorsEntry* const each : order) {
    ordered.push_back(std::move(*each));
  }
  header->tensors = std::move(ordered);
  uint64_t position = 0;
  for (const SafetensorsEntry& entry : header->tensors) {
    if (entry.begin != position) {
      return InvalidHeader(
          absl::StrCat("data_offsets begin at ", entry.begin,
                       " where the data before ", "ends at ", position,
                       entry.begin > position ? ": a hole" : ": an overlap"),
          "INVALID_OFFSETS", entry.spec.name, data_start + position);
    }
    position = entry.end;
  }
  header->data_size = position;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(
    absl::string_view json, Checkpoint* checkpoint) {
  // The JSON library takes a NUL for the end of the text and would ignore what
  // follows it; no JSON text holds one.
  if (const size_t nul = json.find('\0'); nul != absl::string_view::npos) {
    return InvalidHeader("invalid JSON: a NUL byte", "INVALID_JSON",
                         std::nullopt, kTextOffset + nul);
  }
  HeaderHandler handler;
  const char* const end = json.data() + json.size();
  const bool parsed =
      nlohmann::json::sax_parse(CheckedBytes(json.data(), end, checkpoint),
                                CheckedBytes(end, end, checkpoint), &handler);
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  if (!handler.status.ok()) return handler.status;
  if (!parsed) return InvalidHeader("invalid JSON", "INVALID_JSON");
  KVC_RETURN_IF_ERROR(
      OrderAndCheck(kTextOffset + json.size(), checkpoint, &handler.header));
  return std::move(handler.header);
}

}  // namespace kvcompress
