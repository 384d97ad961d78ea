// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/tensor_encoding.h"

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

std::unique_ptr<EncoderBuffers> BufferPool::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (free_.empty()) return std::make_unique<EncoderBuffers>();
  std::unique_ptr<EncoderBuffers> buffers = std::move(free_.back());
  free_.pop_back();
  return buffers;
}

void BufferPool::PutBack(std::unique_ptr<EncoderBuffers> buffers) {
  const std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(std::move(buffers));
}

EncodeJob::EncodeJob(const ArtefactTensor& tensor, uint64_t size,
                     EncodeHints hints, bool wants_decoded,
                     StillWanted still_wanted, BufferPool* pool,
                     SpareStrings* spares, JobQueue* queue)
    : tensor_(tensor),
      hints_(std::move(hints)),
      wants_decoded_(wants_decoded),
      still_wanted_(std::move(still_wanted)),
      pool_(pool),
      spares_(spares),
      queue_(queue),
      source_(spares->taken.Take()) {
  Reserve(size, &source_);
}

void EncodeJob::Run() {
  Checkpoint checkpoint = queue_->CheckpointOf(still_wanted_);
  std::unique_ptr<EncoderBuffers> buffers = pool_->Take();
  status_ = Encode(&checkpoint, buffers.get());
  pool_->PutBack(std::move(buffers));
  keys_.reset();
  teacher_.reset();
  hints_.earlier.reset();
  spares_->taken.PutBack(&source_);
}

absl::Status EncodeJob::Encode(Checkpoint* checkpoint,
                               EncoderBuffers* buffers) {
  if (keys_ != nullptr) {
    hints_.from_keys.attention = keys_->outcome().told.attention;
  }
  if (teacher_ != nullptr) hints_.earlier = teacher_->outcome().findings;
  hints_.source = source_;
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
    Reserve(source_.size(), &outcome_.decoded);
  }
  for (absl::string_view left = source_; !left.empty();) {
    if (Stops(checkpoint)) return checkpoint->status();
    const absl::string_view part = left.substr(0, kAtOnce);
    left.remove_prefix(part.size());
    KVC_RETURN_IF_ERROR(encoding.Append(part, &outcome_.payload, decoded));
  }
  KVC_RETURN_IF_ERROR(encoding.Finish(&outcome_.payload, decoded));
  outcome_.digest = encoding.digest();
  outcome_.told = encoding.encoder().key_hints();
  outcome_.findings = encoding.encoder().findings();
  if (const CodecSpec* chosen = encoding.encoder().chosen()) {
    outcome_.chosen = *chosen;
  }
  outcome_.distortion = encoding.encoder().distortion();
  outcome_.tokens = encoding.TokensOf();
  return absl::OkStatus();
}

}  // namespace kvcompress
