// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Encodes the tensors and views of a cache, one after the other: each by the
// thread of the call as its bytes come, or by a job of a queue. What became of
// them is settled in their order: payloads, restored bytes and reports.
// Internal to the library.

#ifndef KVCOMPRESS_RUN_UNIT_ENCODER_H_
#define KVCOMPRESS_RUN_UNIT_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kvcompress/artefact.h"
#include "kvcompress/codec.h"
#include "kvcompress/compressor.h"
#include "kvcompress/places.h"
#include "layout/suspicion.h"
#include "pipeline/attention.h"
#include "pipeline/earlier.h"
#include "pipeline/group_alone.h"
#include "pipeline/groups.h"
#include "pipeline/job_queue.h"
#include "pipeline/ordered_output.h"
#include "pipeline/report_builder.h"
#include "pipeline/spare_strings.h"
#include "pipeline/tensor_encoding.h"
#include "pipeline/views.h"
#include "plan/compress_plan.h"
#include "run/payload_writes.h"

namespace kvcompress {

// A unit is a tensor that is coded as it is, or a view of one in a layout.
// Units come in the order of the artefact. Not thread safe.
class UnitEncoder {
 public:
  // All outlive this.
  UnitEncoder(const CompressOptions& options, const CompressLimits& limits,
              ReportBuilder* builder)
      : options_(options), limits_(limits), builder_(*builder) {}

  // Where payloads go that are not to be returned. Before Begin.
  void WriteTo(PlacedSink* artefact) { writes_.Use(artefact); }

  // Takes the plan, and as many threads as are worth it; fewer where the input
  // comes as a `stream` and copying it costs as much as to encode it.
  void Begin(CompressPlan plan, bool stream);

  // The header, complete once all units are settled.
  ArtefactHeader& artefact() { return artefact_; }
  const ArtefactHeader& artefact() const { return artefact_; }
  const EncodeHints& hints() const { return hints_; }
  uint64_t payload_size() const { return payload_size_; }

  // What all of it takes, in bytes; the threads that work; and a way to do with
  // the thread of the call.
  uint64_t memory() const { return MemoryWith(workers_, queue_.places()); }
  unsigned threads() const;
  void UseOneThread();

  // The number of the unit that is under way, or comes next.
  size_t index() const { return index_; }
  bool done() const { return index_ == artefact_.tensors.size(); }
  ArtefactTensor& current() { return artefact_.tensors[index_]; }
  // Its bytes.
  uint64_t size() const { return size_; }

  // Whether units that are not in groups are jobs, unless bytes are restored to
  // a view.
  bool by_jobs() const { return workers_ > 1; }
  bool has_groups() const { return groups_.any(); }
  // Whether a job reads the unit under way.
  bool in_job() const { return job_ != nullptr || member_ != nullptr; }

  // Begins the next unit. A job reads its bytes by itself with `read`, unless
  // that is null. What is decoded goes to `restored`, unless that is null.
  absl::Status Start(EncodeJob::Read read, ViewWriter* restored,
                     CompressOutput* output);
  // Takes the next bytes of it.
  absl::Status Append(absl::string_view part, CompressOutput* output);
  // Ends it.
  absl::Status Finish(CompressOutput* output);

  // Writes payloads for which there is a sink, if there are enough of them.
  absl::Status PassOn();
  // Settles all units and writes all payloads. REQUIRES: none is under way.
  absl::Status SettleAll(CompressOutput* output);

  // Warns of units that look as if they had another layout.
  void ReportSuspicions();

 private:
  uint64_t MemoryWith(unsigned workers, size_t places) const;
  void PlanThreads(bool stream);
  bool looks_at_layouts() const {
    return options_.metrics == MetricsLevel::kFull;
  }
  absl::Status StartMember(EncodeJob::Read read);
  absl::Status StartInline(const EarlierTensors::Teacher* teacher,
                           CompressOutput* output);
  template <typename Step>
  absl::Status Encode(CompressOutput* output, Step step);
  std::string* PayloadOf(size_t unit, CompressOutput* output);
  void EndPayload(size_t unit, CompressOutput* output);
  std::string* PayloadsOf(CompressOutput* output);
  absl::Status PassOn(uint64_t least);
  void CountPayload(uint64_t size, ArtefactTensor* tensor);
  void Report(const ArtefactTensor& tensor, KeyHints told);
  absl::Status PlacePayload();
  absl::Status FinishInline(CompressOutput* output);
  absl::Status SubmitJob(CompressOutput* output);
  absl::Status SubmitMember(CompressOutput* output);
  absl::Status SettleMembers(CompressOutput* output);
  absl::Status SettleJobs(size_t most, CompressOutput* output);
  absl::Status SettleJob(size_t index, EncodedOutcome* outcome,
                         CompressOutput* output);
  void TakeOutput(std::string* made, SpareString* spare, std::string* out);
  absl::Status EndGroup(CompressOutput* output);
  void TakeAlone(size_t index, AloneTensor alone, CompressOutput* output);

  const CompressOptions& options_;
  const CompressLimits& limits_;
  ReportBuilder& builder_;
  ArtefactHeader artefact_;
  uint64_t payload_size_ = 0;  // of units that are settled
  EncodeHints hints_;
  AttentionHints attention_;
  EarlierTensors earlier_;
  GroupCompression groups_;  // outlives the encoder
  OrderedOutput ordered_;    // where it reconstructs
  OrderedOutput payloads_;   // where groups may fall back
  LayoutSuspicions suspicions_;

  // The unit under way.
  size_t index_ = 0;
  uint64_t size_ = 0;
  std::unique_ptr<LayoutSample> sample_;
  ViewWriter* restored_view_ = nullptr;
  std::string restored_part_;  // of restored_view_
  EncoderBuffers buffers_;     // outlives the encoder

  // Units that are encoded at a time, where there are several.
  unsigned workers_ = 1;
  uint64_t tensor_memory_ = 0;  // bytes that the largest one takes, alone
  uint64_t job_size_ = 0;       // most bytes of one
  uint64_t place_memory_ = 0;   // most bytes that one works on blocks in
  BufferPool pool_;
  SpareStrings spares_;
  std::shared_ptr<EncodeJob> job_;  // whose bytes are coming
  std::deque<std::pair<size_t, std::shared_ptr<EncodeJob>>> jobs_;
  // Where there is a sink, and the payload of every one has a size that follows
  // from its shape: where that of the last ends in the artefact.
  std::optional<uint64_t> jobs_end_;
  std::shared_ptr<ReadJob> member_;  // of a group; the unit under way
  std::deque<std::shared_ptr<ReadJob>> members_;  // the units before it
  std::shared_ptr<EncodeJob> last_keys_;  // null where these were no job
  std::optional<uint32_t> last_keys_layer_;
  JobQueue queue_{limits_.threads};  // ends before what its jobs work with
  PayloadWrites writes_{&queue_};
  std::string unwritten_;                   // where there is a sink
  std::optional<TensorEncoding> encoding_;  // may share blocks by the queue
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_RUN_UNIT_ENCODER_H_
