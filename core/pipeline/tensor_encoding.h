// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A tensor, or a view of one, that is being encoded, measured and digested in
// one pass; by itself, or as a job among others. Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_TENSOR_ENCODING_H_
#define KVCOMPRESS_PIPELINE_TENSOR_ENCODING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "digest/digest.h"
#include "kvcompress/artefact.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/codec.h"
#include "kvcompress/metrics.h"
#include "kvcompress/places.h"
#include "layout/suspicion.h"
#include "metrics/token_quality.h"
#include "pipeline/job_queue.h"
#include "pipeline/spare_strings.h"

namespace kvcompress {

// Bytes that are encoded, decoded and measured before the next are: few enough
// that they are still in a processor's nearer caches.
inline constexpr uint64_t kAtOnce = 64 << 10;

// Not thread safe.
class TensorEncoding {
 public:
  // With `measures`, measures tokens where the encoder does not. `checkpoint`
  // may be null, or outlives this.
  TensorEncoding(const TensorSpec& spec, std::unique_ptr<TensorEncoder> encoder,
                 bool measures, Checkpoint* checkpoint);

  // Takes the next bytes of the tensor. Appends to `*payload`, and what
  // decoding will produce to `*decoded` unless it is null. The errors of
  // TensorEncoder, and that of the checkpoint.
  absl::Status Append(absl::string_view bytes, std::string* payload,
                      std::string* decoded);
  // Ends the tensor; the following are known then.
  absl::Status Finish(std::string* payload, std::string* decoded);

  const TensorEncoder& encoder() const { return *encoder_; }
  std::string digest() const { return digest_.Hex(); }
  // Where they were measured.
  std::optional<TokenSums> TokensOf();

 private:
  template <typename Step>
  absl::Status Encode(std::string* payload, std::string* decoded, Step step);

  const std::unique_ptr<TensorEncoder> encoder_;
  Checkpoint* const checkpoint_;
  std::optional<TokenAccumulator> tokens_;
  std::string scratch_;  // what is decoded only to be measured
  Digest digest_;
};

// What a tensor became.
struct EncodedOutcome {
  std::string payload;
  uint64_t written = 0;  // bytes before these that are where they belong
  std::string decoded;   // empty unless asked for
  std::string digest;
  KeyHints told;
  std::shared_ptr<const EncoderFindings> findings;
  std::optional<CodecSpec> chosen;
  DistortionAccumulator distortion;
  std::optional<TokenSums> tokens;
  // Where it was looked at: the layout that the tensor is likely to have, or
  // empty.
  std::optional<std::string> likely_layout;
};

// Buffers of jobs at work, as many as there are at a time. Thread safe.
class BufferPool {
 public:
  struct Buffers : EncoderBuffers {
    std::string read;  // of the source; what is in it means nothing
  };

  std::unique_ptr<Buffers> Take();
  void PutBack(std::unique_ptr<Buffers> buffers);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Buffers>> free_;
};

// Encodes a tensor that is held whole, or lies where the job can read it.
class EncodeJob final : public Job {
 public:
  // Bytes [offset, offset + size) of the tensor; they are somebody else's or
  // read to `*buffer`, see PlacedSource::Read.
  using Read = std::function<absl::StatusOr<absl::string_view>(
      uint64_t offset, size_t size, std::string* buffer)>;

  // `tensor` has `size` bytes and outlives this, as do the pools and `queue`.
  EncodeJob(const ArtefactTensor& tensor, uint64_t size, EncodeHints hints,
            bool wants_decoded, StillWanted still_wanted, BufferPool* pool,
            SpareStrings* spares, JobQueue* queue);

  // Before the job is added: takes bytes of the tensor...
  void Append(absl::string_view bytes);
  // ...or makes the job read all of them itself.
  void ReadFrom(Read read) { read_ = std::move(read); }
  // Makes it write the payload, of so many bytes, where it belongs: at `offset`
  // of the artefact.
  void WriteTo(PlacedSink* artefact, uint64_t offset, uint64_t size) {
    artefact_ = artefact;
    offset_ = offset;
    payload_size_ = size;
  }
  // Makes it analyze the layout that the tensor seems to be in.
  void LookAt(std::unique_ptr<LayoutSample> sample) {
    sample_ = std::move(sample);
  }
  // Makes it wait for the keys of its layer, which have the hints on the
  // attention of tokens.
  void RunAfterKeys(const std::shared_ptr<EncodeJob>& keys) {
    keys_ = keys;
    RunAfter(keys);
  }

  // The same for the tensor that is the source of its warm start.
  void RunAfterTeacher(const std::shared_ptr<EncodeJob>& teacher) {
    teacher_ = teacher;
    RunAfter(teacher);
  }

  // Of a job that is done: whether it succeeded, and what it made, which the
  // caller may take away all but `told` and `findings`.
  const absl::Status& status() const { return status_; }
  EncodedOutcome& outcome() { return outcome_; }

 private:
  void Run() override;
  absl::Status Encode(Checkpoint* checkpoint, BufferPool::Buffers* buffers);
  absl::Status PassOn();

  const ArtefactTensor& tensor_;
  const uint64_t size_;
  EncodeHints hints_;
  const bool wants_decoded_;
  const StillWanted still_wanted_;
  BufferPool* const pool_;
  SpareStrings* const spares_;  // of the source, and of what it becomes
  JobQueue* const queue_;
  std::shared_ptr<EncodeJob> keys_;
  std::shared_ptr<EncodeJob> teacher_;
  std::string source_;
  Read read_;                       // null where `source_` is all of it
  PlacedSink* artefact_ = nullptr;  // null where the payload is returned
  uint64_t offset_ = 0;             // of it, in bytes
  uint64_t payload_size_ = 0;       // the same
  std::unique_ptr<LayoutSample> sample_;
  absl::Status status_;
  EncodedOutcome outcome_;
};

// Passes all bytes of a tensor that lies somewhere to an encoder. The thread
// that waits for it ends the encoder.
class ReadJob final : public Job {
 public:
  // The encoder returns nothing before its end. `sample` may be null; `queue`
  // outlives this.
  ReadJob(std::unique_ptr<TensorEncoder> encoder, uint64_t size,
          EncodeJob::Read read, std::unique_ptr<LayoutSample> sample,
          StillWanted still_wanted, JobQueue* queue)
      : size_(size),
        still_wanted_(std::move(still_wanted)),
        queue_(queue),
        read_(std::move(read)),
        encoder_(std::move(encoder)),
        sample_(std::move(sample)) {}

  // Of a job that is done.
  const absl::Status& status() const { return status_; }
  std::unique_ptr<TensorEncoder> TakeEncoder() { return std::move(encoder_); }
  std::unique_ptr<LayoutSample> TakeSample() { return std::move(sample_); }

 private:
  void Run() override;
  absl::Status Read();

  const uint64_t size_;
  const StillWanted still_wanted_;
  JobQueue* const queue_;
  const EncodeJob::Read read_;
  std::unique_ptr<TensorEncoder> encoder_;
  std::unique_ptr<LayoutSample> sample_;
  absl::Status status_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_TENSOR_ENCODING_H_
