// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/stream_decoder.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "quantization/int8.h"
#include "status/macros.h"
#include "tensor/block_stream.h"
#include "tensor/slabs.h"
#include "tensor/workers.h"

namespace kvcompress::coding {
namespace {

absl::Span<const uint8_t> AsBytes(absl::string_view bytes) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()),
                             bytes.size());
}

class StreamDecoder : public TensorDecoder {
 public:
  StreamDecoder(const TensorSpec& spec, uint64_t elements,
                NewBlockDecoder modes)
      : spec_(spec),
        modes_(modes),
        elements_(elements),
        elements_left_(elements) {}

  absl::StatusOr<bool> Decode(absl::string_view* payload, size_t most,
                              std::string* decoded) override {
    // Bytes that this call has decoded to output_.
    for (size_t work = 0;;) {
      if (!Give(most, decoded) || (work > 0 && work >= most)) return true;
      if (payload->empty()) return false;
      if (elements_left_ == 0) {
        return Damaged("bytes follow the end of the payload");
      }
      if (!collects_heads() &&
          !Fits(due_ * DTypeSize(spec_.dtype), most, *decoded)) {
        return true;
      }
      KVC_RETURN_IF_ERROR(integers_ ? TakeIntegers(payload, decoded)
                                    : TakePayload(payload, &work, decoded));
    }
  }

  absl::StatusOr<bool> DecodeWhole(absl::string_view payload, Workers* workers,
                                   Checkpoint* checkpoint,
                                   std::string* decoded) override {
    std::vector<BlockOfPayload> blocks;
    if (!needs_all() || !FindBlocks(payload, &blocks)) return false;
    ResizeInSlabs(checkpoint, elements_ * DTypeSize(spec_.dtype), decoded);
    auto* const tensor = reinterpret_cast<uint8_t*>(decoded->data());
    std::vector<size_t> anew;
    std::vector<size_t> others;
    for (size_t i = 0; i < blocks.size(); ++i) {
      (blocks[i].anew ? anew : others).push_back(i);
    }
    // With what others need of a block.
    std::vector<std::unique_ptr<BlockDecoder>> first(blocks.size());
    PlaceMemory own(checkpoint);
    AtPlaces<PlaceMemory> memory_of(workers, &own, checkpoint);
    std::atomic<bool> whole{true};
    const auto decode = [&](size_t i, size_t place) {
      PlaceMemory& memory = memory_of[place];
      if (Stops(memory.checkpoint) || !whole) return;
      if (memory.decoder == nullptr) memory.decoder = modes_(mode_, spec_);
      BlockDecoder* before = nullptr;
      if (!blocks[i].anew) {
        const size_t with = blocks[i].before;
        if (first[with] == nullptr) return void(whole = false);
        before = first[with].get();
      }
      if (!memory.decoder
               ->DecodeTo(*header_, blocks[i].block, AsBytes(blocks[i].bytes),
                          before, tensor)
               .ok()) {
        whole = false;
      } else if (blocks[i].needed_by_others) {
        first[i] = modes_(mode_, spec_);
        first[i]->TakeForOthers(memory.decoder.get());
      }
    };
    ForEach(workers, anew.size(),
            [&](size_t i, size_t place) { decode(anew[i], place); });
    ForEach(workers, others.size(),
            [&](size_t i, size_t place) { decode(others[i], place); });
    if (Stops(checkpoint)) return checkpoint->status();
    if (whole) {
      elements_left_ = 0;
    } else {
      decoded->clear();
      header_.reset();
    }
    blocks_.reset();
    return bool{whole};
  }

  absl::Status Finish() override {
    if (elements_left_ != 0 || !pending_.empty()) {
      return Damaged(absl::StrCat("the payload is incomplete: ", elements_left_,
                                  " of ", elements_, " elements are missing"));
    }
    return absl::OkStatus();
  }

 private:
  struct BlockOfPayload {
    Block block;
    absl::string_view bytes;
    bool anew = false;
    size_t before = 0;  // the last one that begins anew, up to this one
    bool needed_by_others = false;
  };
  struct PlaceMemory {
    explicit PlaceMemory(Checkpoint* its_checkpoint)
        : checkpoint(its_checkpoint) {}

    Checkpoint* const checkpoint;
    std::unique_ptr<BlockDecoder> decoder;
  };

  // Reads the headers of a payload that is whole, of the tensor and of all
  // blocks. False when it breaks a rule, or has none.
  bool FindBlocks(absl::string_view payload,
                  std::vector<BlockOfPayload>* blocks) {
    const absl::Span<const uint8_t> bytes = AsBytes(payload);
    if (bytes.size() < kTensorHeaderSize || bytes[0] == kModeInt8) return false;
    mode_ = bytes[0];
    blocks_ = modes_(mode_, spec_);
    if (blocks_ == nullptr) return false;
    const Geometry& geometry = blocks_->geometry();
    absl::StatusOr<TensorHeader> header =
        absl::InvalidArgumentError("the header is cut short");
    size_t position = TensorHeaderSize(bytes.first(kTensorHeaderSize));
    if (bytes.size() >= position) {
      header = ReadTensorHeader(bytes.first(position), geometry);
    }
    bool reads = header.ok();
    size_t anew = 0;
    const size_t header_size = reads ? BlockHeaderSize(header->mode) : 0;
    for (uint64_t i = 0; reads && i < geometry.block_count(); ++i) {
      const Block block = geometry.block(i);
      const absl::Span<const uint8_t> left = bytes.subspan(position);
      if (left.size() < header_size) {
        reads = false;
        break;
      }
      const absl::StatusOr<BlockHeader> sizes = ReadBlockHeader(
          header->mode, left.first(header_size), geometry.Elements(block));
      reads = sizes.ok() && sizes->size <= left.size();
      if (!reads) break;
      BlockOfPayload& found = blocks->emplace_back();
      found.block = block;
      found.bytes = payload.substr(position, sizes->size);
      found.anew = blocks_->BeginsAnew(*header, block, AsBytes(found.bytes));
      if (found.anew) anew = i;
      // A part of the heads does not go on with the bases of another.
      if (!found.anew && block.first_token == 0) reads = false;
      found.before = anew;
      if (!found.anew) (*blocks)[anew].needed_by_others = true;
      position += sizes->size;
    }
    if (!reads || position != bytes.size() || blocks->empty()) {
      blocks_.reset();
      return false;
    }
    header_ = *std::move(header);
    return true;
  }

  bool collects_heads() const { return blocks_ && blocks_->collects_heads(); }

  // Gives what is whole of the output, as far as there is room. False when some
  // of it is left.
  bool Give(size_t most, std::string* decoded) {
    if (!whole_) return true;
    const size_t room = most > decoded->size() ? most - decoded->size() : 0;
    const size_t size = std::min(room, output_.size() - given_);
    decoded->append(output_, given_, size);
    given_ += size;
    if (given_ < output_.size()) return false;
    output_.clear();
    whole_ = false;
    given_ = 0;
    return true;
  }

  // Takes what a part still wants, and decodes it once it is whole. Adds the
  // bytes that it decodes to output_ to `*work`.
  absl::Status TakePayload(absl::string_view* payload, size_t* work,
                           std::string* decoded) {
    const absl::string_view part =
        payload->substr(0, wanted_ - pending_.size());
    pending_.append(part.data(), part.size());
    payload->remove_prefix(part.size());
    if (pending_.size() < wanted_) return absl::OkStatus();
    if (!header_) return TakeHeader();
    return TakeBlock(work, decoded);
  }

  // Advances when pending_ has wanted_ bytes of the tensor header: to more of
  // them, or to the first block.
  absl::Status TakeHeader() {
    const absl::Span<const uint8_t> bytes = AsBytes(pending_);
    if (bytes[0] == kModeInt8) {
      integers_.emplace(Int8Size(elements_), Int8Size(kInt8BlockElements));
      pending_.clear();
      due_ = std::min<uint64_t>(elements_, kInt8BlockElements);
      return absl::OkStatus();
    }
    if (blocks_ == nullptr) {
      blocks_ = modes_(bytes[0], spec_);
      if (blocks_ == nullptr) {
        return Damaged(
            absl::StrCat("the codec has no mode ", bytes[0],
                         ", which is the first byte of the payload"));
      }
    }
    const size_t size = bytes.size() < kTensorHeaderSize
                            ? kTensorHeaderSize
                            : TensorHeaderSize(bytes);
    if (bytes.size() < size) return Want(size);
    absl::StatusOr<TensorHeader> header =
        ReadTensorHeader(bytes, blocks_->geometry());
    if (!header.ok()) return Damaged(header.status().message());
    header_ = *std::move(header);
    return NextBlock(size);
  }

  // The same of a block: to the rest of it, or to the next.
  absl::Status TakeBlock(size_t* work, std::string* decoded) {
    const absl::Span<const uint8_t> bytes = AsBytes(pending_);
    if (bytes.size() == BlockHeaderSize(header_->mode)) {
      const absl::StatusOr<BlockHeader> sizes =
          ReadBlockHeader(header_->mode, bytes, due_);
      if (!sizes.ok()) return DamagedBlock(sizes.status());
      return Want(sizes->size);
    }
    const Geometry& geometry = blocks_->geometry();
    const absl::Status status = blocks_->Decode(
        *header_, geometry.block(block_), bytes,
        [this](uint64_t begin, uint64_t end) { return IsNeeded(begin, end); },
        collects_heads() ? &output_ : decoded);
    if (!status.ok()) return DamagedBlock(status);
    elements_left_ -= due_;
    ++block_;
    if (collects_heads()) {
      *work += due_ * DTypeSize(spec_.dtype);
      whole_ = block_ % geometry.token_parts() == 0;
    }
    return NextBlock(bytes.size());
  }

  // `size` bytes of the payload are done.
  absl::Status NextBlock(size_t size) {
    const bool first = position_ == 0;
    position_ += size;
    pending_.clear();
    if (elements_left_ > 0) {
      const Geometry& geometry = blocks_->geometry();
      due_ = geometry.Elements(geometry.block(block_));
      // Once: the first block is the largest.
      if (first) pending_.reserve(MaxBlockSize(due_));
    }
    return Want(BlockHeaderSize(header_->mode));
  }

  absl::Status Want(size_t size) {
    wanted_ = size;
    return absl::OkStatus();
  }

  absl::Status TakeIntegers(absl::string_view* payload, std::string* decoded) {
    const absl::string_view run = integers_->Next(payload);
    if (run.empty()) return absl::OkStatus();
    const uint64_t first = elements_ - elements_left_;
    const size_t begin = decoded->size();
    decoded->resize(begin + due_ * DTypeSize(spec_.dtype));
    if (IsNeeded(first, first + due_)) {
      const absl::Status status =
          DecodeInt8(spec_.dtype, AsBytes(run), due_,
                     reinterpret_cast<uint8_t*>(decoded->data() + begin));
      if (!status.ok()) {
        return Damaged(
            absl::StrCat("elements from ", first, " on: ", status.message()));
      }
    }
    elements_left_ -= due_;
    due_ = std::min<uint64_t>(elements_left_, kInt8BlockElements);
    return absl::OkStatus();
  }

  absl::Status DamagedBlock(const absl::Status& status) const {
    return Damaged(absl::StrCat(
        "block ", block_, " of ", blocks_->geometry().block_count(),
        ", at offset ", position_, " of the payload: ", status.message()));
  }

  absl::Status Damaged(absl::string_view message) const {
    return MakeError(absl::StatusCode::kDataLoss, message,
                     {.reason = "PAYLOAD_DAMAGED", .tensor = spec_.name});
  }

  const TensorSpec spec_;
  const NewBlockDecoder modes_;
  const uint64_t elements_;
  uint64_t elements_left_;  // of what is not decoded
  // A part that is not whole yet, and how long it must become.
  std::string pending_;
  size_t wanted_ = 1;
  uint64_t position_ = 0;  // of that part in the payload
  std::unique_ptr<BlockDecoder> blocks_;
  uint8_t mode_ = 0;
  std::optional<TensorHeader> header_;
  uint64_t block_ = 0;
  size_t due_ = 0;      // elements that come next
  std::string output_;  // of a part of the heads
  bool whole_ = false;  // whether it has all their tokens
  size_t given_ = 0;    // bytes of it that were taken
  std::optional<BlockStream> integers_;
};

}  // namespace

std::unique_ptr<TensorDecoder> NewStreamDecoder(const TensorSpec& spec,
                                                uint64_t elements,
                                                NewBlockDecoder modes) {
  return std::make_unique<StreamDecoder>(spec, elements, modes);
}

}  // namespace kvcompress::coding
