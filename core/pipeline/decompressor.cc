// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// More than 400 lines: the steps of one stream share all of its state.

#include "kvcompress/decompressor.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "digest/digest.h"
#include "kvcompress/error.h"
#include "kvcompress/layout.h"
#include "pipeline/decode_jobs.h"
#include "pipeline/group_members.h"
#include "pipeline/groups.h"
#include "pipeline/identity.h"
#include "pipeline/job_queue.h"
#include "pipeline/selection.h"
#include "pipeline/tensor_decoding.h"
#include "pipeline/working_memory.h"
#include "status/macros.h"
#include "tensor/grow.h"

namespace kvcompress {
namespace {

absl::Status DataLoss(absl::string_view message, const ErrorDetail& detail) {
  return MakeError(absl::StatusCode::kDataLoss, message, detail);
}

// What is not given back, or only some of its tokens, is decoded in slices of
// this many bytes, or of a block that is larger.
constexpr size_t kScratch = 64 << 10;

// Whether a tensor comes before another one by layers: keys before values, and
// what is of no layer last.
bool IsOfEarlierLayer(const TensorSpec& a, const TensorSpec& b) {
  if (a.layer.has_value() != b.layer.has_value()) return a.layer.has_value();
  if (a.layer != b.layer) return a.layer < b.layer;
  const auto place = [](TensorRole role) {
    return role == TensorRole::kKey ? 0 : role == TensorRole::kValue ? 1 : 2;
  };
  return place(a.role) < place(b.role);
}

// A header that cannot be read is damage: nothing else was promised here.
absl::Status HeaderError(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kInvalidArgument) return status;
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  const bool truncated = detail && detail->reason == "TRUNCATED";
  return Reclassify(status, absl::StatusCode::kDataLoss,
                    truncated ? "TRUNCATED" : "HEADER_DAMAGED",
                    "the artefact is damaged: ");
}

}  // namespace

class Decompressor::Impl {
 public:
  Impl(DecompressOptions options, DecompressLimits limits)
      : options_(std::move(options)),
        limits_(std::move(limits)),
        header_reader_(limits_.max_header_bytes) {
    if (limits_.still_wanted) checkpoint_.emplace(limits_.still_wanted);
  }

  absl::StatusOr<bool> Restore(absl::string_view* bytes, size_t most,
                               std::string* restored) {
    if (!begun_) {
      if (absl::Status status = header_reader_.Append(bytes); !status.ok()) {
        return HeaderError(status);
      }
      if (!header_reader_.done()) return false;
      KVC_ASSIGN_OR_RETURN(header_, ParseArtefactHeader(header_reader_.raw()));
      position_ = header_reader_.raw().size();
      header_size_ = position_;
      header_reader_ = SafetensorsHeaderReader(0);
      KVC_RETURN_IF_ERROR(CheckIdentity(options_, header_));
      KVC_RETURN_IF_ERROR(Begin());
      return true;
    }
    // Decoded bytes that this call has not put into `*restored` itself.
    for (uint64_t work = 0;;) {
      if (!Give(most, restored) || work >= most) return true;
      if (by_jobs() && index_ < header_.tensors.size()) {
        KVC_ASSIGN_OR_RETURN(const bool moved, StepJobs(bytes));
        if (!moved) return false;
        continue;
      }
      if (index_ == header_.tensors.size()) {
        if (bytes->empty()) return false;
        return DataLoss("bytes follow the end of the artefact",
                        {.reason = "TRAILING_BYTES", .offset = position_});
      }
      if (has_turns_ && decoder_ == nullptr) {
        KVC_ASSIGN_OR_RETURN(const bool ready, TakeTurn(bytes));
        if (!ready) return false;
      }
      absl::string_view* const source = has_turns_ ? &due_ : bytes;
      const bool aside =
          !selected_[order_[index_]] || filter_ || layout_ != nullptr;
      KVC_ASSIGN_OR_RETURN(const bool more,
                           aside ? DecodeAside(source, most, &work)
                                 : DecodePayload(source, most, restored));
      if (more) {
        if (!aside) return true;
      } else if (remaining_ == 0) {
        KVC_RETURN_IF_ERROR(FinishTensor());
      } else if (source->empty() && ready_.empty()) {
        return false;
      }
    }
  }

  uint64_t working_bytes() const {
    if (!begun_) return kHeaderMemory * header_reader_.raw().size();
    return kHeaderMemory * header_size_ + groups_.memory() + waiting_size_ +
           slab_size_ + MemoryWith(jobs_.workers(), jobs_.places());
  }

  unsigned threads() const { return jobs_.threads(); }
  void UseOneThread() { jobs_.UseOneThread(); }

  absl::StatusOr<DecompressReport> Finish() {
    if (!begun_) return HeaderError(header_reader_.TruncatedError());
    if (index_ < header_.tensors.size()) {
      return DataLoss(absl::StrCat("the artefact is cut short: ", Missing(),
                                   " bytes of the payload are missing"),
                      {.reason = "TRUNCATED",
                       .tensor = header_.tensors[due()].spec.name,
                       .offset = position_});
    }
    report_.compressed_size = position_;
    report_.format_version = header_.format_version;
    if (report_.elements > 0) {
      report_.compression_ratio = 2 * static_cast<double>(report_.elements) /
                                  static_cast<double>(position_);
    }
    report_.labels = std::move(header_.labels);
    report_.payload_digest = header_.checksum;
    return std::move(report_);
  }

 private:
  // Decides what is given back, and makes the header of it ready.
  absl::Status Begin() {
    begun_ = true;
    SafetensorsHeader out;
    out.metadata = header_.metadata;
    KVC_RETURN_IF_ERROR(Select());
    if (options_.tokens && HasAllTokens(*options_.tokens)) {
      options_.tokens.reset();  // whole tensors are restored by more threads
    }
    KVC_ASSIGN_OR_RETURN(groups_,
                         GroupDecompression::Plan(options_.profiles, header_));
    options_.profiles.clear();  // but for the one that is needed
    report_.profile = groups_.use();
    for (size_t i = 0; i < header_.tensors.size(); ++i) {
      KVC_RETURN_IF_ERROR(Plan(i));
    }
    const std::vector<Source> sources = SourcesInOrder();
    report_.tensor_count = sources.size();
    for (const Source& source : sources) {
      for (size_t i = 0; i < source.count; ++i) {
        order_.push_back(source.first + i);
      }
      if (!selected_[source.first]) continue;
      SafetensorsEntry entry;
      entry.spec = *source.spec;
      if (source.layout != nullptr) {
        KVC_ASSIGN_OR_RETURN(entry.spec, PlanLayout(*source.layout));
      } else if (options_.tokens) {
        KVC_RETURN_IF_ERROR(NarrowToTokens(*options_.tokens, &entry.spec));
      }
      KVC_ASSIGN_OR_RETURN(const uint64_t kept, ElementCount(entry.spec));
      entry.begin = out.data_size;
      entry.end = entry.begin + kept * DTypeSize(entry.spec.dtype);
      out.data_size = entry.end;
      out.tensors.push_back(std::move(entry));
    }
    report_.tensors_selected = out.tensors.size();
    if (!options_.verify_only) {
      ready_ = SerializeSafetensorsHeader(out);
      report_.output_size = ready_.size() + out.data_size;
    }
    PlanTurns();
    PlanThreads();
    return StartTensor();
  }

  // A tensor of the source, or a tensor in a layout with all of its views.
  struct Source {
    const TensorSpec* spec;
    size_t first;  // of header_.tensors
    size_t count;
    const Layout* layout;  // null without one
  };

  // In the order of the header.
  std::vector<Source> Sources() const {
    std::vector<Source> sources;
    ForEachSource(header_, [&](const TensorSpec& spec, size_t first,
                               size_t count, const Layout* layout) {
      sources.push_back({&spec, first, count, layout});
      return absl::OkStatus();
    }).IgnoreError();
    return sources;
  }

  // Whether a range leaves all that is given back as it is.
  bool HasAllTokens(TokenRange tokens) const {
    for (const Source& source : Sources()) {
      if (!selected_[source.first]) continue;
      TensorSpec narrowed = *source.spec;
      if (source.layout != nullptr) {
        const absl::StatusOr<Layout> layout = source.layout->Narrowed(tokens);
        if (!layout.ok()) return false;
        narrowed = layout->source();
      } else if (!NarrowToTokens(tokens, &narrowed).ok()) {
        return false;
      }
      if (narrowed.shape != source.spec->shape) return false;
    }
    return true;
  }

  // In the order in which they are given back.
  std::vector<Source> SourcesInOrder() const {
    std::vector<Source> sources = Sources();
    if (options_.order == TensorOrder::kLayers) {
      std::stable_sort(sources.begin(), sources.end(),
                       [this](const Source& a, const Source& b) {
                         return IsOfEarlierLayer(header_.tensors[a.first].spec,
                                                 header_.tensors[b.first].spec);
                       });
    }
    return sources;
  }

  // Whether payloads wait until their turn has come: because of groups, or
  // since they do not come in the order in which tensors are given back.
  void PlanTurns() {
    has_turns_ =
        !groups_.empty() || !std::is_sorted(order_.begin(), order_.end());
    if (!has_turns_) return;
    came_.resize(order_.size());
    held_.resize(order_.size());
    for (size_t i = 0; i < order_.size(); ++i) {
      waiting_size_ += header_.tensors[i].payload_size;
      if (groups_.Has(i)) ++members_left_[groups_.GroupOf(i)];
    }
  }

  // What is held besides the header, with so many tensors decoded at a time,
  // and as many more that wait for it or to be given back.
  uint64_t MemoryWith(unsigned workers, size_t places) const {
    if (workers == 1 && places == 1) return decoder_memory_ + 2 * scratch_size_;
    // And what waits to be used again.
    return workers * (decoder_memory_ + kMaxDecodedBlock + 2 * job_size_ +
                      (places - 1) * place_memory_) +
           job_size_;
  }

  // Whether tensors are decoded whole, several of them or by several threads.
  bool by_jobs() const { return jobs_.workers() > 1 || jobs_.places() > 1; }

  // As many threads as there are, on as many tensors as there is memory for.
  void PlanThreads() {
    bool shares = !options_.verify_only && !options_.tokens;
    bool pays = false;
    for (size_t i = 0; i < header_.tensors.size(); ++i) {
      const ArtefactTensor& tensor = header_.tensors[i];
      const absl::StatusOr<uint64_t> elements = ElementCount(tensor.spec);
      const uint64_t size =
          elements.ok() ? *elements * DTypeSize(tensor.spec.dtype) : 0;
      job_size_ =
          std::max(job_size_, tensor.payload_size + (selected_[i] ? size : 0));
    }
    for (const ArtefactTensor& tensor : header_.tensors) {
      // What a group of a profile shares are blocks of its payload.
      shares &= tensor.codec.codec->shares_blocks() ||
                tensor.codec.codec->coded_in_groups();
      pays |= !tensor.codec.codec->at_memory_speed();
    }
    if (!pays) return;
    place_memory_ = std::min(decoder_memory_, kMaxPlaceMemory);
    jobs_.Follow(PlanOf(limits_.threads, header_.tensors.size(), shares,
                        [&](unsigned workers, size_t places) {
                          return MemoryWith(workers, places) - MemoryWith(1, 1);
                        }));
  }

  // Selects tensors by name, each with all of its views.
  absl::Status Select() {
    const std::vector<Source> sources = Sources();
    std::vector<absl::string_view> names;
    for (const Source& source : sources) names.push_back(source.spec->name);
    KVC_ASSIGN_OR_RETURN(const std::vector<bool> selected,
                         SelectTensors(options_.tensors, names));
    for (size_t i = 0; i < sources.size(); ++i) {
      selected_.resize(selected_.size() + sources[i].count,
                       selected[i] && !options_.verify_only);
    }
    return absl::OkStatus();
  }

  // Takes into account what decoding a tensor or view needs.
  absl::Status Plan(size_t index) {
    const ArtefactTensor& tensor = header_.tensors[index];
    const Codec& codec = *tensor.codec.codec;
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(tensor.spec));
    report_.elements += elements;
    const uint64_t size = elements * DTypeSize(tensor.spec.dtype);
    if (codec.decoder_holds_tensor()) {
      KVC_RETURN_IF_ERROR(CheckSize(codec.traits().name,
                                    " holds a whole tensor, and this one", size,
                                    tensor.spec.name));
    }
    DecoderBounds bounds;
    if (groups_.Has(index)) {
      bounds.memory = groups_.MemoryOfDecoder(index);
    } else {
      KVC_ASSIGN_OR_RETURN(
          bounds, codec.BoundsOfDecoder(tensor.spec, tensor.codec.parameters));
    }
    decoder_memory_ = std::max(decoder_memory_, bounds.memory);
    if (!selected_[index] || options_.tokens || !header_.laid_out.empty()) {
      scratch_size_ =
          std::max<uint64_t>({scratch_size_, kScratch, bounds.block});
    }
    report_.original_size += size;
    report_.decoded_bytes[codec.base().traits().name] += size;
    return absl::OkStatus();
  }

  // The same for the slabs of a layout that is given back; gives the tensor as
  // it will be.
  absl::StatusOr<TensorSpec> PlanLayout(const Layout& layout) {
    absl::StatusOr<Layout> narrowed =
        options_.tokens ? layout.Narrowed(*options_.tokens) : layout;
    KVC_RETURN_IF_ERROR(narrowed.status());
    const uint64_t size = narrowed->slab_bytes();
    KVC_RETURN_IF_ERROR(CheckSize(absl::StrCat("layout ", layout.text()),
                                  " is restored by parts, and one", size,
                                  layout.source().name));
    slab_size_ = std::max(slab_size_, size);
    return narrowed->source();
  }

  absl::Status CheckSize(absl::string_view who, absl::string_view what,
                         uint64_t size, const std::string& tensor) const {
    if (size <= limits_.max_tensor_bytes) return absl::OkStatus();
    return MakeError(absl::StatusCode::kOutOfRange,
                     absl::StrCat(who, what, " has ", size, " bytes"),
                     {.reason = "TENSOR_TOO_LARGE",
                      .tensor = tensor,
                      .limit = limits_.max_tensor_bytes});
  }

  // Gives what is ready, as far as there is room. False when some is left.
  bool Give(size_t most, std::string* restored) {
    const absl::string_view ready =
        ready_slab_ == 0 ? absl::string_view(ready_)
                         : absl::string_view(slab_.get(), ready_slab_);
    if (ready.empty()) return true;
    const size_t room = most > restored->size() ? most - restored->size() : 0;
    // What comes whole changes hands.
    if (by_jobs() && ready_slab_ == 0 && given_ == 0 && restored->empty() &&
        ready.size() <= room) {
      restored->swap(ready_);
      jobs_.spares().made.PutBack(&ready_);
      return true;
    }
    const absl::string_view given = ready.substr(given_, room);
    restored->append(given.data(), given.size());
    given_ += given.size();
    if (given_ < ready.size()) return false;
    given_ = 0;
    ready_slab_ = 0;
    if (by_jobs()) {
      jobs_.spares().made.PutBack(&ready_);
    } else {
      // A header is large, and comes once.
      ready_.size() > scratch_size_ ? std::string().swap(ready_)
                                    : ready_.clear();
    }
    return true;
  }

  // Decodes a step of the current tensor from the front of `*bytes`; see
  // TensorDecoder::Decode.
  absl::StatusOr<bool> DecodePayload(absl::string_view* bytes, size_t most,
                                     std::string* decoded) {
    const absl::string_view part = bytes->substr(0, remaining_);
    absl::string_view left = part;
    absl::StatusOr<bool> more = decoder_->Decode(&left, most, decoded);
    const size_t taken = part.size() - left.size();
    digest_.Update(part.substr(0, taken));
    bytes->remove_prefix(taken);
    remaining_ -= taken;
    if (!has_turns_) position_ += taken;
    return more;
  }

  // The same, of which only what is selected becomes ready. Adds to `*work`
  // the bytes that were decoded.
  absl::StatusOr<bool> DecodeAside(absl::string_view* bytes, size_t most,
                                   uint64_t* work) {
    most = std::min(most, kScratch);
    scratch_.clear();
    const bool selected = selected_[order_[index_]];
    if (layout_ != nullptr && selected) RestoreView();
    KVC_ASSIGN_OR_RETURN(const bool more,
                         DecodePayload(bytes, most, &scratch_));
    // A decoder that stopped may have kept what it decoded.
    *work += more ? std::max(most, scratch_.size()) : scratch_.size();
    if (!selected) return more;
    if (!restored_view_) {
      filter_->Append(scratch_, &ready_);
    } else if (filter_) {
      kept_.clear();
      filter_->Append(scratch_, &kept_);
      restored_view_->Append(kept_);
    } else {
      restored_view_->Append(scratch_);
    }
    return more;
  }

  // Makes room for what the current view is restored to.
  void RestoreView() {
    if (restored_view_) return;
    if (slab_ == nullptr) {
      // Zeros that the system need not write before they are touched.
      slab_.reset(static_cast<char*>(std::calloc(slab_size_ + 1, 1)));
      if (slab_ == nullptr) throw std::bad_alloc();
    }
    restored_view_.emplace(*layout_, index_ - first_view_, slab_.get());
  }

  // Where tensors are decoded whole: takes payload until there is a job, or
  // makes ready what one has decoded. False when that needs more bytes.
  absl::StatusOr<bool> StepJobs(absl::string_view* bytes) {
    AddJobs();
    const bool all_came = collected_ == header_.tensors.size();
    if (!jobs_.empty() && (all_came || jobs_.is_full() || jobs_.IsReady())) {
      KVC_RETURN_IF_ERROR(TakeDecoded());
      return true;
    }
    if (job_ == nullptr) StartJob();
    const absl::string_view part = bytes->substr(0, remaining_);
    bytes->remove_prefix(part.size());
    position_ += part.size();
    remaining_ = job_->Append(part);
    if (remaining_ > 0) return false;
    if (has_turns_) {
      TakePayload(collected_);
    } else {
      jobs_.Add(std::exchange(job_, nullptr));
    }
    ++collected_;
    return true;
  }

  void StartJob() {
    const ArtefactTensor& tensor = header_.tensors[collected_];
    job_ = std::make_shared<DecodeJob>(tensor, position_, UseOf(collected_),
                                       options_.tokens, limits_.still_wanted,
                                       &jobs_.spares(), &jobs_.queue());
    remaining_ = tensor.payload_size;
  }

  DecodeJob::Use UseOf(size_t tensor) const {
    if (selected_[tensor]) {
      return header_.laid_out.empty() ? DecodeJob::Use::kGiveBack
                                      : DecodeJob::Use::kGiveWhole;
    }
    return options_.verify_only ? DecodeJob::Use::kCheck
                                : DecodeJob::Use::kSkip;
  }

  // Whether a tensor of a group is.
  bool IsNeeded(size_t group) const {
    const absl::Span<const size_t> members = groups_.MembersOf(group);
    return std::any_of(members.begin(), members.end(), [this](size_t member) {
      return UseOf(member) != DecodeJob::Use::kSkip;
    });
  }

  // Where tensors have turns: one has come. Begins to read its group, where it
  // is the last of one of which anything is needed.
  void TakePayload(size_t tensor) {
    came_[tensor] = std::exchange(job_, nullptr);
    if (!groups_.Has(tensor)) return;
    const size_t group = groups_.GroupOf(tensor);
    if (groups_.LastOf(group) != tensor) return;
    if (!IsNeeded(group)) return;
    auto job =
        std::make_shared<GroupJob>(&groups_, group, came_[tensor]->payload(),
                                   limits_.still_wanted, &jobs_.queue());
    // Also where it is skipped: what is read is its payload.
    came_[tensor]->RunAfter(job);
    jobs_.queue().Add(job);
    group_jobs_[group] = std::move(job);
  }

  // Adds the jobs whose turn it is, as far as they have come and may be at
  // work.
  void AddJobs() {
    while (added_ < came_.size() && !jobs_.is_full()) {
      const size_t tensor = order_[added_];
      if (NeededFor(tensor) >= collected_) return;
      std::shared_ptr<DecodeJob> job = std::move(came_[tensor]);
      if (groups_.Has(tensor)) JoinGroup(tensor, job.get());
      jobs_.Add(std::move(job));
      ++added_;
    }
  }

  // Has a member decoded by its group, which is forgotten with its last one.
  void JoinGroup(size_t tensor, DecodeJob* job) {
    const size_t group = groups_.GroupOf(tensor);
    const auto found = group_jobs_.find(group);
    if (found == group_jobs_.end()) return;
    if (UseOf(tensor) != DecodeJob::Use::kSkip) {
      job->DecodeBy(found->second, tensor);
    }
    if (--members_left_[group] == 0) group_jobs_.erase(found);
  }

  // Makes ready what comes next of what jobs decode: of the current tensor.
  absl::Status TakeDecoded() {
    KVC_ASSIGN_OR_RETURN(DecodeJobs::Part part,
                         jobs_.Take(checkpoint_ ? &*checkpoint_ : nullptr));
    if (layout_ == nullptr) {
      ready_ = std::move(part.bytes);
    } else {
      if (selected_[order_[index_]]) {
        RestoreView();
        restored_view_->Append(part.bytes);
      }
      jobs_.spares().made.PutBack(&part.bytes);
      FinishView();
    }
    if (!part.is_last) return absl::OkStatus();
    ++index_;
    return index_ == header_.tensors.size() ? absl::OkStatus() : StartView();
  }

  // Of the tensor whose payload comes next.
  size_t due() const { return by_jobs() || has_turns_ ? collected_ : index_; }

  // Bytes of that payload.
  uint64_t Missing() const {
    if (!by_jobs() && !has_turns_) return remaining_;
    const uint64_t size = header_.tensors[collected_].payload_size;
    if (!by_jobs()) return size - held_[collected_].size();
    return job_ == nullptr ? size : size - job_->payload().size();
  }

  // Where payloads wait and one thread works: keeps them until the turn of the
  // next tensor has come, and sets up its decoder. False when it needs more
  // bytes.
  absl::StatusOr<bool> TakeTurn(absl::string_view* bytes) {
    const size_t tensor = order_[index_];
    for (; collected_ <= NeededFor(tensor); ++collected_) {
      const uint64_t size = header_.tensors[collected_].payload_size;
      std::string& held = held_[collected_];
      Reserve(size, &held);
      const absl::string_view part = bytes->substr(0, size - held.size());
      held.append(part.data(), part.size());
      bytes->remove_prefix(part.size());
      position_ += part.size();
      if (held.size() < size) return false;
    }
    due_ = held_[tensor];
    remaining_ = due_.size();
    KVC_RETURN_IF_ERROR(NewDecoder(tensor));
    return true;
  }

  // Sets up the decoder of a tensor, whose turn it is.
  absl::Status NewDecoder(size_t tensor) {
    const ArtefactTensor& its = header_.tensors[tensor];
    if (groups_.Has(tensor) && !IsNeeded(groups_.GroupOf(tensor))) {
      decoder_ = NewSkippingDecoder();
    } else if (groups_.Has(tensor)) {
      const size_t group = groups_.GroupOf(tensor);
      Checkpoint* const checkpoint = checkpoint_ ? &*checkpoint_ : nullptr;
      std::shared_ptr<const profile::GroupQuanta>& quanta = quanta_[group];
      if (quanta == nullptr) {
        KVC_ASSIGN_OR_RETURN(quanta,
                             groups_.Parse(group, held_[groups_.LastOf(group)],
                                           checkpoint, /*workers=*/nullptr));
      }
      decoder_ = groups_.NewDecoder(tensor, quanta, checkpoint);
    } else {
      KVC_ASSIGN_OR_RETURN(decoder_, its.codec.codec->NewDecoder(
                                         its.spec, its.codec.parameters));
    }
    NeedWhatIsSelected();
    return absl::OkStatus();
  }

  // The last tensor whose payload must have come before one can be decoded.
  size_t NeededFor(size_t tensor) const {
    return groups_.Has(tensor) ? groups_.LastOf(groups_.GroupOf(tensor))
                               : tensor;
  }

  absl::Status StartTensor() {
    if (index_ == header_.tensors.size()) return absl::OkStatus();
    const ArtefactTensor& tensor = Current();
    remaining_ = tensor.payload_size;
    digest_ = Digest();
    KVC_RETURN_IF_ERROR(StartView());
    filter_.reset();
    if (options_.tokens && selected_[order_[index_]]) {
      filter_.emplace(tensor.spec, *options_.tokens);
    }
    return has_turns_ ? absl::OkStatus() : NewDecoder(index_);
  }

  void NeedWhatIsSelected() {
    // The digest covers what is not decoded.
    if (filter_) {
      decoder_->set_needed([this](uint64_t begin, uint64_t end) {
        return filter_->Overlaps(begin, end);
      });
    } else if (!selected_[order_[index_]] && !options_.verify_only) {
      decoder_->set_needed([](uint64_t, uint64_t) { return false; });
    }
  }

  // Where the current tensor is the first of views: takes their layout.
  absl::Status StartView() {
    restored_view_.reset();
    if (layout_ != nullptr) return absl::OkStatus();
    const size_t tensor = order_[index_];
    const auto next = std::lower_bound(
        header_.laid_out.begin(), header_.laid_out.end(), tensor,
        [](const LaidOutTensor& each, size_t at) { return each.first < at; });
    if (next == header_.laid_out.end() || next->first != tensor) {
      return absl::OkStatus();
    }
    layout_ = &next->layout;
    first_view_ = index_;
    if (selected_[tensor] && options_.tokens) {
      KVC_ASSIGN_OR_RETURN(Layout narrowed,
                           next->layout.Narrowed(*options_.tokens));
      layout_ = &narrowed_.emplace(std::move(narrowed));
    }
    return absl::OkStatus();
  }

  // The current view is complete, and perhaps its slab or its tensor.
  void FinishView() {
    const uint64_t done = index_ - first_view_ + 1;
    if (restored_view_ && done % layout_->views_per_slab() == 0) {
      ready_slab_ = layout_->slab_bytes();
    }
    if (done == layout_->views()) layout_ = nullptr;
  }

  // Ends the current tensor, whose payload is decoded.
  absl::Status FinishTensor() {
    const size_t tensor = order_[index_];
    if (digest_.Hex() != Current().digest) {
      uint64_t offset = header_size_;
      for (size_t i = 0; i < tensor; ++i) {
        offset += header_.tensors[i].payload_size;
      }
      return DigestMismatch(Current(), offset);
    }
    KVC_RETURN_IF_ERROR(decoder_->Finish());
    if (layout_ != nullptr) FinishView();
    decoder_.reset();
    if (has_turns_) std::string().swap(held_[tensor]);
    if (groups_.Has(tensor) && --members_left_[groups_.GroupOf(tensor)] == 0) {
      quanta_.erase(groups_.GroupOf(tensor));
    }
    ++index_;
    return StartTensor();
  }

  const ArtefactTensor& Current() const {
    return header_.tensors[order_[index_]];
  }

  DecompressOptions options_;
  const DecompressLimits limits_;
  std::optional<Checkpoint> checkpoint_;
  SafetensorsHeaderReader header_reader_;
  bool begun_ = false;
  uint64_t position_ = 0;  // in the artefact
  uint64_t header_size_ = 0;
  uint64_t decoder_memory_ = 0;  // bytes, of the decoder that takes most
  uint64_t scratch_size_ = 0;    // most bytes of scratch_
  uint64_t slab_size_ = 0;       // most bytes of slab_
  ArtefactHeader header_;
  std::vector<bool> selected_;
  DecompressReport report_;
  std::string ready_;  // the next bytes to be given
  size_t given_ = 0;   // bytes of it that were
  std::string scratch_;

  // The tensor in a layout that is being decoded, as it is given back; null
  // when it is none.
  const Layout* layout_ = nullptr;
  std::optional<Layout> narrowed_;
  size_t first_view_ = 0;  // of order_
  struct Free {
    void operator()(char* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<char[], Free> slab_;  // of slab_size_ bytes
  uint64_t ready_slab_ = 0;  // bytes of it, where these are what is ready
  std::optional<ViewWriter> restored_view_;
  std::string kept_;  // of a view, where a range of tokens is given back

  // Tensors and views in the order in which they are given back.
  std::vector<size_t> order_;

  // The tensor, or view, that is being decoded, or given back next: the index
  // of its place in order_.
  size_t index_ = 0;
  uint64_t remaining_ = 0;  // bytes of its payload still to come
  std::unique_ptr<TensorDecoder> decoder_;
  std::optional<TokenFilter> filter_;
  Digest digest_;

  GroupDecompression groups_;
  // Where payloads wait for the turn of their tensors.
  bool has_turns_ = false;
  uint64_t waiting_size_ = 0;              // most bytes of them
  size_t collected_ = 0;                   // tensors whose payload has come
  std::map<size_t, size_t> members_left_;  // of groups, before their turn

  // Where one thread works, by tensor: what was decoded is empty.
  std::vector<std::string> held_;
  absl::string_view due_;  // what is left of the current tensor's
  std::map<size_t, std::shared_ptr<const profile::GroupQuanta>> quanta_;

  // Where several threads decode.
  uint64_t job_size_ = 0;           // most bytes of payload and what it becomes
  uint64_t place_memory_ = 0;       // most bytes that one works on blocks in
  std::shared_ptr<DecodeJob> job_;  // whose payload is coming
  std::vector<std::shared_ptr<DecodeJob>> came_;  // whose turn has not come
  size_t added_ = 0;                              // of order_
  std::map<size_t, std::shared_ptr<GroupJob>> group_jobs_;  // by group
  DecodeJobs jobs_{limits_.threads};  // ends before what its jobs work with
};

Decompressor::Decompressor(DecompressOptions options, DecompressLimits limits)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(limits))) {}
Decompressor::~Decompressor() = default;

absl::StatusOr<bool> Decompressor::Restore(absl::string_view* bytes,
                                           size_t most, std::string* restored) {
  return impl_->Restore(bytes, most, restored);
}
uint64_t Decompressor::working_bytes() const { return impl_->working_bytes(); }
unsigned Decompressor::threads() const { return impl_->threads(); }
void Decompressor::UseOneThread() { impl_->UseOneThread(); }
absl::StatusOr<DecompressReport> Decompressor::Finish() {
  return impl_->Finish();
}

}  // namespace kvcompress
