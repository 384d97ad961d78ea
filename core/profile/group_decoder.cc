// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/group_decoder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "entropy/rans.h"
#include "kernels/elements.h"
#include "kernels/joint.h"
#include "kernels/kernels.h"
#include "profile/block_reader.h"
#include "profile/group_exceptions.h"
#include "profile/rotation_tables.h"
#include "quantization/int8.h"
#include "quantization/steps.h"
#include "status/macros.h"

namespace kvcompress::profile {
namespace {

// Symbols that are read between two looks at the checkpoint.
constexpr uint64_t kStep = uint64_t{1} << 16;

absl::Status Bad(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("a group's payload has ", what));
}

absl::Span<const uint8_t> Bytes(absl::string_view text) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()),
                             text.size());
}

}  // namespace

// Reads a payload from its front on.
class GroupQuanta::Parser {
 public:
  Parser(absl::string_view payload, Checkpoint* checkpoint, Workers* workers,
         GroupQuanta* out)
      : left_(payload),
        checkpoint_(checkpoint),
        workers_(workers),
        out_(*out) {}

  absl::Status Parse(size_t group) {
    const absl::string_view payload = left_;
    KVC_ASSIGN_OR_RETURN(const absl::string_view header,
                         Take(kGroupHeaderSize));
    KVC_ASSIGN_OR_RETURN(
        out_.header_,
        ReadGroupHeader(Bytes(header), out_.content(), out_.shape_));
    if (out_.header_.group != group) return Bad("the number of another group");
    KVC_RETURN_IF_ERROR(ReadUnits());
    KVC_RETURN_IF_ERROR(ReadOffsets());
    KVC_RETURN_IF_ERROR(ReadSinks());
    KVC_RETURN_IF_ERROR(FindBlocks(payload));
    KVC_RETURN_IF_ERROR(ReadBlocks());
    if (out_.header_.residuals) return ReadResiduals();
    if (left_.size() < out_.header_.exception_bytes) {
      return Bad("fewer bytes than it says");
    }
    if (left_.size() > out_.header_.exception_bytes) {
      return Bad("bytes behind its end");
    }
    return out_.header_.exceptions ? ReadExceptions() : absl::OkStatus();
  }

 private:
  // A block of the payload.
  struct Found {
    size_t offset = 0;   // in the payload
    uint64_t first = 0;  // token of its batch
    size_t tokens = 0;
    GroupBlockHeader header;
    absl::string_view bytes;  // behind the header
  };

  // What blocks are read with at one place.
  class Place {
   public:
    explicit Place(Checkpoint* checkpoint) : checkpoint_(checkpoint) {}

    // Asks the checkpoint once so many steps are done.
    absl::Status Spend(uint64_t steps) {
      steps_ += steps;
      if (steps_ < kStep) return absl::OkStatus();
      steps_ = 0;
      return Stops(checkpoint_) ? checkpoint_->status() : absl::OkStatus();
    }
    BlockReader& reader() { return reader_; }

   private:
    Checkpoint* const checkpoint_;
    uint64_t steps_ = 0;  // since the last look at it
    BlockReader reader_;
  };

  absl::StatusOr<absl::string_view> Take(uint64_t size) {
    if (size > left_.size()) return Bad("fewer bytes than it says");
    const absl::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }

  absl::Status ReadUnits() {
    std::vector<float>& units = out_.units_;
    units.assign(out_.group().tensors.size(), 1);
    if (!out_.header_.units) return absl::OkStatus();
    KVC_ASSIGN_OR_RETURN(const absl::string_view bytes,
                         Take(units.size() * sizeof(float)));
    std::memcpy(units.data(), bytes.data(), bytes.size());
    if (!std::all_of(units.begin(), units.end(), IsUnit)) {
      return Bad("a bad unit of a tensor");
    }
    return absl::OkStatus();
  }

  // All that is left.
  absl::Status ReadExceptions() {
    const std::vector<ProfileTensor>& tensors = out_.group().tensors;
    for (size_t i = 0; i < tensors.size(); ++i) {
      uint32_t size;
      KVC_ASSIGN_OR_RETURN(absl::string_view bytes, Take(sizeof(size)));
      std::memcpy(&size, bytes.data(), sizeof(size));
      KVC_ASSIGN_OR_RETURN(bytes, Take(size));
      KVC_RETURN_IF_ERROR(CheckExceptions(
          bytes, out_.shape_.dtypes[i],
          out_.shape_.batches * out_.shape_.tokens * tensors[i].width(),
          checkpoint_));
      out_.exceptions_.emplace_back(bytes);
    }
    if (!left_.empty()) return Bad("bytes behind its end");
    return absl::OkStatus();
  }

  // All that is left.
  absl::Status ReadResiduals() {
    for (size_t i = 0; i < out_.group().tensors.size(); ++i) {
      uint64_t size;
      KVC_ASSIGN_OR_RETURN(absl::string_view bytes, Take(sizeof(size)));
      std::memcpy(&size, bytes.data(), sizeof(size));
      KVC_ASSIGN_OR_RETURN(bytes, Take(size));
      KVC_ASSIGN_OR_RETURN(
          Residuals residuals,
          Residuals::Parse(bytes, ResidualShapeOf(out_.shape_, out_.group(), i),
                           checkpoint_));
      out_.residuals_.push_back(std::move(residuals));
    }
    if (!left_.empty()) return Bad("bytes behind its end");
    return absl::OkStatus();
  }

  absl::Status ReadOffsets() {
    KVC_ASSIGN_OR_RETURN(absl::string_view runs,
                         Take(out_.header_.offset_bytes));
    if (runs.empty()) return absl::OkStatus();
    std::vector<int8_t>& offsets = out_.offsets_;
    for (; !runs.empty(); runs.remove_prefix(kOffsetRunSize)) {
      uint16_t count;
      std::memcpy(&count, runs.data(), sizeof(count));
      const auto offset = static_cast<int8_t>(runs[2]);
      if (count == 0 || count > out_.shape_.tokens - offsets.size() ||
          offset < coding::kMinOffset || offset > coding::kMaxOffset) {
        return Bad("a bad run of offsets");
      }
      offsets.insert(offsets.end(), count, offset);
    }
    if (offsets.size() != out_.shape_.tokens) {
      return Bad("offsets of another number of tokens");
    }
    return absl::OkStatus();
  }

  absl::Status ReadSinks() {
    uint64_t size = 0;
    const std::vector<ProfileTensor>& tensors = out_.group().tensors;
    const uint64_t count = out_.shape_.batches * out_.header_.sinks;
    for (size_t i = 0; i < tensors.size(); ++i) {
      out_.sink_begins_.push_back(size);
      if (count == 0) continue;
      const uint64_t sink = SinkSize(i) * tensors[i].heads;
      if (sink > (left_.size() - size) / count) return Bad("too few sinks");
      size += sink * count;
    }
    KVC_ASSIGN_OR_RETURN(const absl::string_view sinks, Take(size));
    out_.sinks_ = std::string(sinks);
    for (size_t i = 0; count > 0 && i < tensors.size(); ++i) {
      for (uint64_t s = 0; s < tensors[i].heads * count; ++s) {
        KVC_RETURN_IF_ERROR(place_.Spend(SinkSize(i)));
        const absl::string_view sink =
            sinks.substr(out_.sink_begins_[i] + s * SinkSize(i), SinkSize(i));
        if (!IsSink(i, sink)) return Bad("a sink that is not finite");
      }
    }
    return absl::OkStatus();
  }

  uint64_t SinkSize(size_t member) const {
    const uint64_t channels = out_.group().tensors[member].channels;
    return out_.header_.exact_sinks
               ? channels * DTypeSize(out_.shape_.dtypes[member])
               : sizeof(uint16_t) + channels;
  }

  bool IsSink(size_t member, absl::string_view sink) const {
    if (out_.header_.exact_sinks) {
      return std::isfinite(
          LargestMagnitude(out_.shape_.dtypes[member], Bytes(sink).data(),
                           out_.group().tensors[member].channels));
    }
    uint16_t scale;
    std::memcpy(&scale, sink.data(), sizeof(scale));
    return coding::Int8Scale::Valid(scale) &&
           sink.substr(sizeof(scale)).find('\x80') == absl::string_view::npos;
  }

  static absl::Status InBlock(size_t block, size_t offset,
                              absl::Status status) {
    if (!absl::IsDataLoss(status)) return status;
    return absl::DataLossError(absl::StrCat("block ", block, ", at byte ",
                                            offset, ": ", status.message()));
  }

  // Where the blocks are, by their headers.
  absl::Status FindBlocks(absl::string_view payload) {
    const uint64_t tokens = out_.shape_.tokens;
    for (uint64_t batch = 0; batch < out_.shape_.batches; ++batch) {
      for (uint64_t t = out_.header_.sinks; t < tokens;) {
        Found found;
        found.offset = payload.size() - left_.size();
        found.first = t;
        found.tokens =
            std::min<uint64_t>(tokens - t, out_.header_.block_tokens);
        KVC_RETURN_IF_ERROR(
            InBlock(found_.size(), found.offset, FindBlock(&found)));
        t += found.tokens;
        found_.push_back(found);
      }
    }
    if (out_.shape_.batches > 0) {
      out_.blocks_of_batch_ = found_.size() / out_.shape_.batches;
    }
    return absl::OkStatus();
  }

  absl::Status FindBlock(Found* found) {
    if (left_.size() < kGroupBlockHeaderSize) return Bad("too few blocks");
    KVC_ASSIGN_OR_RETURN(
        found->header,
        ReadGroupBlockHeader(Bytes(left_.substr(0, kGroupBlockHeaderSize)),
                             out_.group().components));
    KVC_ASSIGN_OR_RETURN(found->bytes, Take(found->header.size));
    found->bytes.remove_prefix(kGroupBlockHeaderSize);
    return place_.Spend(1);
  }

  absl::Status ReadBlocks() {
    out_.blocks_.resize(found_.size());
    std::vector<absl::Status> statuses(found_.size());
    std::atomic<bool> bad{false};
    AtPlaces<Place> places(workers_, &place_, checkpoint_);
    ForEach(workers_, found_.size(), [&](size_t index, size_t place) {
      // Blocks begin in order: those before one that is bad are read.
      if (bad) return;
      statuses[index] =
          ReadBlock(found_[index], &places[place], &out_.blocks_[index]);
      if (!statuses[index].ok()) bad = true;
    });
    // Perhaps that of another place has stopped.
    if (bad && Stops(checkpoint_)) return checkpoint_->status();
    for (size_t i = 0; i < found_.size(); ++i) {
      KVC_RETURN_IF_ERROR(InBlock(i, found_[i].offset, statuses[i]));
      out_.components_end_ =
          std::max(out_.components_end_, out_.blocks_[i].components_end());
      out_.inner_end_ = std::max(out_.inner_end_, out_.blocks_[i].inner());
    }
    return absl::OkStatus();
  }

  absl::Status ReadBlock(const Found& found, Place* place,
                         QuantaBlock* block) const {
    const size_t components = out_.group().components;
    const BlockCoding block_coding = {
        .classes = absl::MakeConstSpan(out_.group().classes)
                       .subspan(out_.header_.preset * components, components),
        .shift = out_.header_.shift,
        .trellis = out_.header_.trellis,
        .tokens = found.tokens,
        .offsets = out_.offsets_.empty()
                       ? absl::Span<const int8_t>()
                       : absl::MakeConstSpan(out_.offsets_)
                             .subspan(found.first, found.tokens)};
    BlockReader& reader = place->reader();
    KVC_RETURN_IF_ERROR(
        reader.Read(found.header, found.bytes, block_coding,
                    [&](uint64_t symbols) { return place->Spend(symbols); }));
    if (const kernels::TileKernels* const tiles = out_.tile_kernels_) {
      block->TakeTiles(*tiles, &reader, found.tokens);
    } else {
      for (size_t t = 0; t < found.tokens; ++t) {
        block->Append(reader.LevelsOf(t));
      }
      block->MakeDense(components);
    }
    return place->Spend(found.tokens * found.header.runs * coding::kMaxLanes);
  }

  absl::string_view left_;
  Checkpoint* const checkpoint_;
  Workers* const workers_;
  GroupQuanta& out_;
  Place place_{checkpoint_};  // of the one that calls
  std::vector<Found> found_;
};

absl::StatusOr<std::shared_ptr<const GroupQuanta>> GroupQuanta::Parse(
    absl::string_view payload, std::shared_ptr<const Profile> profile,
    size_t group, GroupShape shape, Checkpoint* checkpoint, Workers* workers) {
  auto quanta = std::shared_ptr<GroupQuanta>(new GroupQuanta);
  quanta->tile_kernels_ = kernels::Active().joint->tiles;
  if (quanta->tile_kernels_ != nullptr) {
    quanta->right_tiles_ = RestoringTilesOf(profile, group, checkpoint);
    KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  }
  quanta->profile_ = std::move(profile);
  quanta->shape_ = std::move(shape);
  KVC_RETURN_IF_ERROR(
      Parser(payload, checkpoint, workers, quanta.get()).Parse(group));
  return quanta;
}

uint64_t GroupQuanta::MaxMemory(const ProfileGroup& group,
                                const GroupShape& shape) {
  // Vectors that grow have up to twice the capacity of what is in them.
  constexpr uint64_t kEach = 2 * (sizeof(uint16_t) + sizeof(int32_t));
  constexpr uint64_t kToken = 48;
  // Tiles take less, but for a few tokens, and have a matrix of their own.
  constexpr uint64_t kOfTile = 2 * kernels::kTileRows;
  uint64_t residuals = 0;
  for (size_t i = 0; shape.exact && i < group.tensors.size(); ++i) {
    residuals += Residuals::Memory(ResidualShapeOf(shape, group, i));
  }
  return shape.batches *
             (shape.tokens *
                  (kEach * (group.components + kernels::kRowsAtOnce) + kToken) +
              kOfTile * (group.components + kernels::kTileInner)) +
         RestoringTiles::Memory(group) + RotationTables::Memory(group, shape) +
         residuals;
}

GroupQuanta::Location GroupQuanta::LocationOf(uint64_t token) const {
  const uint64_t batch = token / shape_.tokens;
  const uint64_t coded = token % shape_.tokens - header_.sinks;
  return {&blocks_[batch * blocks_of_batch_ + coded / header_.block_tokens],
          coded % header_.block_tokens};
}

GroupQuanta::Run GroupQuanta::RunAt(uint64_t token, size_t most) const {
  const auto [block, index] = LocationOf(token);
  return {.count = std::min(most, block->tokens() - index),
          .dense = block->RowAt(index),
          .inner = block->inner(),
          .tiles = block->has_tiles() ? block : nullptr,
          .first = index};
}

TokenQuanta GroupQuanta::TokenAt(uint64_t token) const {
  const auto [block, index] = LocationOf(token);
  TokenQuanta found = block->At(index);
  found.set_unit(UnitAt(token));
  return found;
}

float GroupQuanta::UnitAt(uint64_t token) const {
  const int offset = offsets_.empty() ? 0 : offsets_[token % shape_.tokens];
  const float step = header_.trellis ? header_.step / 2 : header_.step;
  return step * coding::StepFactor(offset);
}

absl::string_view GroupQuanta::Sink(size_t member, uint64_t batch,
                                    uint64_t head, uint64_t token) const {
  const ProfileTensor& tensor = group().tensors[member];
  const uint64_t size = header_.exact_sinks
                            ? tensor.channels * DTypeSize(shape_.dtypes[member])
                            : sizeof(uint16_t) + tensor.channels;
  const uint64_t index = (batch * tensor.heads + head) * header_.sinks + token;
  return absl::string_view(sinks_).substr(sink_begins_[member] + index * size,
                                          size);
}

}  // namespace kvcompress::profile
