// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/last_stage/last_stage.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

// Bytes of the inner payload in every chunk but the last.
constexpr size_t kChunk = 128 << 10;
constexpr size_t kHeader = 8;
// A chunk is at least this part of what it holds, so that a payload cannot ask
// for much more work than its size pays for.
constexpr size_t kMaxGain = 4;

// Bytes that follow the header of a chunk.
size_t BodySize(size_t size, size_t compressed) {
  return std::max(compressed, (size + kMaxGain - 1) / kMaxGain);
}

void AppendNumber(uint32_t number, std::string* out) {
  char bytes[sizeof(number)];
  std::memcpy(bytes, &number, sizeof(number));
  out->append(bytes, sizeof(bytes));
}

uint32_t ReadNumber(absl::string_view bytes, size_t position) {
  uint32_t number;
  std::memcpy(&number, bytes.data() + position, sizeof(number));
  return number;
}

class Encoder : public TensorEncoder {
 public:
  Encoder(std::unique_ptr<TensorEncoder> inner,
          const ByteCompressor& compressor, StageAfter stage_after,
          Checkpoint* checkpoint)
      : inner_(std::move(inner)),
        compressor_(compressor),
        stage_after_(std::move(stage_after)),
        checkpoint_(checkpoint) {}

  absl::Status Append(absl::string_view bytes, std::string* payload,
                      std::string* decoded) override {
    KVC_RETURN_IF_ERROR(inner_->Append(bytes, &pending_, decoded));
    Flush(kChunk, payload);
    return StatusOf(checkpoint_);
  }

  absl::Status Finish(std::string* payload, std::string* decoded) override {
    KVC_RETURN_IF_ERROR(inner_->Finish(&pending_, decoded));
    // At once: what is there would move as often as it grows.
    payload->reserve(payload->size() + pending_.size() +
                     (pending_.size() / kChunk + 1) * kHeader);
    Flush(1, payload);
    KVC_RETURN_IF_ERROR(StatusOf(checkpoint_));
    if (const CodecSpec* chosen = inner_->chosen(); chosen != nullptr) {
      chosen_ = {stage_after_(*chosen->codec), chosen->parameters};
    }
    return absl::OkStatus();
  }

  const DistortionAccumulator& distortion() const override {
    return inner_->distortion();
  }

  bool measures_tokens() const override { return inner_->measures_tokens(); }

  const TokenSums* token_sums() const override { return inner_->token_sums(); }

  KeyHints key_hints() const override { return inner_->key_hints(); }

  const CodecSpec* chosen() const override {
    return chosen_ ? &*chosen_ : nullptr;
  }

 private:
  // Writes chunks as long as there are `least` bytes for one.
  void Flush(size_t least, std::string* payload) {
    size_t begin = 0;
    while (pending_.size() - begin >= least && !Stops(checkpoint_)) {
      const absl::string_view part =
          absl::string_view(pending_).substr(begin, kChunk);
      begin += part.size();
      const bool smaller = compressor_.compress(part, &compressed_);
      const absl::string_view body = smaller ? compressed_ : part;
      AppendNumber(static_cast<uint32_t>(part.size()), payload);
      AppendNumber(static_cast<uint32_t>(body.size()), payload);
      payload->append(body.data(), body.size());
      payload->append(BodySize(part.size(), body.size()) - body.size(), '\0');
    }
    pending_.erase(0, begin);
  }

  const std::unique_ptr<TensorEncoder> inner_;
  const ByteCompressor& compressor_;
  const StageAfter stage_after_;
  Checkpoint* const checkpoint_;
  std::string pending_;  // payload of the inner codec
  std::string compressed_;
  std::optional<CodecSpec> chosen_;
};

class Decoder : public TensorDecoder {
 public:
  Decoder(std::string tensor, std::unique_ptr<TensorDecoder> inner,
          const ByteCompressor& compressor)
      : tensor_(std::move(tensor)),
        inner_(std::move(inner)),
        compressor_(compressor) {
    inner_->set_needed(
        [this](uint64_t begin, uint64_t end) { return IsNeeded(begin, end); });
  }

  absl::StatusOr<bool> DecodeStep(absl::string_view* payload, size_t most,
                                  std::string* decoded) override {
    while (true) {
      if (in_chunk_) {
        KVC_ASSIGN_OR_RETURN(in_chunk_, inner_->Decode(&chunk_, most, decoded));
        if (in_chunk_) return true;
        pending_.clear();
      }
      if (payload->empty()) return false;
      const absl::string_view part =
          payload->substr(0, wanted_ - pending_.size());
      pending_.reserve(kHeader + kChunk);
      pending_.append(part.data(), part.size());
      payload->remove_prefix(part.size());
      if (pending_.size() < wanted_) return false;
      KVC_RETURN_IF_ERROR(wanted_ == kHeader ? TakeHeader() : TakeChunk());
    }
  }

  absl::Status Finish() override {
    if (!pending_.empty()) {
      return Damaged(absl::StrCat("the payload ends within chunk ", chunks_));
    }
    return inner_->Finish();
  }

 private:
  absl::Status TakeHeader() {
    if (last_) return Damaged("bytes follow the last chunk");
    size_ = ReadNumber(pending_, 0);
    compressed_size_ = ReadNumber(pending_, 4);
    if (size_ == 0 || size_ > kChunk || compressed_size_ == 0 ||
        compressed_size_ > size_) {
      return Damaged(
          absl::StrCat("the sizes of chunk ", chunks_, " break a rule"));
    }
    last_ = size_ < kChunk;
    wanted_ = kHeader + BodySize(size_, compressed_size_);
    return absl::OkStatus();
  }

  // Sets what the inner codec is to decode next.
  absl::Status TakeChunk() {
    absl::string_view body = absl::string_view(pending_).substr(kHeader);
    const absl::string_view padding = body.substr(compressed_size_);
    body = body.substr(0, compressed_size_);
    if (padding.find_first_not_of('\0') != absl::string_view::npos) {
      return Damaged(
          absl::StrCat("the padding of chunk ", chunks_, " is not zero"));
    }
    if (body.size() < size_) {
      plain_.resize(size_);
      const absl::Status status =
          compressor_.decompress(body, size_, plain_.data());
      if (!status.ok()) {
        return Damaged(absl::StrCat("chunk ", chunks_, ": ", status.message()));
      }
      body = plain_;
    }
    chunk_ = body;
    in_chunk_ = true;
    ++chunks_;
    wanted_ = kHeader;
    return absl::OkStatus();
  }

  absl::Status Damaged(absl::string_view message) const {
    return MakeError(absl::StatusCode::kDataLoss, message,
                     {.reason = "PAYLOAD_DAMAGED", .tensor = tensor_});
  }

  const std::string tensor_;
  const std::unique_ptr<TensorDecoder> inner_;
  const ByteCompressor& compressor_;
  std::string pending_;  // a header or a chunk that is not whole yet
  size_t wanted_ = kHeader;
  size_t size_ = 0;             // of the chunk, as the inner codec wrote it
  size_t compressed_size_ = 0;  // of the chunk
  bool last_ = false;           // whether it is the last
  uint64_t chunks_ = 0;         // before it
  std::string plain_;
  // What the inner codec has not taken yet of the chunk, which is in one of
  // these two; and whether there may be more of it to decode.
  absl::string_view chunk_;
  bool in_chunk_ = false;
};

class LastStage : public Codec {
 public:
  LastStage(const Codec& inner, const ByteCompressor& compressor,
            StageAfter stage_after)
      : inner_(inner),
        compressor_(compressor),
        stage_after_(std::move(stage_after)),
        traits_(inner.traits()) {
    absl::StrAppend(&traits_.name, "+", compressor.name);
    traits_.fixed_size = false;
  }

  const CodecTraits& traits() const override { return traits_; }

  const Codec& base() const override { return inner_; }

  absl::string_view byte_compressor() const override {
    return compressor_.name;
  }

  absl::StatusOr<CodecParameters> Parse(absl::string_view text) const override {
    return inner_.Parse(text);
  }

  std::vector<std::string> SelfTestParameters() const override {
    return inner_.SelfTestParameters();
  }

  size_t MaxFieldSize(const CodecParameters& parameters) const override {
    return inner_.MaxFieldSize(parameters) + 1 + strlen(compressor_.name);
  }

  bool decoder_holds_tensor() const override {
    return inner_.decoder_holds_tensor();
  }

  bool stored() const override { return inner_.stored(); }

  absl::StatusOr<uint64_t> MaxEncodedSize(
      const TensorSpec& spec,
      const CodecParameters& parameters) const override {
    KVC_ASSIGN_OR_RETURN(const uint64_t size,
                         inner_.MaxEncodedSize(spec, parameters));
    return size + (size / kChunk + (size % kChunk != 0)) * kHeader;
  }

  absl::StatusOr<std::unique_ptr<TensorEncoder>> NewEncoder(
      const TensorSpec& spec, const CodecParameters& parameters,
      const EncodeHints& hints) const override {
    KVC_ASSIGN_OR_RETURN(std::unique_ptr<TensorEncoder> encoder,
                         inner_.NewEncoder(spec, parameters, hints));
    return std::make_unique<Encoder>(std::move(encoder), compressor_,
                                     stage_after_, hints.checkpoint);
  }

  absl::StatusOr<std::unique_ptr<TensorDecoder>> NewDecoder(
      const TensorSpec& spec,
      const CodecParameters& parameters) const override {
    KVC_ASSIGN_OR_RETURN(std::unique_ptr<TensorDecoder> decoder,
                         inner_.NewDecoder(spec, parameters));
    return std::make_unique<Decoder>(spec.name, std::move(decoder),
                                     compressor_);
  }

  // With a chunk, as it came and decompressed.
  absl::StatusOr<DecoderBounds> BoundsOfDecoder(
      const TensorSpec& spec,
      const CodecParameters& parameters) const override {
    KVC_ASSIGN_OR_RETURN(DecoderBounds bounds,
                         inner_.BoundsOfDecoder(spec, parameters));
    bounds.memory += kHeader + kChunk + kChunk;
    return bounds;
  }

 private:
  const Codec& inner_;
  const ByteCompressor& compressor_;
  const StageAfter stage_after_;
  CodecTraits traits_;
};

}  // namespace

std::unique_ptr<Codec> NewLastStage(const Codec& inner,
                                    const ByteCompressor& compressor,
                                    StageAfter stage_after) {
  return std::make_unique<LastStage>(inner, compressor, std::move(stage_after));
}

}  // namespace kvcompress
