// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/tensor_encoding.h"

#include <algorithm>

#include "pipeline/working_memory.h"
#include "status/macros.h"
#include "tensor/grow.h"
#include "tensor/slabs.h"

namespace kvcompress {

TensorEncoding::TensorEncoding(const TensorSpec& spec,
                               std::unique_ptr<TensorEncoder> encoder,
                               bool measures, Checkpoint* checkpoint)
    : encoder_(std::move(encoder)), checkpoint_(checkpoint) {
  if (measures && TokenAccumulator::Applies(spec) &&
      !encoder_->measures_tokens()) {
    tokens_.emplace(spec);
  }
}

template <typename Step>
absl::Status TensorEncoding::Encode(std::string* payload, std::string* decoded,
                                    Step step) {
  const size_t before = payload->size();
  scratch_.clear();
  const bool wanted = decoded != nullptr;
  if (!wanted) decoded = &scratch_;
  const size_t decoded_before = decoded->size();
  KVC_RETURN_IF_ERROR(step(tokens_ || wanted ? decoded : nullptr));
  if (tokens_) {
    tokens_->AddDecoded(absl::string_view(*decoded).substr(decoded_before),
                        checkpoint_);
  }
  const absl::string_view added = absl::string_view(*payload).substr(before);
  InSlabs(checkpoint_, added.size(), [&](size_t first, size_t size) {
    digest_.Update(added.substr(first, size));
  });
  return StatusOf(checkpoint_);
}

absl::Status TensorEncoding::Append(absl::string_view bytes,
                                    std::string* payload,
                                    std::string* decoded) {
  if (tokens_) tokens_->AddSource(bytes);
  return Encode(payload, decoded, [&](std::string* restored) {
    return encoder_->Append(bytes, payload, restored);
  });
}

absl::Status TensorEncoding::Finish(std::string* payload,
                                    std::string* decoded) {
  return Encode(payload, decoded, [&](std::string* restored) {
    return encoder_->Finish(payload, restored);
  });
}

std::optional<TokenSums> TensorEncoding::TokensOf() {
  if (tokens_) return tokens_->Compute();
  const TokenSums* const measured = encoder_->token_sums();
  return measured == nullptr ? std::nullopt : std::optional(*measured);
}

std::unique_ptr<BufferPool::Buffers> BufferPool::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (free_.empty()) return std::make_unique<Buffers>();
  std::unique_ptr<Buffers> buffers = std::move(free_.back());
  free_.pop_back();
  return buffers;
}

void BufferPool::PutBack(std::unique_ptr<Buffers> buffers) {
  const std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(std::move(buffers));
}

EncodeJob::EncodeJob(const ArtefactTensor& tensor, uint64_t size,
                     EncodeHints hints, bool wants_decoded,
                     StillWanted still_wanted, BufferPool* pool,
                     SpareStrings* spares, JobQueue* queue)
    : tensor_(tensor),
      size_(size),
      hints_(std::move(hints)),
      wants_decoded_(wants_decoded),
      still_wanted_(std::move(still_wanted)),
      pool_(pool),
      spares_(spares),
      queue_(queue),
      source_(spares->taken.Take()) {}

void EncodeJob::Append(absl::string_view bytes) {
  Reserve(size_, &source_);
  source_.append(bytes.data(), bytes.size());
  if (sample_ != nullptr) sample_->Add(bytes);
}

void EncodeJob::Run() {
  Checkpoint checkpoint = queue_->CheckpointOf(still_wanted_);
  std::unique_ptr<BufferPool::Buffers> buffers = pool_->Take();
  status_ = Encode(&checkpoint, buffers.get());
  pool_->PutBack(std::move(buffers));
  keys_.reset();
  teacher_.reset();
  hints_.earlier.reset();
  read_ = nullptr;
  sample_.reset();
  spares_->taken.PutBack(&source_);
}

absl::Status EncodeJob::Encode(Checkpoint* checkpoint,
                               BufferPool::Buffers* buffers) {
  if (keys_ != nullptr) {
    hints_.from_keys.attention = keys_->outcome().told.attention;
  }
  if (teacher_ != nullptr) hints_.earlier = teacher_->outcome().findings;
  // What is not held whole by whoever encodes it is read part by part.
  const bool whole = !read_ || !tensor_.codec.codec->traits().streaming;
  absl::string_view source = source_;
  if (read_ && whole) {
    KVC_ASSIGN_OR_RETURN(source, read_(0, size_, &buffers->read));
  }
  hints_.source = source;
  hints_.workers = queue_;
  hints_.buffers = buffers;
  hints_.checkpoint = checkpoint;
  KVC_ASSIGN_OR_RETURN(std::unique_ptr<TensorEncoder> encoder,
                       tensor_.codec.codec->NewEncoder(
                           tensor_.spec, tensor_.codec.parameters, hints_));
  TensorEncoding encoding(tensor_.spec, std::move(encoder),
                          hints_.measures_tokens, checkpoint);
  std::string* const decoded = wants_decoded_ ? &outcome_.decoded : nullptr;
  outcome_.payload = spares_->made.Take();
  if (wants_decoded_) {
    outcome_.decoded = spares_->restored.Take();
    Reserve(size_, &outcome_.decoded);
  }
  for (uint64_t done = 0; done < size_;) {
    if (Stops(checkpoint)) return checkpoint->status();
    absl::string_view part = source.substr(whole ? done : 0, kAtOnce);
    if (!whole) {
      KVC_ASSIGN_OR_RETURN(
          part, read_(done, std::min(kAtOnce, size_ - done), &buffers->read));
    }
    done += part.size();
    if (read_ && sample_ != nullptr) sample_->Add(part);
    KVC_RETURN_IF_ERROR(encoding.Append(part, &outcome_.payload, decoded));
    KVC_RETURN_IF_ERROR(PassOn());
  }
  KVC_RETURN_IF_ERROR(encoding.Finish(&outcome_.payload, decoded));
  KVC_RETURN_IF_ERROR(PassOn());
  outcome_.digest = encoding.digest();
  outcome_.told = encoding.encoder().key_hints();
  outcome_.findings = encoding.encoder().findings();
  if (const CodecSpec* chosen = encoding.encoder().chosen()) {
    outcome_.chosen = *chosen;
  }
  outcome_.distortion = encoding.encoder().distortion();
  outcome_.tokens = encoding.TokensOf();
  if (sample_ != nullptr) outcome_.likely_layout.emplace(sample_->Likely());
  return absl::OkStatus();
}

// Writes what there is of the payload, where it has a place and neither this
// nor what is left is little.
absl::Status EncodeJob::PassOn() {
  std::string& payload = outcome_.payload;
  if (artefact_ == nullptr || payload.empty()) return absl::OkStatus();
  const uint64_t left = payload_size_ - outcome_.written - payload.size();
  if (left > 0 && std::min(payload.size(), left) < kWorthwhile) {
    return absl::OkStatus();
  }
  KVC_RETURN_IF_ERROR(artefact_->Write(offset_ + outcome_.written, payload));
  outcome_.written += payload.size();
  payload.clear();
  return absl::OkStatus();
}

void ReadJob::Run() { status_ = Read(); }

absl::Status ReadJob::Read() {
  Checkpoint checkpoint = queue_->CheckpointOf(still_wanted_);
  std::string buffer;
  for (uint64_t done = 0; done < size_;) {
    if (Stops(&checkpoint)) return checkpoint.status();
    KVC_ASSIGN_OR_RETURN(const absl::string_view part,
                         read_(done, std::min(kAtOnce, size_ - done), &buffer));
    done += part.size();
    if (sample_ != nullptr) sample_->Add(part);
    KVC_RETURN_IF_ERROR(encoder_->Append(part, nullptr, nullptr));
  }
  return absl::OkStatus();
}

}  // namespace kvcompress
