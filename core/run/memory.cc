// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "kvcompress/placed_decompressor.h"
#include "kvcompress/places.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

absl::Status WrongSize(const TensorSpec& spec, uint64_t expected,
                       uint64_t found) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("the tensor has ", expected,
                                " bytes by its shape, and its memory ", found),
                   {.reason = "WRONG_SIZE", .tensor = spec.name});
}

// Pieces of memory, one after the other, as if they were one.
template <typename Bytes>
class Pieces {
 public:
  void Add(Bytes bytes) {
    begins_.push_back(size_);
    size_ += bytes.size();
    pieces_.push_back(bytes);
  }
  uint64_t size() const { return size_; }

  // Bytes [offset, offset + size), which are of one piece.
  Bytes At(uint64_t offset, size_t size) const {
    // Of pieces that begin together, all but the last are empty.
    const auto next = std::upper_bound(begins_.begin(), begins_.end(), offset);
    const auto index = static_cast<size_t>(next - begins_.begin()) - 1;
    const Bytes& piece = pieces_[index];
    return Bytes(piece.data() + (offset - begins_[index]), size);
  }

 private:
  std::vector<Bytes> pieces_;
  std::vector<uint64_t> begins_;
  uint64_t size_ = 0;
};

class TensorsSource final : public PlacedSource {
 public:
  absl::Status Add(const TensorBytes& tensor) {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(tensor.spec));
    const uint64_t size = elements * DTypeSize(tensor.spec.dtype);
    if (tensor.bytes.size() != size) {
      return WrongSize(tensor.spec, size, tensor.bytes.size());
    }
    pieces_.Add(tensor.bytes);
    return absl::OkStatus();
  }

  uint64_t size() const override { return pieces_.size(); }
  absl::StatusOr<absl::string_view> Read(uint64_t offset, size_t size,
                                         std::string*) const override {
    return pieces_.At(offset, size);
  }

 private:
  Pieces<absl::string_view> pieces_;
};

// Of a restored file: all but its header.
class TensorsSink final : public PlacedSink {
 public:
  explicit TensorsSink(uint64_t header) : header_(header) {}

  void Add(absl::Span<char> memory) { pieces_.Add(memory); }

  char* At(uint64_t offset, uint64_t size) override {
    if (offset < header_) return nullptr;
    return pieces_.At(offset - header_, size).data();
  }
  absl::Status Write(uint64_t, absl::string_view) override {
    return absl::OkStatus();
  }

 private:
  const uint64_t header_;
  Pieces<absl::Span<char>> pieces_;
};

}  // namespace

absl::StatusOr<CompressedCache> CompressTensors(
    absl::Span<const TensorBytes> tensors, CompressOptions options,
    const Threads& threads,
    std::vector<std::pair<std::string, std::string>> metadata) {
  if (options.reconstruct) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     "no values are given back: restore the artefact",
                     {.reason = "INVALID_OPTIONS", .field = "reconstruct"});
  }
  TensorsSource source;
  std::vector<TensorSpec> specs;
  for (const TensorBytes& tensor : tensors) {
    KVC_RETURN_IF_ERROR(source.Add(tensor));
    specs.push_back(tensor.spec);
  }
  Compressor compressor(std::move(options), {.threads = threads});
  CompressOutput output;
  KVC_RETURN_IF_ERROR(
      compressor.DeclareTensors(specs, std::move(metadata), &output, &source));
  CompressedCache cache;
  cache.artefact.resize(compressor.reserved_header_size());
  for (bool more = true; more; output.artefact.clear()) {
    KVC_ASSIGN_OR_RETURN(
        more, compressor.AppendFrom(source, absl::InfiniteDuration(), &output));
    cache.artefact += output.artefact;
  }
  KVC_ASSIGN_OR_RETURN(cache.report, compressor.Finish());
  cache.artefact.replace(0, compressor.header().size(), compressor.header());
  return cache;
}

absl::StatusOr<DecompressReport> RestoreTensors(absl::string_view artefact,
                                                DecompressOptions options,
                                                const Threads& threads,
                                                MemoryForTensor memory) {
  const MemorySource source(artefact);
  std::optional<TensorsSink> sink;  // jobs may write until the next ends
  PlacedDecompressor decompressor(std::move(options), {.threads = threads});
  KVC_RETURN_IF_ERROR(decompressor.Open(&source));
  KVC_ASSIGN_OR_RETURN(const auto places, decompressor.Places());
  uint64_t header = decompressor.output_size();
  if (!places.empty()) header = places.front().begin;
  sink.emplace(header);
  for (const PlacedDecompressor::Place& place : places) {
    KVC_ASSIGN_OR_RETURN(const absl::Span<char> its, memory(place.spec));
    if (its.size() != place.end - place.begin) {
      return WrongSize(place.spec, place.end - place.begin, its.size());
    }
    sink->Add(its);
  }
  for (bool more = true; more;) {
    KVC_ASSIGN_OR_RETURN(
        more, decompressor.Restore(&*sink, absl::InfiniteDuration()));
  }
  return decompressor.Finish();
}

}  // namespace kvcompress
