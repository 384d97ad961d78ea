// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/group_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "entropy/rans.h"
#include "kernels/elements.h"
#include "kernels/kernels.h"
#include "profile/block_reader.h"
#include "profile/group_exceptions.h"
#include "quantization/int8.h"
#include "quantization/steps.h"
#include "status/macros.h"

namespace kvcompress::profile {
namespace {

// Quanta whose magnitudes have this sum fit 16 bits, and times 32767 they fit
// 31.
constexpr int64_t kMaxNarrow = 32767;
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
  Parser(absl::string_view payload, Checkpoint* checkpoint, GroupQuanta* out)
      : left_(payload), checkpoint_(checkpoint), out_(*out) {}

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
    const uint64_t tokens = out_.shape_.tokens;
    size_t block = 0;
    out_.places_.emplace_back();
    for (uint64_t batch = 0; batch < out_.shape_.batches; ++batch) {
      for (uint64_t t = 0; t < out_.header_.sinks; ++t) EndToken(true);
      for (uint64_t t = out_.header_.sinks; t < tokens;) {
        const size_t count =
            std::min<uint64_t>(tokens - t, out_.header_.block_tokens);
        const size_t offset = payload.size() - left_.size();
        absl::Status status = ReadBlock(t, count);
        if (absl::IsDataLoss(status)) {
          return absl::DataLossError(absl::StrCat(
              "block ", block, ", at byte ", offset, ": ", status.message()));
        }
        KVC_RETURN_IF_ERROR(std::move(status));
        t += count;
        ++block;
      }
    }
    if (left_.size() < out_.header_.exception_bytes) {
      return Bad("fewer bytes than it says");
    }
    if (left_.size() > out_.header_.exception_bytes) {
      return Bad("bytes behind its end");
    }
    return out_.header_.exceptions ? ReadExceptions() : absl::OkStatus();
  }

 private:
  // Asks the checkpoint once that many steps are done.
  absl::Status Spend(uint64_t steps) {
    steps_ += steps;
    if (steps_ < kStep) return absl::OkStatus();
    steps_ = 0;
    return Stops(checkpoint_) ? checkpoint_->status() : absl::OkStatus();
  }

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
        KVC_RETURN_IF_ERROR(Spend(SinkSize(i)));
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

  absl::Status ReadBlock(uint64_t first, size_t tokens) {
    const size_t components = out_.group().components;
    if (left_.size() < kGroupBlockHeaderSize) return Bad("too few blocks");
    KVC_ASSIGN_OR_RETURN(
        const GroupBlockHeader header,
        ReadGroupBlockHeader(Bytes(left_.substr(0, kGroupBlockHeaderSize)),
                             components));
    KVC_ASSIGN_OR_RETURN(absl::string_view block, Take(header.size));
    block.remove_prefix(kGroupBlockHeaderSize);
    const BlockCoding block_coding = {
        .classes = absl::MakeConstSpan(out_.group().classes)
                       .subspan(out_.header_.preset * components, components),
        .shift = out_.header_.shift,
        .trellis = out_.header_.trellis,
        .tokens = tokens,
        .offsets =
            out_.offsets_.empty()
                ? absl::Span<const int8_t>()
                : absl::MakeConstSpan(out_.offsets_).subspan(first, tokens)};
    KVC_RETURN_IF_ERROR(
        reader_.Read(header, block, block_coding,
                     [this](uint64_t symbols) { return Spend(symbols); }));
    for (size_t t = 0; t < tokens; ++t) AppendToken(reader_.LevelsOf(t));
    return Spend(tokens * header.runs * coding::kMaxLanes);
  }

  void AppendToken(absl::Span<const BlockReader::Level> found) {
    int64_t sum = 0;
    for (const BlockReader::Level& each : found) sum += std::abs(each.value);
    const bool narrow = sum <= kMaxNarrow;
    if (!found.empty()) {
      out_.components_end_ =
          std::max<size_t>(out_.components_end_, found.back().component + 1u);
    }
    const size_t padded = (found.size() + kernels::kRowsAtOnce - 1) /
                          kernels::kRowsAtOnce * kernels::kRowsAtOnce;
    const size_t first = out_.components_.size();
    const size_t begin = out_.quanta_.size();
    out_.components_.resize(first + padded);
    out_.quanta_.resize(begin + (narrow ? padded : 2 * padded));
    for (size_t k = 0; k < found.size(); ++k) {
      out_.components_[first + k] = found[k].component;
      if (narrow) {
        out_.quanta_[begin + k] = static_cast<int16_t>(found[k].value);
      } else {
        std::memcpy(&out_.quanta_[begin + 2 * k], &found[k].value,
                    sizeof(int32_t));
      }
    }
    EndToken(narrow);
  }
  void EndToken(bool narrow) {
    out_.places_.push_back({out_.components_.size(), out_.quanta_.size()});
    out_.narrow_.push_back(narrow);
  }

  absl::string_view left_;
  Checkpoint* const checkpoint_;
  uint64_t steps_ = 0;  // since the last look at it
  GroupQuanta& out_;
  BlockReader reader_;
};

absl::StatusOr<std::shared_ptr<const GroupQuanta>> GroupQuanta::Parse(
    absl::string_view payload, std::shared_ptr<const Profile> profile,
    size_t group, GroupShape shape, Checkpoint* checkpoint) {
  auto quanta = std::shared_ptr<GroupQuanta>(new GroupQuanta);
  quanta->profile_ = std::move(profile);
  quanta->shape_ = std::move(shape);
  KVC_RETURN_IF_ERROR(Parser(payload, checkpoint, quanta.get()).Parse(group));
  return quanta;
}

uint64_t GroupQuanta::MaxMemory(const ProfileGroup& group,
                                const GroupShape& shape) {
  // Vectors that grow have up to twice the room of what is in them.
  constexpr uint64_t kEach = 2 * (sizeof(uint16_t) + sizeof(int32_t));
  constexpr uint64_t kToken = 48;
  return shape.batches * shape.tokens *
         (kEach * (group.components + kernels::kRowsAtOnce) + kToken);
}

int32_t GroupQuanta::Token::quantum(size_t k) const {
  if (narrow_) return quanta_[k];
  int32_t quantum;
  std::memcpy(&quantum, quanta_ + 2 * k, sizeof(quantum));
  return quantum;
}

GroupQuanta::Token GroupQuanta::TokenAt(uint64_t token) const {
  const Place& place = places_[token];
  const int offset = offsets_.empty() ? 0 : offsets_[token % shape_.tokens];
  Token found;
  found.components_ =
      absl::MakeConstSpan(components_)
          .subspan(place.component,
                   places_[token + 1].component - place.component);
  found.quanta_ = quanta_.data() + place.quantum;
  const float step = header_.trellis ? header_.step / 2 : header_.step;
  found.unit_ = step * coding::StepFactor(offset);
  found.narrow_ = narrow_[token];
  return found;
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
