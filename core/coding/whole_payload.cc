// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/whole_payload.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kvcompress/error.h"
#include "quantization/int8.h"
#include "status/macros.h"

namespace kvcompress::coding {
namespace {

struct PlaceMemory {
  explicit PlaceMemory(Checkpoint* its_checkpoint)
      : checkpoint(its_checkpoint) {}

  Checkpoint* const checkpoint;
  std::unique_ptr<BlockDecoder> decoder;
};

}  // namespace

absl::Status DamagedPayload(const TensorSpec& spec, absl::string_view message) {
  return MakeError(absl::StatusCode::kDataLoss, message,
                   {.reason = "PAYLOAD_DAMAGED", .tensor = spec.name});
}

absl::Status DamagedBlock(const TensorSpec& spec, const Geometry& geometry,
                          uint64_t index, uint64_t offset,
                          const absl::Status& status) {
  return DamagedPayload(
      spec, absl::StrCat("block ", index, " of ", geometry.block_count(),
                         ", at offset ", offset,
                         " of the payload: ", status.message()));
}

absl::Status DecodeIntegers(const TensorSpec& spec, absl::string_view bytes,
                            uint64_t first, size_t count, uint8_t* decoded) {
  const absl::Status status =
      DecodeInt8(spec.dtype, AsBytes(bytes), count, decoded);
  if (status.ok()) return status;
  return DamagedPayload(
      spec, absl::StrCat("elements from ", first, " on: ", status.message()));
}

WholePayload::WholePayload(const TensorSpec& spec, uint64_t elements,
                           NewBlockDecoder modes, absl::string_view payload)
    : spec_(spec),
      elements_(elements),
      modes_(modes),
      payload_(payload),
      mode_(AsBytes(payload)[0]),
      decoder_(mode_ == kModeInt8 ? nullptr : modes(mode_, spec)) {}

std::unique_ptr<WholePayload> WholePayload::Read(const TensorSpec& spec,
                                                 uint64_t elements,
                                                 NewBlockDecoder modes,
                                                 absl::string_view payload) {
  if (elements == 0 || payload.empty()) return nullptr;
  std::unique_ptr<WholePayload> whole(
      new WholePayload(spec, elements, modes, payload));
  const bool reads = whole->mode_ == kModeInt8
                         ? payload.size() == 1 + Int8Size(elements)
                         : whole->has_blocks() && whole->ReadBlocks();
  return reads ? std::move(whole) : nullptr;
}

bool WholePayload::ReadBlocks() {
  const absl::Span<const uint8_t> bytes = AsBytes(payload_);
  if (bytes.size() < kTensorHeaderSize) return false;
  const Geometry& geometry = decoder_->geometry();
  size_t position = TensorHeaderSize(bytes.first(kTensorHeaderSize));
  if (bytes.size() < position) return false;
  absl::StatusOr<TensorHeader> header =
      ReadTensorHeader(bytes.first(position), geometry);
  if (!header.ok()) return false;
  header_ = *std::move(header);
  const size_t header_size = BlockHeaderSize(header_.mode);
  size_t anew = 0;
  for (uint64_t i = 0; i < geometry.block_count(); ++i) {
    const Block block = geometry.block(i);
    const absl::Span<const uint8_t> left = bytes.subspan(position);
    if (left.size() < header_size) return false;
    const absl::StatusOr<BlockHeader> sizes = ReadBlockHeader(
        header_.mode, left.first(header_size), geometry.Elements(block));
    if (!sizes.ok() || sizes->size > left.size()) return false;
    BlockOfPayload& found = blocks_.emplace_back();
    found.block = block;
    found.offset = position;
    found.bytes = payload_.substr(position, sizes->size);
    found.anew = decoder_->BeginsAnew(header_, block, AsBytes(found.bytes));
    if (found.anew) anew = i;
    // The first block of each part of the heads must carry its own bases.
    if (!found.anew && block.first_token == 0) return false;
    found.before = anew;
    if (!found.anew) blocks_[anew].needed_by_others = true;
    position += sizes->size;
  }
  return position == bytes.size() && !blocks_.empty();
}

bool WholePayload::DecodeBlocks(Workers* workers, Checkpoint* checkpoint,
                                uint8_t* tensor) {
  std::vector<size_t> anew;
  std::vector<size_t> others;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    (blocks_[i].anew ? anew : others).push_back(i);
  }
  // With what others need of a block.
  std::vector<std::unique_ptr<BlockDecoder>> first(blocks_.size());
  PlaceMemory own(checkpoint);
  AtPlaces<PlaceMemory> memory_of(workers, &own, checkpoint);
  std::atomic<bool> whole{true};
  const auto decode = [&](size_t i, size_t place) {
    PlaceMemory& memory = memory_of[place];
    if (Stops(memory.checkpoint) || !whole) return;
    if (memory.decoder == nullptr) memory.decoder = modes_(mode_, spec_);
    BlockDecoder* before = nullptr;
    if (!blocks_[i].anew) {
      const size_t with = blocks_[i].before;
      if (first[with] == nullptr) return void(whole = false);
      before = first[with].get();
    }
    if (!memory.decoder
             ->DecodeTo(header_, blocks_[i].block, AsBytes(blocks_[i].bytes),
                        before, tensor)
             .ok()) {
      whole = false;
    } else if (blocks_[i].needed_by_others) {
      first[i] = modes_(mode_, spec_);
      first[i]->TakeForOthers(memory.decoder.get());
    }
  };
  ForEach(workers, anew.size(),
          [&](size_t i, size_t place) { decode(anew[i], place); });
  ForEach(workers, others.size(),
          [&](size_t i, size_t place) { decode(others[i], place); });
  return !Stops(checkpoint) && whole;
}

size_t WholePayload::Cut(size_t size) {
  if (has_blocks() && decoder_->collects_heads()) return 0;
  const size_t element_size = DTypeSize(spec_.dtype);
  if (!has_blocks()) {
    const size_t step =
        std::max<size_t>(1, size / (kInt8BlockElements * element_size)) *
        kInt8BlockElements;
    for (size_t begin = 0; begin < elements_; begin += step) {
      pieces_.push_back(
          {begin, std::min<size_t>(begin + step, elements_), begin});
    }
    return pieces_.size();
  }
  const Geometry& geometry = decoder_->geometry();
  uint64_t element = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const uint64_t end = element + geometry.Elements(blocks_[i].block);
    if (i == 0 || (end - pieces_.back().first) * element_size > size) {
      pieces_.push_back({.begin = i, .first = element});
    }
    pieces_.back().end = i + 1;
    element = end;
  }
  return pieces_.size();
}

absl::Status WholePayload::DecodePiece(size_t index,
                                       std::string* decoded) const {
  const Piece& piece = pieces_[index];
  if (!has_blocks()) {
    for (size_t first = piece.begin; first < piece.end;
         first += kInt8BlockElements) {
      const size_t count = std::min(kInt8BlockElements, piece.end - first);
      const size_t begin = decoded->size();
      decoded->resize(begin + count * DTypeSize(spec_.dtype));
      KVC_RETURN_IF_ERROR(DecodeIntegers(
          spec_, payload_.substr(1 + Int8Size(first), Int8Size(count)), first,
          count, reinterpret_cast<uint8_t*>(decoded->data() + begin)));
    }
    return absl::OkStatus();
  }
  const std::unique_ptr<BlockDecoder> decoder = modes_(mode_, spec_);
  for (size_t i = piece.begin; i < piece.end; ++i) {
    const absl::Status status = decoder->Decode(
        header_, blocks_[i].block, AsBytes(blocks_[i].bytes),
        [](uint64_t, uint64_t) { return true; }, decoded);
    if (!status.ok()) {
      return DamagedBlock(spec_, decoder_->geometry(), i, blocks_[i].offset,
                          status);
    }
  }
  return absl::OkStatus();
}

}  // namespace kvcompress::coding
