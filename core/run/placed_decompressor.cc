// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/placed_decompressor.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "pipeline/job_queue.h"
#include "pipeline/working_memory.h"
#include "plan/decompress_plan.h"
#include "run/placed_tensors.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

absl::StatusOr<std::string> ReadHeader(const PlacedSource& artefact,
                                       uint64_t most) {
  SafetensorsHeaderReader reader(most);
  std::string buffer;
  for (uint64_t position = 0; !reader.done();) {
    const size_t size =
        std::min<uint64_t>(kHeaderPart, artefact.size() - position);
    if (size == 0) return ArtefactHeaderError(reader.TruncatedError());
    KVC_ASSIGN_OR_RETURN(absl::string_view bytes,
                         artefact.Read(position, size, &buffer));
    position += size;
    const absl::Status status = reader.Append(&bytes);
    if (!status.ok()) return ArtefactHeaderError(status);
  }
  return reader.raw();
}

}  // namespace

class PlacedDecompressor::Impl {
 public:
  Impl(DecompressOptions options, DecompressLimits limits)
      : options_(std::move(options)), limits_(std::move(limits)) {
    if (limits_.still_wanted) checkpoint_.emplace(limits_.still_wanted);
    run_.plan = &plan_;
    run_.still_wanted = limits_.still_wanted;
    run_.queue = &queue_;
  }

  absl::StatusOr<uint64_t> OpeningBytes(const PlacedSource& artefact) const {
    SafetensorsHeaderReader reader(limits_.max_header_bytes);
    std::string buffer;
    const uint64_t size = std::min(kHeaderLength, artefact.size());
    KVC_ASSIGN_OR_RETURN(absl::string_view bytes,
                         artefact.Read(0, size, &buffer));
    const absl::Status status = reader.Append(&bytes);
    if (!status.ok()) return ArtefactHeaderError(status);
    return kHeaderMemory * std::min(reader.announced_size(), artefact.size());
  }

  absl::Status Open(const PlacedSource* artefact) {
    run_.source = artefact;
    KVC_ASSIGN_OR_RETURN(const std::string raw,
                         ReadHeader(*artefact, limits_.max_header_bytes));
    KVC_ASSIGN_OR_RETURN(ArtefactHeader header,
                         ParseArtefactHeader(raw, checkpoint()));
    KVC_ASSIGN_OR_RETURN(
        plan_, DecompressPlan::Make(options_, limits_, std::move(header),
                                    raw.size(), checkpoint()));
    options_ = {};
    KVC_RETURN_IF_ERROR(CheckLength());
    uint64_t begin = plan_.header_size;
    for (size_t i = 0; i < plan_.header.tensors.size(); ++i) {
      if (StopsAt(i, checkpoint())) return checkpoint()->status();
      payload_begin_.push_back(begin);
      begin += plan_.header.tensors[i].payload_size;
      if (plan_.groups.Has(i)) ++members_left_[plan_.groups.GroupOf(i)];
    }
    done_bytes_ = plan_.header_size;
    PlanThreads();
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Place>> Places() const {
    std::vector<Place> places;
    for (const DecompressPlan::Source& source : plan_.sources) {
      if (!plan_.selected[source.first]) continue;
      KVC_ASSIGN_OR_RETURN(TensorSpec spec, plan_.SpecOf(source));
      KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
      const uint64_t size = elements * DTypeSize(spec.dtype);
      places.push_back({std::move(spec), source.begin, source.begin + size});
    }
    return places;
  }

  uint64_t output_size() const { return plan_.report.output_size; }
  uint64_t done_bytes() const { return done_bytes_; }

  uint64_t working_bytes() const {
    return kHeaderMemory * plan_.header_size + plan_.groups.memory() +
           MemoryWith(workers_, queue_.places());
  }
  unsigned threads() const {
    return ThreadsOf(workers_, queue_.places(), limits_.threads.count);
  }
  void UseOneThread() {
    workers_ = 1;
    queue_.UseOneThread();
  }

  absl::StatusOr<bool> Restore(PlacedSink* sink, absl::Duration most) {
    const absl::Time until = absl::Now() + most;
    if (run_.sink == nullptr && !plan_.verify_only) {
      run_.sink = sink;
      KVC_RETURN_IF_ERROR(WriteTo(sink, 0, plan_.output_header));
      std::string().swap(plan_.output_header);
    }
    do {
      KVC_RETURN_IF_ERROR(AddJobs());
      if (jobs_.empty()) return false;
      const std::shared_ptr<PlacedJob> job = jobs_.front();
      KVC_RETURN_IF_ERROR(WaitFor(job, &queue_, checkpoint()));
      done_bytes_ += job->payload_bytes();
      jobs_.pop_front();
    } while (absl::Now() < until);
    return true;
  }

  absl::StatusOr<DecompressReport> Finish() {
    return plan_.TakeReport(run_.source->size());
  }

 private:
  // Null where nobody asks.
  Checkpoint* checkpoint() { return checkpoint_ ? &*checkpoint_ : nullptr; }

  absl::Status CheckLength() const {
    const uint64_t size = run_.source->size();
    uint64_t end = plan_.header_size;
    for (size_t i = 0; i < plan_.header.tensors.size(); ++i) {
      const uint64_t payload = plan_.header.tensors[i].payload_size;
      if (payload > size - end) {
        return plan_.CutShort(i, payload - (size - end), size);
      }
      end += payload;
    }
    return end < size ? TrailingBytes(end) : absl::OkStatus();
  }

  // What so many threads hold at a time, each of them on a tensor that so many
  // work on.
  uint64_t MemoryWith(unsigned workers, size_t places) const {
    const uint64_t decoded =
        std::max<uint64_t>(kPlacedSlice, plan_.block_memory);
    uint64_t each = plan_.decoder_memory + kPlacedSlice + 2 * decoded;
    if (!plan_.groups.empty()) each += plan_.payload_memory;
    if (places > 1) {
      each += plan_.tensor_memory +
              places * (place_memory_ +
                        std::max<uint64_t>(kPlacedPiece, plan_.block_memory));
    }
    const unsigned slabs = workers == 1 ? 1 : workers + 1;
    return workers * (each + places * plan_.groups.memory_of_reader()) +
           slabs * plan_.slab_memory;
  }

  // As many threads as there are, on as many tensors as there is memory for.
  void PlanThreads() {
    const uint64_t bytes = plan_.report.original_size;
    if (bytes < 2 * kWorthwhile) return UseOneThread();
    place_memory_ = std::min(plan_.decoder_memory, kMaxPlaceMemory);
    const ThreadPlan plan = PlanOf(
        limits_.threads,
        std::min<uint64_t>(plan_.header.tensors.size(), bytes / kWorthwhile),
        /*shares=*/!plan_.verify_only && !plan_.tokens,
        [this](unsigned workers, size_t places) {
          return MemoryWith(workers, places) - MemoryWith(1, 1);
        });
    if (plan.workers == 1 && plan.places == 1) return UseOneThread();
    workers_ = plan.workers;
    queue_.set_places(plan.places);
  }

  // Tensors that are at work or wait for it: no more than may be at work, where
  // there are more threads than memory.
  size_t most_jobs() const {
    return workers_ < limits_.threads.count ? workers_ : 2 * workers_;
  }

  // Adds tensors in the order of the output, as many as may be at work or wait
  // for it.
  absl::Status AddJobs() {
    while (jobs_.size() < most_jobs() && source_ < plan_.sources.size()) {
      auto job = std::make_shared<PlacedJob>(&run_);
      while (source_ < plan_.sources.size() && job->bytes() < kWorthwhile) {
        job->Add(NextTensor());
      }
      queue_.Add(job);
      jobs_.push_back(std::move(job));
    }
    return StatusOf(checkpoint());
  }

  PlacedTensor NextTensor() {
    const DecompressPlan::Source& source = plan_.sources[source_];
    PlacedTensor tensor = {
        .index = source.first + view_,
        .payload_begin = payload_begin_[source.first + view_],
        .begin = source.begin};
    const Layout* const layout = plan_.LayoutOf(source);
    if (layout != nullptr && plan_.selected[source.first]) {
      if (view_ % layout->views_per_slab() == 0) {
        slab_ = std::make_shared<RestoredSlab>(
            layout,
            source.begin +
                view_ / layout->views_per_slab() * layout->slab_bytes(),
            run_.sink);
      }
      tensor.slab = slab_;
      tensor.view = view_;
    }
    if (plan_.groups.Has(tensor.index)) {
      std::shared_ptr<GroupJob> group =
          NeedGroup(plan_.groups.GroupOf(tensor.index));
      if (plan_.selected[tensor.index] || plan_.verify_only) {
        tensor.group = std::move(group);
      }
    }
    if (++view_ == source.count) {
      view_ = 0;
      ++source_;
      slab_.reset();
    }
    return tensor;
  }

  // The job that reads a group, which goes with the last of its members; null
  // where nothing of it is needed.
  std::shared_ptr<GroupJob> NeedGroup(size_t group) {
    if (!plan_.Needs(group)) return nullptr;
    std::shared_ptr<GroupJob>& job = groups_[group];
    if (job == nullptr) {
      const size_t last = plan_.groups.LastOf(group);
      job = std::make_shared<GroupJob>(
          &plan_.groups, group,
          [this, last](std::string* buffer) {
            return run_.source->Read(payload_begin_[last],
                                     plan_.header.tensors[last].payload_size,
                                     buffer);
          },
          limits_.still_wanted, &queue_, threads());
      queue_.Add(job);
    }
    std::shared_ptr<GroupJob> found = job;
    if (--members_left_[group] == 0) groups_.erase(group);
    return found;
  }

  DecompressOptions options_;
  const DecompressLimits limits_;
  std::optional<Checkpoint> checkpoint_;
  DecompressPlan plan_;
  PlacedRun run_;
  std::vector<uint64_t> payload_begin_;  // by tensor
  uint64_t done_bytes_ = 0;

  unsigned workers_ = 1;
  uint64_t place_memory_ = 0;

  // What comes next: a tensor of the source, and a view of it.
  size_t source_ = 0;
  size_t view_ = 0;
  std::shared_ptr<RestoredSlab> slab_;
  std::map<size_t, std::shared_ptr<GroupJob>> groups_;
  std::map<size_t, size_t> members_left_;  // of groups, to come
  std::deque<std::shared_ptr<PlacedJob>> jobs_;
  JobQueue queue_{limits_.threads};  // ends before what its jobs work with
};

PlacedDecompressor::PlacedDecompressor(DecompressOptions options,
                                       DecompressLimits limits)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(limits))) {}
PlacedDecompressor::~PlacedDecompressor() = default;

absl::Status PlacedDecompressor::Open(const PlacedSource* artefact) {
  return impl_->Open(artefact);
}
uint64_t PlacedDecompressor::output_size() const {
  return impl_->output_size();
}
absl::StatusOr<std::vector<PlacedDecompressor::Place>>
PlacedDecompressor::Places() const {
  return impl_->Places();
}
absl::StatusOr<uint64_t> PlacedDecompressor::OpeningBytes(
    const PlacedSource& artefact) const {
  return impl_->OpeningBytes(artefact);
}
uint64_t PlacedDecompressor::working_bytes() const {
  return impl_->working_bytes();
}
unsigned PlacedDecompressor::threads() const { return impl_->threads(); }
void PlacedDecompressor::UseOneThread() { impl_->UseOneThread(); }
absl::StatusOr<bool> PlacedDecompressor::Restore(PlacedSink* sink,
                                                 absl::Duration most) {
  return impl_->Restore(sink, most);
}
uint64_t PlacedDecompressor::done_bytes() const { return impl_->done_bytes(); }
absl::StatusOr<DecompressReport> PlacedDecompressor::Finish() {
  return impl_->Finish();
}

}  // namespace kvcompress
