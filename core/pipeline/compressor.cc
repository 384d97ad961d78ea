// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
// More than 400 lines: one pass over a cache, from its bytes to its report.

#include "kvcompress/compressor.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "digest/digest.h"
#include "kvcompress/error.h"
#include "kvcompress/layout.h"
#include "kvcompress/metric_table.h"
#include "layout/suspicion.h"
#include "pipeline/attention.h"
#include "pipeline/earlier.h"
#include "pipeline/groups.h"
#include "pipeline/hints.h"
#include "pipeline/job_queue.h"
#include "pipeline/ordered_output.h"
#include "pipeline/report_builder.h"
#include "pipeline/tensor_encoding.h"
#include "pipeline/tensor_table.h"
#include "pipeline/views.h"
#include "pipeline/working_memory.h"
#include "run/payload_writes.h"
#include "run/source_slab.h"
#include "status/macros.h"
#include "tensor/grow.h"
#include "tensor/slabs.h"

namespace kvcompress {
namespace {

// Bytes of a tensor that is still in a processor's caches when another thread
// takes it.
constexpr uint64_t kCached = 4 << 20;
// Tensors for which there is memory besides those that are encoded or wait: one
// that is coming, and one that is spare. What they become is smaller.
constexpr uint64_t kSpares = 2;

absl::Status Invalid(absl::string_view message, const ErrorDetail& detail) {
  return MakeError(absl::StatusCode::kInvalidArgument, message, detail);
}

}  // namespace

class Compressor::Impl {
 public:
  Impl(CompressOptions options, CompressLimits limits)
      : options_(std::move(options)),
        limits_(std::move(limits)),
        codec_(ParseCodec(CodecOf(options_))),
        header_reader_(limits_.max_header_bytes) {
    if (limits_.still_wanted) checkpoint_.emplace(limits_.still_wanted);
    hints_.checkpoint = checkpoint_ ? &*checkpoint_ : nullptr;
  }

  absl::Status ValidateOptions() const {
    KVC_RETURN_IF_ERROR(ValidateRope(options_));
    KVC_RETURN_IF_ERROR(ValidateLayout(options_.layout));
    KVC_RETURN_IF_ERROR(ValidateAttention(options_.attention));
    KVC_RETURN_IF_ERROR(ValidateThresholds(options_.thresholds));
    KVC_RETURN_IF_ERROR(
        ValidateThresholds(builder_.ThresholdsOf(TensorRole::kKey)));
    KVC_RETURN_IF_ERROR(
        ValidateThresholds(builder_.ThresholdsOf(TensorRole::kValue)));
    KVC_RETURN_IF_ERROR(CheckMetricsLevel());
    KVC_RETURN_IF_ERROR(ValidateRolePatterns(options_.roles));
    KVC_RETURN_IF_ERROR(ValidateLabels(options_.labels));
    return codec_.status();
  }

  void WriteTo(PlacedSink* artefact) { writes_.Use(artefact); }

  absl::Status Append(absl::string_view bytes, CompressOutput* output) {
    if (!begun_) {
      KVC_RETURN_IF_ERROR(header_reader_.Append(&bytes));
      if (!header_reader_.done()) return absl::OkStatus();
      KVC_ASSIGN_OR_RETURN(
          SafetensorsHeader header,
          ParseSafetensorsHeader(header_reader_.json(), hints_.checkpoint));
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
    KVC_ASSIGN_OR_RETURN(
        SafetensorsHeader header,
        HeaderOf(tensors, std::move(metadata), hints_.checkpoint));
    // Parsing what a file would begin with applies every rule of the format.
    const std::string raw =
        SerializeSafetensorsHeader(header, hints_.checkpoint);
    KVC_RETURN_IF_ERROR(StatusOf(hints_.checkpoint));
    if (raw.size() - 8 > limits_.max_header_bytes) {
      return MakeError(
          absl::StatusCode::kOutOfRange,
          absl::StrCat("the table of tensors needs a header of ",
                       raw.size() - 8, " bytes"),
          {.reason = "HEADER_TOO_LARGE", .limit = limits_.max_header_bytes});
    }
    KVC_RETURN_IF_ERROR(ParseSafetensorsHeader(absl::string_view(raw).substr(8),
                                               hints_.checkpoint)
                            .status());
    return Begin(std::move(header), output);
  }

  absl::Status AppendTensor(absl::string_view tensor, absl::string_view bytes,
                            CompressOutput* output) {
    const bool more = index_ < artefact_.tensors.size();
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
      if (index_ == artefact_.tensors.size()) {
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
    if (index_ < artefact_.tensors.size()) {
      return Invalid(
          absl::StrCat("the input ends ", remaining_,
                       " bytes before the end of the tensor"),
          {.reason = "TRUNCATED", .tensor = SourceName(), .offset = position_});
    }
    KVC_ASSIGN_OR_RETURN(
        header_,
        SerializeArtefactHeader(reserved_size_, &artefact_, hints_.checkpoint));
    if (looks_at_layouts()) suspicions_.Report(&builder_.report().warnings);
    return builder_.Finish(reserved_size_ + payload_size_, artefact_.checksum);
  }

  uint64_t working_bytes(uint64_t next) const {
    if (!begun_) {
      return kHeaderMemory * std::min(header_reader_.raw().size() + next,
                                      header_reader_.announced_size());
    }
    return kHeaderMemory * reserved_size_ +
           MemoryWith(workers_, queue_.places());
  }

  unsigned threads() const {
    return ThreadsOf(workers_, queue_.places(), limits_.threads.count);
  }
  void UseOneThread() {
    workers_ = 1;
    queue_.set_places(1);
  }

  uint64_t taken_bytes() const {
    return begun_ ? position_ : header_reader_.raw().size();
  }
  bool begun() const { return begun_; }
  uint64_t reserved_size() const { return reserved_size_; }
  uint64_t original_size() const { return builder_.report().original_size; }
  uint64_t tensor_count() const { return artefact_.tensors.size(); }
  const std::string& codec() const { return builder_.report().codec; }
  const ProfileId* profile() const {
    return artefact_.profile ? &*artefact_.profile : nullptr;
  }
  const std::string& header() const { return header_; }

 private:
  // INVALID_ARGUMENT for a bound on what is not measured.
  absl::Status CheckMetricsLevel() const {
    if (options_.metrics == MetricsLevel::kFull) return absl::OkStatus();
    for (const QualityThresholds& thresholds :
         {options_.thresholds, builder_.ThresholdsOf(TensorRole::kKey),
          builder_.ThresholdsOf(TensorRole::kValue)}) {
      for (const MetricTraits& metric : AllMetrics()) {
        if (metric.scope == MetricScope::kAll || metric.bound == nullptr ||
            !(thresholds.*metric.bound)) {
          continue;
        }
        return Invalid(absl::StrCat(metric.bound_name, " bounds ", metric.name,
                                    ", which basic metrics leave out"),
                       {.reason = "THRESHOLD_NEEDS_FULL_METRICS",
                        .field = "options.metrics"});
      }
    }
    return absl::OkStatus();
  }

  // What tensors and groups take, with so many tensors encoded at a time and as
  // many more that wait for it or for their turn in the output.
  uint64_t MemoryWith(unsigned workers, size_t places) const {
    const uint64_t waiting = options_.reconstruct ? 2 : 1;
    return workers * (tensor_memory_ + (places - 1) * place_memory_) +
           (workers == 1 ? 0 : (workers * waiting + kSpares) * job_size_) +
           groups_.memory(options_.reconstruct, places);
  }

  // As many threads as there are, on as many tensors as there is memory for.
  // Where there are groups, one at a time: the thread of the call encodes a
  // group when no job runs, and all others share its work.
  void PlanThreads() {
    bool shares = false;
    bool pays = false;
    for (const ArtefactTensor& tensor : artefact_.tensors) {
      job_size_ = std::max(job_size_, SizeOf(tensor.spec));
      shares |= tensor.codec.codec->shares_blocks();
      pays |= !tensor.codec.codec->at_memory_speed();
    }
    // What one thread copies to another is not worth more of them, where that
    // takes as long as to encode it.
    const bool copies = placed_ == nullptr && job_size_ > kCached;
    if (!pays && (copies || job_size_ < kWorthwhile)) return UseOneThread();
    place_memory_ = std::min(kPlaceMemoryPerByte * job_size_, kMaxPlaceMemory);
    // Where the codec streams, a job takes what it holds for others.
    job_size_ += kAtOnce;
    const size_t tensors = groups_.any() ? 1 : artefact_.tensors.size();
    const uint64_t alone = MemoryWith(1, 1);
    const ThreadPlan plan =
        PlanOf(limits_.threads, tensors, shares || groups_.any(),
               [&](unsigned workers, size_t places) {
                 return MemoryWith(workers, places) - alone;
               });
    workers_ = plan.workers;
    queue_.set_places(plan.places);
  }

  bool looks_at_layouts() const {
    return options_.metrics == MetricsLevel::kFull;
  }

  // REQUIRES: the spec was checked.
  static uint64_t SizeOf(const TensorSpec& spec) {
    const absl::StatusOr<uint64_t> elements = ElementCount(spec);
    return elements.ok() ? *elements * DTypeSize(spec.dtype) : 0;
  }

  // Takes over the header of the input, of a file or of a table.
  absl::Status Begin(SafetensorsHeader header, CompressOutput* output) {
    KVC_RETURN_IF_ERROR(ValidateOptions());
    const CodecSpec& codec = *codec_;
    if (header.metadata.size() > kMaxMetadata) {
      return Invalid(
          absl::StrCat("the metadata has ", header.metadata.size(), " entries"),
          {.reason = "TOO_MUCH_METADATA", .limit = kMaxMetadata});
    }
    for (const auto& [key, value] : header.metadata) {
      if (IsReservedMetadataKey(key)) {
        return MakeError(
            absl::StatusCode::kFailedPrecondition,
            absl::StrCat("the input is already compressed: its metadata has ",
                         QuoteName(key)),
            {.reason = "ALREADY_COMPRESSED"});
      }
    }
    if (options_.reconstruct) {
      output->reconstructed =
          SerializeSafetensorsHeader(header, hints_.checkpoint);
      KVC_RETURN_IF_ERROR(StatusOf(hints_.checkpoint));
    }
    KVC_ASSIGN_OR_RETURN(const std::string layout,
                         DefaultLayout(options_, header.metadata));
    KVC_RETURN_IF_ERROR(
        AssignRolesTo(options_.roles, hints_.checkpoint, &header.tensors));
    uint64_t views = 0;
    for (SafetensorsEntry& entry : header.tensors) {
      if (StopsAt(artefact_.tensors.size(), hints_.checkpoint)) {
        return hints_.checkpoint->status();
      }
      KVC_ASSIGN_OR_RETURN(const CodecSpec own,
                           CodecFor(entry.spec.dtype, codec));
      KVC_ASSIGN_OR_RETURN(const uint64_t memory,
                           AddTensor(std::move(entry), layout, own, position_,
                                     options_, limits_, &views, &artefact_));
      tensor_memory_ = std::max(tensor_memory_, memory);
    }
    KVC_RETURN_IF_ERROR(CheckThresholdsMatch(options_, artefact_.tensors));
    KVC_RETURN_IF_ERROR(CheckAttention(
        options_.attention, codec.codec->traits(), artefact_.tensors));
    hints_ = HintsFrom(options_, header.metadata);
    hints_.checkpoint = checkpoint_ ? &*checkpoint_ : nullptr;
    hints_.buffers = &buffers_;
    hints_.workers = &queue_;
    hints_.measures_tokens = options_.metrics == MetricsLevel::kFull;
    KVC_ASSIGN_OR_RETURN(const std::optional<uint64_t> first_position,
                         FirstPosition(header.metadata));
    KVC_ASSIGN_OR_RETURN(
        groups_, GroupCompression::Plan(options_, codec, first_position,
                                        &artefact_, &builder_.report()));
    PlanThreads();
    options_.candidate_profiles.clear();  // but for the one that is used
    artefact_.labels = options_.labels;
    artefact_.metadata = std::move(header.metadata);
    builder_.report().codec = codec.ToString();
    builder_.report().original_size = header.data_size;
    ReportRoles(codec.codec->traits(), artefact_.tensors, &builder_.report());
    suspicions_.Begin(artefact_.tensors.size());
    KVC_ASSIGN_OR_RETURN(reserved_size_,
                         ReservedHeaderSize(artefact_, hints_.checkpoint));
    reserved_size_ += (groups_.HeaderGrowth() + 7) / 8 * 8;
    reserved_size_ -= groups_.HeaderSavings() / 8 * 8;
    writes_.BeginAt(reserved_size_);
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
    if (layout_ == nullptr) return job_ != nullptr;
    return workers_ > 1 && !groups_.any() && !options_.reconstruct;
  }

  // Encodes the current tensor by a job, or each view of its next slab by one.
  absl::Status EncodePlaced(CompressOutput* output) {
    const uint64_t size =
        layout_ == nullptr ? remaining_ : layout_->slab_bytes();
    if (layout_ != nullptr && size > 0) {
      slab_source_ = std::make_shared<SourceSlab>(placed_, position_, *layout_);
      for (uint64_t i = 0; i < layout_->views_per_slab(); ++i) {
        KVC_RETURN_IF_ERROR(StartEncoder(output));
        KVC_RETURN_IF_ERROR(FinishEncoder(output));
      }
    }
    position_ += size;
    remaining_ -= size;
    return FinishCompleteTensors(output);
  }

  // Where the job of the tensor or view at index_ reads it.
  EncodeJob::Read ReadCurrent() const {
    if (layout_ == nullptr) {
      return [file = placed_, begin = position_](uint64_t offset, size_t size,
                                                 std::string* buffer) {
        return file->Read(begin + offset, size, buffer);
      };
    }
    return [slab = slab_source_, view = index_ - first_view_](
               uint64_t offset, size_t size, std::string* buffer) {
      return slab->Read(view, offset, size, buffer);
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
      if (index_ == artefact_.tensors.size()) {
        return TrailingBytes(bytes.size());
      }
      if (Stops(hints_.checkpoint)) return hints_.checkpoint->status();
      const absl::string_view part =
          bytes.substr(0, std::min(remaining_, kAtOnce));
      bytes.remove_prefix(part.size());
      remaining_ -= part.size();
      position_ += part.size();
      KVC_RETURN_IF_ERROR(layout_ == nullptr ? EncodePart(part, output)
                                             : CollectSlab(part, output));
      KVC_RETURN_IF_ERROR(FinishCompleteTensors(output));
      KVC_RETURN_IF_ERROR(PassOn(kWorthwhile));
    }
    return absl::OkStatus();
  }

  // Takes the next bytes of the tensor or view under way.
  absl::Status EncodePart(absl::string_view part, CompressOutput* output) {
    if (sample_ != nullptr) sample_->Add(part);
    if (job_ != nullptr) {
      job_->Append(part);
      return absl::OkStatus();
    }
    return Encode(output, [&](std::string* payload, std::string* decoded) {
      return encoding_->Append(part, payload, decoded);
    });
  }

  // Takes the next bytes of a tensor in a layout, and encodes what slabs these
  // complete; FinishCompleteTensors does so for the last.
  absl::Status CollectSlab(absl::string_view part, CompressOutput* output) {
    while (!part.empty()) {
      const size_t size = layout_->slab_bytes();
      Reserve(size, &slab_);
      const absl::string_view fitting = part.substr(0, size - slab_.size());
      slab_.append(fitting.data(), fitting.size());
      part.remove_prefix(fitting.size());
      if (slab_.size() < size || (part.empty() && remaining_ == 0)) continue;
      KVC_RETURN_IF_ERROR(EncodeSlab(output));
    }
    return absl::OkStatus();
  }

  // Encodes the views of the slab that is held, one after the other. What they
  // are restored to takes the place of what they were.
  absl::Status EncodeSlab(CompressOutput* output) {
    for (uint64_t i = 0; i < layout_->views_per_slab(); ++i) {
      const uint64_t view = index_ - first_view_;
      ViewWriter restored(*layout_, view, slab_.data());
      if (options_.reconstruct) restored_view_ = &restored;
      KVC_RETURN_IF_ERROR(StartEncoder(output));
      const uint64_t element_size = DTypeSize(Current().spec.dtype);
      const uint64_t elements = tensor_size_ / element_size;
      const uint64_t tile = layout_->TileElements();
      for (uint64_t first = 0; first < elements; first += tile) {
        if (Stops(hints_.checkpoint)) return hints_.checkpoint->status();
        const uint64_t count = std::min(tile, elements - first);
        tile_.resize(count * element_size);
        layout_->Gather(view, first, count, slab_.data(), tile_.data());
        KVC_RETURN_IF_ERROR(EncodePart(tile_, output));
      }
      KVC_RETURN_IF_ERROR(FinishEncoder(output));
      restored_view_ = nullptr;
    }
    if (options_.reconstruct) {
      InSlabs(hints_.checkpoint, slab_.size(), [&](size_t first, size_t size) {
        output->reconstructed.append(slab_, first, size);
      });
    }
    slab_.clear();
    return StatusOf(hints_.checkpoint);
  }

  // Runs a step of the encoding and accounts for the payload it returned.
  template <typename Step>
  absl::Status Encode(CompressOutput* output, Step step) {
    std::string* const payload = PayloadOf(index_, output);
    const size_t before = payload->size();
    std::string* decoded = nullptr;
    if (restored_view_ != nullptr) {
      restored_part_.clear();
      decoded = &restored_part_;
    } else if (options_.reconstruct) {
      decoded = ordered_.For(index_, &output->reconstructed);
    }
    KVC_RETURN_IF_ERROR(step(payload, decoded));
    if (restored_view_ != nullptr) restored_view_->Append(restored_part_);
    CountPayload(payload->size() - before, &Current());
    return absl::OkStatus();
  }

  // Where the payload of a tensor goes: it waits where one before it does.
  std::string* PayloadOf(size_t tensor, CompressOutput* output) {
    std::string* const out = PayloadsOf(output);
    return groups_.may_fall_back() ? payloads_.For(tensor, out) : out;
  }
  void EndPayload(size_t tensor, CompressOutput* output) {
    if (groups_.may_fall_back()) payloads_.End(tensor, PayloadsOf(output));
  }
  // Where payloads go whose turn it is.
  std::string* PayloadsOf(CompressOutput* output) {
    return writes_.used() ? &unwritten_ : &output->artefact;
  }

  // Writes payloads that are not returned to the caller, once there are so many
  // bytes of them.
  absl::Status PassOn(uint64_t least) {
    if (unwritten_.size() < least) return absl::OkStatus();
    return writes_.Add(&unwritten_, /*now=*/workers_ == 1);
  }

  void CountPayload(uint64_t size, ArtefactTensor* tensor) {
    tensor->payload_size += size;
    payload_size_ += size;
  }

  // Makes ready for the tensor of the input that index_ stands at, if there is
  // one.
  absl::Status StartTensor(CompressOutput* output) {
    layout_ = nullptr;
    if (index_ == artefact_.tensors.size()) return absl::OkStatus();
    if (next_laid_out_ < artefact_.laid_out.size() &&
        artefact_.laid_out[next_laid_out_].first == index_) {
      layout_ = &artefact_.laid_out[next_laid_out_++].layout;
      first_view_ = index_;
      remaining_ = layout_->source_bytes();
      return absl::OkStatus();
    }
    KVC_RETURN_IF_ERROR(StartEncoder(output));
    remaining_ = tensor_size_;
    return absl::OkStatus();
  }

  // Sets up the encoder of the tensor or view at index_.
  absl::Status StartEncoder(CompressOutput* output) {
    const ArtefactTensor& tensor = Current();
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(tensor.spec));
    tensor_size_ = elements * DTypeSize(tensor.spec.dtype);
    builder_.report().elements += elements;
    hints_.thresholds = builder_.ThresholdsOf(tensor.spec.role);
    attention_.Tell(tensor.spec, options_.attention, &hints_);
    KVC_RETURN_IF_ERROR(CheckRope(*tensor.codec.codec, tensor.spec, hints_));
    sample_ =
        looks_at_layouts() ? suspicions_.StartTensor(tensor.spec) : nullptr;
    const EarlierTensors::Teacher* const teacher =
        tensor.codec.codec->learns() ? earlier_.Next(tensor.spec) : nullptr;
    hints_.earlier = teacher == nullptr ? nullptr : teacher->findings;
    // What is given back by parts comes tensor by tensor.
    if (workers_ > 1 && !groups_.Has(index_) && restored_view_ == nullptr) {
      job_ = std::make_shared<EncodeJob>(
          tensor, tensor_size_, hints_, options_.reconstruct,
          limits_.still_wanted, &pool_, &spares_, &queue_);
      job_->LookAt(std::move(sample_));
      if (placed_ != nullptr && (layout_ == nullptr || slab_source_)) {
        job_->ReadFrom(ReadCurrent());
      }
      if (teacher == nullptr) {
        if (tensor.codec.codec->learns()) earlier_.Teach(job_);
      } else if (teacher->job != nullptr) {
        job_->RunAfterTeacher(teacher->job);
      }
      return absl::OkStatus();
    }
    KVC_RETURN_IF_ERROR(SettleJobs(0, output));
    // Now the attention hints of the jobs before are known.
    attention_.Tell(tensor.spec, options_.attention, &hints_);
    if (teacher != nullptr && teacher->job != nullptr) {
      hints_.earlier = teacher->job->outcome().findings;
    }
    const bool grouped = groups_.Has(index_);
    KVC_ASSIGN_OR_RETURN(
        std::unique_ptr<TensorEncoder> encoder,
        grouped ? groups_.NewEncoder(index_, tensor.spec, hints_)
                : tensor.codec.codec->NewEncoder(
                      tensor.spec, tensor.codec.parameters, hints_));
    encoding_.emplace(tensor.spec, std::move(encoder),
                      !grouped && hints_.measures_tokens, hints_.checkpoint);
    return absl::OkStatus();
  }

  // Ends the current tensor if all of it has come, and the empty ones after it.
  absl::Status FinishCompleteTensors(CompressOutput* output) {
    while (index_ < artefact_.tensors.size() && remaining_ == 0) {
      if (StopsAt(index_, hints_.checkpoint)) {
        return hints_.checkpoint->status();
      }
      if (layout_ == nullptr) {
        KVC_RETURN_IF_ERROR(FinishEncoder(output));
      } else {
        // Of a tensor without elements every slab is still to come.
        const size_t end = first_view_ + layout_->views();
        while (index_ < end) KVC_RETURN_IF_ERROR(EncodeSlab(output));
      }
      KVC_RETURN_IF_ERROR(StartTensor(output));
    }
    if (index_ < artefact_.tensors.size()) return absl::OkStatus();
    KVC_RETURN_IF_ERROR(SettleJobs(0, output));
    KVC_RETURN_IF_ERROR(PassOn(1));
    return writes_.Settle(0, hints_.checkpoint);
  }

  // Ends the tensor or view at index_.
  absl::Status FinishEncoder(CompressOutput* output) {
    if (job_ != nullptr) return SubmitJob(output);
    if (sample_ != nullptr) {
      suspicions_.FinishTensor(Current().spec, sample_->Likely());
    }
    KVC_RETURN_IF_ERROR(
        Encode(output, [&](std::string* payload, std::string* decoded) {
          return encoding_->Finish(payload, decoded);
        }));
    ArtefactTensor& tensor = Current();
    const TensorEncoder& encoder = encoding_->encoder();
    if (encoder.chosen() != nullptr) tensor.codec = *encoder.chosen();
    tensor.digest = encoding_->digest();
    Report(tensor, encoder.key_hints());
    if (encoder.findings() != nullptr) earlier_.Teach(encoder.findings());
    builder_.report().tensors.back().profile_group = groups_.GroupOf(index_);
    if (groups_.Has(index_)) {
      KVC_RETURN_IF_ERROR(EndGroup(output));
    } else {
      builder_.Settle(index_, encoder.distortion(), encoding_->TokensOf());
      EndPayload(index_, output);
      if (options_.reconstruct) ordered_.End(index_, &output->reconstructed);
    }
    ++index_;
    return absl::OkStatus();
  }

  void Report(const ArtefactTensor& tensor, KeyHints told) {
    builder_.Add(tensor, SizeOf(tensor.spec), told);
    attention_.Learn(tensor.spec, std::move(told));
  }

  // Hands the tensor or view at index_ to whoever has time first.
  absl::Status SubmitJob(CompressOutput* output) {
    const TensorSpec& spec = Current().spec;
    if (spec.role == TensorRole::kValue && last_keys_ != nullptr &&
        spec.layer == last_keys_layer_) {
      job_->RunAfterKeys(last_keys_);
    }
    if (spec.role == TensorRole::kKey) {
      last_keys_ = job_;
      last_keys_layer_ = spec.layer;
    }
    jobs_.push_back({index_++, job_});
    queue_.Add(std::exchange(job_, nullptr));
    return SettleJobs(2 * workers_ - 1, output);
  }

  // Returns what jobs have made, in the order of the tensors, until `most` are
  // left, with those that write it; and of those what is ready, where there is
  // no output yet that it would have to be copied to.
  absl::Status SettleJobs(size_t most, CompressOutput* output) {
    while (!jobs_.empty()) {
      const auto [index, job] = jobs_.front();
      if (jobs_.size() <= most &&
          (!output->artefact.empty() || !queue_.IsDone(*job))) {
        break;
      }
      if (!queue_.Wait(job, hints_.checkpoint)) {
        return hints_.checkpoint->status();
      }
      KVC_RETURN_IF_ERROR(job->status());
      jobs_.pop_front();
      EncodedOutcome& outcome = job->outcome();
      ArtefactTensor& tensor = artefact_.tensors[index];
      if (outcome.chosen) tensor.codec = *outcome.chosen;
      tensor.digest = std::move(outcome.digest);
      CountPayload(outcome.payload.size(), &tensor);
      if (outcome.likely_layout) {
        suspicions_.FinishTensor(tensor.spec, *outcome.likely_layout);
      }
      TakeOutput(&outcome.payload, &spares_.made, PayloadOf(index, output));
      EndPayload(index, output);
      KVC_RETURN_IF_ERROR(PassOn(kWorthwhile));
      Report(tensor, outcome.told);
      builder_.Settle(index, outcome.distortion, outcome.tokens);
      if (!options_.reconstruct) continue;
      TakeOutput(&outcome.decoded, &spares_.restored,
                 ordered_.For(index, &output->reconstructed));
      ordered_.End(index, &output->reconstructed);
    }
    KVC_RETURN_IF_ERROR(
        writes_.Settle(most - std::min(most, jobs_.size()), hints_.checkpoint));
    return StatusOf(hints_.checkpoint);
  }

  // Moves what a job has made to `*out`; `*spare` gets memory that is left.
  void TakeOutput(std::string* made, SpareString* spare, std::string* out) {
    AppendInSlabs(hints_.checkpoint, made, out);
    spare->PutBack(made);
  }

  // Measures the group that ends with the current tensor, if one does.
  absl::Status EndGroup(CompressOutput* output) {
    std::vector<GroupCompression::Outcome> outcomes;
    const auto take = [&](size_t tensor, absl::string_view bytes) {
      ordered_.For(tensor, &output->reconstructed)
          ->append(bytes.data(), bytes.size());
      ordered_.End(tensor, &output->reconstructed);
    };
    KVC_RETURN_IF_ERROR(groups_.TakeOutcomes(
        index_, &queue_, hints_.checkpoint,
        options_.reconstruct ? take
                             : std::function<void(size_t, absl::string_view)>(),
        &outcomes));
    if (!outcomes.empty()) groups_.TellOfPosition(&builder_.report());
    for (GroupCompression::Outcome& outcome : outcomes) {
      if (outcome.alone) {
        TakeAlone(outcome.tensor, *std::move(outcome.alone), output);
      }
      EndPayload(outcome.tensor, output);
      builder_.Settle(outcome.tensor, outcome.quality.distortion,
                      outcome.quality.tokens);
    }
    return absl::OkStatus();
  }

  // Takes a member of a group that is not coded with the profile after all.
  void TakeAlone(size_t index, AloneTensor alone, CompressOutput* output) {
    ArtefactTensor& tensor = artefact_.tensors[index];
    tensor.codec = std::move(alone.codec);
    CountPayload(alone.payload.size(), &tensor);
    Digest digest;
    digest.Update(alone.payload);
    tensor.digest = digest.Hex();
    AppendInSlabs(hints_.checkpoint, &alone.payload, PayloadOf(index, output));
    TensorReport& report = builder_.report().tensors[index];
    report.codec = tensor.codec.ToString();
    report.compressed_size = tensor.payload_size;
    report.digest = tensor.digest;
    report.profile_group.reset();
    if (alone.not_finite) builder_.CountNotFinite(tensor.spec.name);
    if (--builder_.report().profile->tensors > 0) return;
    builder_.report().profile.reset();
    artefact_.profile.reset();
  }

  ArtefactTensor& Current() { return artefact_.tensors[index_]; }

  // Of the tensor of the input whose data are due.
  const std::string& SourceName() {
    return layout_ == nullptr ? Current().spec.name : layout_->source().name;
  }

  CompressOptions options_;
  const CompressLimits limits_;
  const absl::StatusOr<CodecSpec> codec_;
  std::optional<Checkpoint> checkpoint_;  // outlives the encoder
  SafetensorsHeaderReader header_reader_;
  bool begun_ = false;
  uint64_t position_ = 0;  // in the input
  uint64_t reserved_size_ = 0;
  uint64_t tensor_memory_ = 0;  // bytes that the largest tensor takes, alone
  uint64_t payload_size_ = 0;
  EncodeHints hints_;
  AttentionHints attention_;
  EarlierTensors earlier_;
  GroupCompression groups_;  // outlives the encoder
  OrderedOutput ordered_;    // where it reconstructs
  OrderedOutput payloads_;   // where groups may fall back
  ArtefactHeader artefact_;
  ReportBuilder builder_{options_};
  LayoutSuspicions suspicions_;
  std::unique_ptr<LayoutSample> sample_;  // of the tensor under way
  std::string header_;

  // Where a file lies that jobs read themselves; null for one that comes.
  const PlacedSource* placed_ = nullptr;
  std::shared_ptr<SourceSlab> slab_source_;
  std::string read_;

  // The tensor of the input that is being encoded.
  uint64_t remaining_ = 0;          // bytes of it still to come
  const Layout* layout_ = nullptr;  // null when it is coded as it is
  size_t next_laid_out_ = 0;
  size_t first_view_ = 0;
  std::string slab_;
  std::string tile_;  // of a view

  // That tensor itself, or one of its views.
  size_t index_ = 0;
  uint64_t tensor_size_ = 0;  // bytes
  ViewWriter* restored_view_ = nullptr;
  EncoderBuffers buffers_;     // outlives the encoder
  std::string restored_part_;  // of restored_view_

  // Tensors that are encoded at a time, where there are several.
  unsigned workers_ = 1;
  uint64_t job_size_ = 0;      // most bytes of one
  uint64_t place_memory_ = 0;  // most bytes that one works on blocks in
  BufferPool pool_;
  SpareStrings spares_;
  std::shared_ptr<EncodeJob> job_;  // whose bytes are coming
  std::deque<std::pair<size_t, std::shared_ptr<EncodeJob>>> jobs_;
  std::shared_ptr<EncodeJob> last_keys_;  // null where these were no job
  std::optional<uint32_t> last_keys_layer_;
  JobQueue queue_{limits_.threads};  // ends before what its jobs work with
  PayloadWrites writes_{&queue_};
  std::string unwritten_;                   // where there is a sink
  std::optional<TensorEncoding> encoding_;  // may share blocks by the queue
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
