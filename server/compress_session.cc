// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "compress_session.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "admission.h"
#include "kvcompress/lighter_codecs.h"
#include "memory_limit.h"

namespace kvcompress {
namespace {

// What else takes less memory, where groups of a profile are held.
std::string WithoutProfile(const ProfileId* profile) {
  if (profile == nullptr) return "";
  return absl::StrCat(
      "; or compress without the profile ", profile->digest,
      " (profile: none), since all tensors of a group are held at once; or "
      "use a profile with fewer layers in a group; or send fewer tokens");
}

}  // namespace

absl::Status CompressSession::OutOfOrder(absl::string_view message) {
  return MakeError(absl::StatusCode::kInvalidArgument, message,
                   {.reason = "INVALID_MESSAGE_ORDER", .field = "message"});
}

absl::Status CompressSession::TakeOptions(const v1::CompressOptions& options) {
  if (compressor_ != nullptr) {
    return OutOfOrder("options must be sent once, as the first message");
  }
  report_tensors_ = options.report_tensors();
  absl::StatusOr<CompressOptions> converted = FromProto(options);
  if (!converted.ok()) return converted.status();
  absl::Status found = FindProfiles(options, &*converted);
  if (!found.ok()) return found;
  compressor_ = std::make_unique<Compressor>(*std::move(converted), limits_);
  return compressor_->ValidateOptions();
}

absl::Status CompressSession::FindProfiles(const v1::CompressOptions& request,
                                           CompressOptions* options) const {
  if (request.profile() == kNoProfile) return absl::OkStatus();
  const std::shared_ptr<const ProfileSet> profiles = options_.CurrentProfiles();
  if (request.profile().empty()) {
    const auto model = request.labels().find(kModelLabel);
    if (model != request.labels().end()) {
      options->candidate_profiles = profiles->WithLabel(model->second);
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::shared_ptr<const Profile>> profile =
      profiles->Find(request.profile(), request.codec());
  if (!profile.ok()) return profile.status();
  options->profile = *std::move(profile);
  return absl::OkStatus();
}

absl::Status CompressSession::TakeTable(const v1::TensorTable& table) {
  if (compressor_ == nullptr)
    return OutOfOrder("options must be the first message");
  if (source_ != Source::kNone) {
    return OutOfOrder("the tensor table must be sent once, before any data");
  }
  source_ = Source::kTable;
  absl::StatusOr<std::vector<TensorSpec>> tensors =
      TensorsFromProto(table, &checkpoint_);
  if (!tensors.ok()) return tensors.status();
  absl::Status status = compressor_->DeclareTensors(
      *std::move(tensors), MetadataFromProto(table), &output_);
  return status.ok() ? CheckFits() : status;
}

absl::StatusOr<bool> CompressSession::TakeFrom(const PlacedSource& file,
                                               absl::Duration most) {
  source_ = Source::kFile;
  const StageTimer timer(&encode_seconds_);
  const bool begun = compressor_->begun();
  const absl::StatusOr<bool> more =
      compressor_->AppendFrom(file, most, &output_);
  if (more.ok() && !begun && compressor_->begun()) {
    absl::Status status = CheckFits();
    if (!status.ok()) return status;
  }
  return more;
}

absl::Status CompressSession::CheckFits() {
  has_threads_ = compressor_->threads() > 1;
  if (has_threads_ && !call_->ReserveIfSpare(compressor_->working_bytes())) {
    compressor_->UseOneThread();
  }
  const uint64_t needed = kStreamBytes + compressor_->working_bytes();
  const uint64_t most = call_->most_memory();
  if (needed <= most) return absl::OkStatus();
  const absl::StatusOr<CodecSpec> codec = ParseCodec(compressor_->codec());
  if (!codec.ok()) return codec.status();
  const std::string lighter = LighterCodecs(codec->codec->traits());
  // What needs so much is the header: another codec would not help.
  if (lighter.empty()) return absl::OkStatus();
  const uint64_t profiles =
      options_.profiles == nullptr ? 0 : options_.profiles->max_bytes();
  return MakeError(
      absl::StatusCode::kOutOfRange,
      absl::StrCat(
          "the call needs about ", needed,
          " bytes of memory, more than the server allows for it: use a codec "
          "that takes less (",
          lighter, ")", WithoutProfile(compressor_->profile()),
          ", or raise the server's memory limit to ",
          MemoryLimitFor(needed) + profiles,
          " bytes or its --memory-budget-bytes to ", needed),
      {.reason = "EXCEEDS_BUDGET", .limit = most});
}

absl::Status CompressSession::TakeData(Source source, absl::string_view tensor,
                                       absl::string_view data) {
  if (compressor_ == nullptr)
    return OutOfOrder("options must be the first message");
  if (source == Source::kFile && source_ == Source::kNone) {
    source_ = Source::kFile;
  }
  if (source != source_) {
    return OutOfOrder(
        "a call takes either the bytes of a file, or a tensor table followed "
        "by the data");
  }
  tensor_ = tensor;
  pending_ = data;
  if (source != Source::kFile || compressor_->begun()) return absl::OkStatus();
  // So that the length of the header is known, and with it what it takes.
  const absl::string_view length = pending_.substr(0, kHeaderLength);
  pending_.remove_prefix(length.size());
  return compressor_->Append(length, &output_);
}

absl::StatusOr<bool> CompressSession::Step() {
  if (pending_.empty()) return false;
  const StageTimer timer(&encode_seconds_);
  // A tensor's chunk is taken whole, so that one that is too large is refused
  // before any of it is used.
  const size_t size =
      source_ == Source::kTable ? pending_.size() : kCompressSlice;
  const absl::string_view slice = pending_.substr(0, size);
  pending_.remove_prefix(slice.size());
  const bool begun = compressor_->begun();
  absl::Status status =
      source_ == Source::kTable
          ? compressor_->AppendTensor(tensor_, slice, &output_)
          : compressor_->Append(slice, &output_);
  if (!status.ok()) return status;
  if (!begun && compressor_->begun()) {
    status = CheckFits();
    if (!status.ok()) return status;
  }
  return true;
}

absl::StatusOr<v1::CompressionReport> CompressSession::ToMessage(
    const CompressReport& report) {
  v1::CompressionReport message =
      ToProto(report, report_tensors_, call_->Seconds(), &checkpoint_);
  if (checkpoint_.Stops()) return checkpoint_.status();
  return message;
}

absl::StatusOr<CompressReport> CompressSession::Finish() {
  if (compressor_ == nullptr)
    return OutOfOrder("options must be the first message");
  absl::StatusOr<CompressReport> report = compressor_->Finish();
  if (report.ok()) {
    call_->observer().Compressed(*report);
    if (call_->method() != Method::kMeasure) {
      call_->observer().Saved(
          report->codec,
          report->original_size -
              std::min(report->original_size, report->compressed_size));
    }
    for (const Warning& warning : report->warnings) {
      call_->observer().Warned(call_->names(), warning);
    }
    call_->observer().CodecTime(report->codec, Stage::kEncode, encode_seconds_);
  }
  return report;
}

}  // namespace kvcompress
