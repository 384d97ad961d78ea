// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/compressor.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kvcompress/error.h"
#include "kvcompress/layout.h"
#include "pipeline/groups.h"
#include "pipeline/report_builder.h"
#include "pipeline/tensor_encoding.h"
#include "pipeline/tensor_table.h"
#include "pipeline/working_memory.h"
#include "plan/compress_plan.h"
#include "run/slab_encoder.h"
#include "run/unit_encoder.h"
#include "status/macros.h"
#include "tensor/slabs.h"

namespace kvcompress {
namespace {

absl::Status Invalid(absl::string_view message, const ErrorDetail& detail) {
  return MakeError(absl::StatusCode::kInvalidArgument, message, detail);
}

std::optional<Checkpoint> CheckpointOf(const StillWanted& still_wanted) {
  if (!still_wanted) return std::nullopt;
  return std::optional<Checkpoint>(std::in_place, still_wanted);
}

}  // namespace

// Takes the bytes of the input from wherever they come, and hands them on as
// units: tensors, or the views of those in a layout.
class Compressor::Impl {
 public:
  Impl(CompressOptions options, CompressLimits limits)
      : options_(std::move(options)),
        limits_(std::move(limits)),
        codec_(ParseCodec(CodecOf(options_))),
        own_checkpoint_(CheckpointOf(limits_.still_wanted)),
        header_reader_(limits_.max_header_bytes) {}

  absl::Status ValidateOptions() const {
    KVC_RETURN_IF_ERROR(ValidateCompressOptions(options_, builder_));
    return codec_.status();
  }

  void WriteTo(PlacedSink* artefact) { units_.WriteTo(artefact); }

  absl::Status Append(absl::string_view bytes, CompressOutput* output) {
    if (!begun_) {
      KVC_RETURN_IF_ERROR(header_reader_.Append(&bytes));
      if (!header_reader_.done()) return absl::OkStatus();
      KVC_ASSIGN_OR_RETURN(
          SafetensorsHeader header,
          ParseSafetensorsHeader(header_reader_.json(), checkpoint_));
      position_ = header_reader_.raw().size();
      KVC_RETURN_IF_ERROR(Begin(std::move(header), output));
      header_reader_ = SafetensorsHeaderReader(0);
    }
    return AppendData(bytes, output);
  }

  absl::Status DeclareTensors(
      const std::vector<TensorSpec>& tensors,
      std::vector<std::pair<std::string, std::string>> metadata,
      CompressOutput* output, const PlacedSource* data) {
    placed_ = data;
    KVC_ASSIGN_OR_RETURN(SafetensorsHeader header,
                         HeaderOf(tensors, std::move(metadata),
                                  limits_.max_header_bytes, checkpoint_));
    return Begin(std::move(header), output);
  }

  absl::Status AppendTensor(absl::string_view tensor, absl::string_view bytes,
                            CompressOutput* output) {
    const bool more = !units_.done();
    if (!tensor.empty() && (!more || tensor != SourceName())) {
      return Invalid(
          absl::StrCat("data of this tensor came when ",
                       more ? QuoteName(SourceName()) : "no data", " was due"),
          {.reason = "WRONG_TENSOR", .tensor = std::string(tensor)});
    }
    if (more && bytes.size() > remaining_) {
      return Invalid(absl::StrCat("a chunk of ", bytes.size(),
                                  " bytes runs over the end of the tensor"),
                     {.reason = "CHUNK_TOO_LARGE",
                      .tensor = SourceName(),
                      .offset = position_,
                      .limit = remaining_});
    }
    return AppendData(bytes, output);
  }

  absl::StatusOr<bool> AppendFrom(const PlacedSource& file, absl::Duration most,
                                  CompressOutput* output) {
    placed_ = &file;
    if (!begun_) return ReadHeaderFrom(file, output);
    const absl::Time until = absl::Now() + most;
    do {
      const uint64_t left = file.size() - position_;
      if (units_.done()) {
        if (left > 0) return TrailingBytes(left);
        return false;
      }
      if (left < remaining_) {  // Finish says so
        remaining_ -= left;
        position_ = file.size();
        return false;
      }
      KVC_RETURN_IF_ERROR(by_places() ? EncodePlaced(output)
                                      : ReadData(output));
    } while (output->artefact.empty() && output->reconstructed.empty() &&
             absl::Now() < until);
    return true;
  }

  absl::StatusOr<CompressReport> Finish() {
    if (!begun_) return header_reader_.TruncatedError();
    if (!units_.done()) {
      return Invalid(
          absl::StrCat("the input ends ", remaining_,
                       " bytes before the end of the tensor"),
          {.reason = "TRUNCATED", .tensor = SourceName(), .offset = position_});
    }
    KVC_ASSIGN_OR_RETURN(
        header_, SerializeArtefactHeader(reserved_size_, &units_.artefact(),
                                         checkpoint_));
    units_.ReportSuspicions();
    return builder_.Finish(reserved_size_ + units_.payload_size(),
                           units_.artefact().checksum);
  }

  uint64_t working_bytes(uint64_t next) const {
    if (!begun_) {
      return kHeaderMemory * std::min(header_reader_.raw().size() + next,
                                      header_reader_.announced_size());
    }
    return kHeaderMemory * reserved_size_ + units_.memory();
  }

  unsigned threads() const { return units_.threads(); }
  void UseOneThread() { units_.UseOneThread(); }

  uint64_t taken_bytes() const {
    return begun_ ? position_ : header_reader_.raw().size();
  }
  bool begun() const { return begun_; }
  uint64_t reserved_size() const { return reserved_size_; }
  uint64_t original_size() const { return builder_.report().original_size; }
  uint64_t tensor_count() const { return units_.artefact().tensors.size(); }
  const std::string& codec() const { return builder_.report().codec; }
  const ProfileId* profile() const {
    return units_.artefact().profile ? &*units_.artefact().profile : nullptr;
  }
  const std::string& header() const { return header_; }

 private:
  // Takes over the header of the input, of a file or of a table.
  absl::Status Begin(SafetensorsHeader header, CompressOutput* output) {
    KVC_RETURN_IF_ERROR(ValidateOptions());
    KVC_ASSIGN_OR_RETURN(CompressPlan plan,
                         CompressPlan::Make(options_, limits_, *codec_,
                                            {std::move(header), position_},
                                            checkpoint_, &builder_.report()));
    options_.candidate_profiles.clear();  // but for the one that is used
    if (options_.reconstruct) {
      output->reconstructed = std::move(plan.source_header);
    }
    reserved_size_ = plan.reserved_size;
    units_.Begin(std::move(plan), /*stream=*/placed_ == nullptr);
    begun_ = true;
    KVC_RETURN_IF_ERROR(StartTensor(output));
    return FinishCompleteTensors(output);
  }

  absl::Status TrailingBytes(uint64_t size) const {
    return Invalid(
        absl::StrCat(size, " bytes follow the end of the last tensor"),
        {.reason = "TRAILING_BYTES", .offset = position_});
  }

  // Of a file that lies somewhere: first how long it is, so that what it takes
  // can be reserved.
  absl::StatusOr<bool> ReadHeaderFrom(const PlacedSource& file,
                                      CompressOutput* output) {
    const uint64_t begin = header_reader_.raw().size();
    const size_t size = std::min<uint64_t>(
        begin == 0 ? kHeaderLength : kHeaderPart, file.size() - begin);
    KVC_ASSIGN_OR_RETURN(absl::string_view bytes,
                         file.Read(begin, size, &read_));
    // What follows the header is read again where it belongs.
    const uint64_t left = header_reader_.announced_size() - begin;
    KVC_RETURN_IF_ERROR(Append(bytes.substr(0, left), output));
    return begun_ || begin + size < file.size();
  }

  // Whether jobs read the current tensor, or views of it, themselves.
  bool by_places() const {
    return layout_ == nullptr ? units_.in_job() : slabs_.by_places();
  }

  // Encodes the current tensor by a job, or each view of its next slab by one.
  absl::Status EncodePlaced(CompressOutput* output) {
    const uint64_t size =
        layout_ == nullptr ? remaining_ : layout_->slab_bytes();
    if (layout_ != nullptr && size > 0) {
      KVC_RETURN_IF_ERROR(slabs_.EncodeFrom(*placed_, position_, output));
    }
    position_ += size;
    remaining_ -= size;
    return FinishCompleteTensors(output);
  }

  // Where a job reads the current tensor; null where it cannot.
  EncodeJob::Read ReadOfTensor() const {
    if (placed_ == nullptr) return nullptr;
    return [file = placed_, begin = position_](uint64_t offset, size_t size,
                                               std::string* buffer) {
      return file->Read(begin + offset, size, buffer);
    };
  }

  // Reads a part of the current tensor.
  absl::Status ReadData(CompressOutput* output) {
    KVC_ASSIGN_OR_RETURN(
        const absl::string_view bytes,
        placed_->Read(position_, std::min<uint64_t>(remaining_, kSlab),
                      &read_));
    return AppendData(bytes, output);
  }

  absl::Status AppendData(absl::string_view bytes, CompressOutput* output) {
    while (!bytes.empty()) {
      if (units_.done()) return TrailingBytes(bytes.size());
      if (Stops(checkpoint_)) return checkpoint_->status();
      const absl::string_view part =
          bytes.substr(0, std::min(remaining_, kAtOnce));
      bytes.remove_prefix(part.size());
      remaining_ -= part.size();
      position_ += part.size();
      KVC_RETURN_IF_ERROR(
          layout_ == nullptr
              ? units_.Append(part, output)
              : slabs_.Append(part, /*last=*/remaining_ == 0, output));
      KVC_RETURN_IF_ERROR(FinishCompleteTensors(output));
      KVC_RETURN_IF_ERROR(units_.PassOn());
    }
    return absl::OkStatus();
  }

  // Makes ready for the tensor of the input that is due, if there is one.
  absl::Status StartTensor(CompressOutput* output) {
    layout_ = nullptr;
    if (units_.done()) return absl::OkStatus();
    std::vector<LaidOutTensor>& laid_out = units_.artefact().laid_out;
    if (next_laid_out_ < laid_out.size() &&
        laid_out[next_laid_out_].first == units_.index()) {
      layout_ = &laid_out[next_laid_out_++].layout;
      slabs_.Begin(*layout_);
      remaining_ = layout_->source_bytes();
      return absl::OkStatus();
    }
    KVC_RETURN_IF_ERROR(units_.Start(ReadOfTensor(), nullptr, output));
    remaining_ = units_.size();
    return absl::OkStatus();
  }

  // Ends the current tensor if all of it has come, and the empty ones after it.
  absl::Status FinishCompleteTensors(CompressOutput* output) {
    while (!units_.done() && remaining_ == 0) {
      if (StopsAt(units_.index(), checkpoint_)) return checkpoint_->status();
      if (layout_ == nullptr) {
        KVC_RETURN_IF_ERROR(units_.Finish(output));
      } else {
        // The last slab; of a tensor without elements all of them.
        while (!slabs_.done()) KVC_RETURN_IF_ERROR(slabs_.Encode(output));
      }
      KVC_RETURN_IF_ERROR(StartTensor(output));
    }
    return units_.done() ? units_.SettleAll(output) : absl::OkStatus();
  }

  // Of the tensor of the input whose data are due.
  const std::string& SourceName() {
    return layout_ == nullptr ? units_.current().spec.name
                              : layout_->source().name;
  }

  CompressOptions options_;
  const CompressLimits limits_;
  const absl::StatusOr<CodecSpec> codec_;
  std::optional<Checkpoint> own_checkpoint_;  // outlives the encoder
  Checkpoint* const checkpoint_ = own_checkpoint_ ? &*own_checkpoint_ : nullptr;
  SafetensorsHeaderReader header_reader_;
  bool begun_ = false;
  uint64_t position_ = 0;  // in the input
  uint64_t reserved_size_ = 0;
  ReportBuilder builder_{options_};
  std::string header_;

  // Where a file lies that jobs read themselves; null for one that comes.
  const PlacedSource* placed_ = nullptr;
  std::string read_;

  // The tensor of the input that is being encoded.
  uint64_t remaining_ = 0;          // bytes of it still to come
  const Layout* layout_ = nullptr;  // null when it is coded as it is
  size_t next_laid_out_ = 0;

  UnitEncoder units_{options_, limits_, &builder_};
  SlabEncoder slabs_{options_, &units_};
};

Compressor::Compressor(CompressOptions options, CompressLimits limits)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(limits))) {}
Compressor::~Compressor() = default;

absl::Status Compressor::ValidateOptions() const {
  return impl_->ValidateOptions();
}
absl::Status Compressor::Append(absl::string_view bytes,
                                CompressOutput* output) {
  return impl_->Append(bytes, output);
}
void Compressor::WriteTo(PlacedSink* artefact) { impl_->WriteTo(artefact); }
absl::StatusOr<bool> Compressor::AppendFrom(const PlacedSource& file,
                                            absl::Duration most,
                                            CompressOutput* output) {
  return impl_->AppendFrom(file, most, output);
}
absl::Status Compressor::DeclareTensors(
    const std::vector<TensorSpec>& tensors,
    std::vector<std::pair<std::string, std::string>> metadata,
    CompressOutput* output, const PlacedSource* data) {
  return impl_->DeclareTensors(tensors, std::move(metadata), output, data);
}
absl::Status Compressor::AppendTensor(absl::string_view tensor,
                                      absl::string_view bytes,
                                      CompressOutput* output) {
  return impl_->AppendTensor(tensor, bytes, output);
}
absl::StatusOr<CompressReport> Compressor::Finish() { return impl_->Finish(); }
uint64_t Compressor::taken_bytes() const { return impl_->taken_bytes(); }
bool Compressor::begun() const { return impl_->begun(); }
uint64_t Compressor::working_bytes(uint64_t next) const {
  return impl_->working_bytes(next);
}
unsigned Compressor::threads() const { return impl_->threads(); }
void Compressor::UseOneThread() { impl_->UseOneThread(); }
uint64_t Compressor::reserved_header_size() const {
  return impl_->reserved_size();
}
uint64_t Compressor::original_size() const { return impl_->original_size(); }
uint64_t Compressor::tensor_count() const { return impl_->tensor_count(); }
const std::string& Compressor::codec() const { return impl_->codec(); }
const ProfileId* Compressor::profile() const { return impl_->profile(); }
const std::string& Compressor::header() const { return impl_->header(); }

}  // namespace kvcompress
