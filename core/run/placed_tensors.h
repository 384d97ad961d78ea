// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Tensors that one thread after the other decodes from where their payloads
// lie to where they belong. Internal to the library.

#ifndef KVCOMPRESS_RUN_PLACED_TENSORS_H_
#define KVCOMPRESS_RUN_PLACED_TENSORS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/codec.h"
#include "kvcompress/placed_decompressor.h"
#include "pipeline/job_queue.h"
#include "pipeline/spare_strings.h"
#include "pipeline/tensor_decoding.h"
#include "plan/decompress_plan.h"

namespace kvcompress {

// Bytes of payload that are read, and of elements that are decoded, before the
// next are: few enough that they are still in a processor's nearer caches.
inline constexpr size_t kPlacedSlice = 128 << 10;
// What a thread decodes of a tensor that several work on, in bytes.
inline constexpr size_t kPlacedPiece = 512 << 10;

// Writes bytes to where they belong, in memory where there is some.
absl::Status WriteTo(PlacedSink* sink, uint64_t offset,
                     absl::string_view bytes);

// What all jobs of a call have in common.
struct PlacedRun {
  const DecompressPlan* plan = nullptr;
  const PlacedSource* source = nullptr;
  PlacedSink* sink = nullptr;
  StillWanted still_wanted;
  JobQueue* queue = nullptr;
  SpareStrings spares;
};

// A slab of a tensor in a layout, which all of its views are restored to.
class RestoredSlab {
 public:
  // `layout` and `sink` outlive this. The slab goes to `begin`.
  RestoredSlab(const Layout* layout, uint64_t begin, PlacedSink* sink)
      : layout_(layout),
        begin_(begin),
        sink_(sink),
        left_(layout->views_per_slab()) {}

  const Layout& layout() const { return *layout_; }

  // Its memory, which has space for all of it. Thread safe.
  char* bytes();
  // A view is complete. The last one releases the slab. Thread safe.
  absl::Status EndView();

 private:
  struct Free {
    void operator()(char* bytes) const;
  };

  const Layout* const layout_;
  const uint64_t begin_;
  PlacedSink* const sink_;
  std::mutex mutex_;
  std::unique_ptr<char[], Free> own_;  // where the sink has no memory
  char* bytes_ = nullptr;
  std::atomic<uint64_t> left_;  // views
};

// A tensor, or a view of one, and where it goes.
struct PlacedTensor {
  size_t index = 0;            // in the header
  uint64_t payload_begin = 0;  // in the artefact
  // Where it is given back: in the output, or in a slab.
  uint64_t begin = 0;
  std::shared_ptr<RestoredSlab> slab;
  uint64_t view = 0;  // of its layout
  // Null for a tensor of no group, and for one of which nothing is needed.
  std::shared_ptr<GroupJob> group;
};

// Decodes some tensors.
class PlacedJob final : public Job {
 public:
  // `run` outlives this.
  explicit PlacedJob(PlacedRun* run) : run_(run) {}

  // Before the job is added.
  void Add(PlacedTensor tensor);
  // Bytes that the tensors have, encoded, and as they are given back.
  uint64_t payload_bytes() const { return payload_bytes_; }
  uint64_t bytes() const { return bytes_; }

  // Of a job that is done.
  const absl::Status& status() const { return status_; }

 private:
  void Run() override;

  PlacedRun* const run_;
  std::vector<PlacedTensor> tensors_;
  uint64_t payload_bytes_ = 0;
  uint64_t bytes_ = 0;
  absl::Status status_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_RUN_PLACED_TENSORS_H_
