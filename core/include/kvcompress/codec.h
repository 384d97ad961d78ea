// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What a codec is. Each lives in a folder of its own under core/codecs and is
// listed in core/codecs/registry.cc; nothing else knows codecs by name.
//
// A codec encodes the bytes of one tensor as a payload (core/FORMAT.md, section
// 5) and back, in chunks cut anywhere. The payload depends on the tensor's
// spec, the parameters and the bytes alone: not on chunking, machine or kernel.
//
// Callers choose a codec by a string, NAME[:PARAMETERS][+BYTE_COMPRESSOR]:
//   int4                      every option at its default
//   sparse:0.5,32             values of options, in the order of the schema
//   sparse:group_size=32      values by name, after any without
//   klt:ultra                 a preset, alone
//   int4:64+zstd              with a byte compressor over what the codec writes

#ifndef KVCOMPRESS_CODEC_H_
#define KVCOMPRESS_CODEC_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/codec_options.h"
#include "kvcompress/metrics.h"
#include "kvcompress/quality.h"
#include "kvcompress/rope.h"
#include "kvcompress/tensor.h"

namespace kvcompress {

class Codec;
struct TokenSums;  // internal to the library
class Workers;     // the same: threads that share the blocks of a tensor

// A codec with its parameters.
struct CodecSpec {
  const Codec* codec = nullptr;
  CodecParameters parameters;

  // The canonical codec string: "int4:64+zstd".
  std::string ToString() const;
  // The same as a manifest has it: "int4+zstd:64".
  std::string ManifestField() const;
};

// Hints from the keys of a layer for the encoder of its values. Never needed to
// decode.
struct KeyHints {
  // For each token the attention that its key promises beyond what its age
  // predicts, in octaves; empty when nothing is known.
  std::vector<float> attention;
  // How sharply attention picks tokens, in octaves: errors show more then.
  std::optional<double> sharpness;
  // The rotation that was removed from the tensor; also of one that is no key.
  std::optional<RopeFinding> rope;
  // A base of the rotation that fits keys clearly better than the declared one.
  std::optional<double> likelier_theta;
  // Whether only a lossless codec takes the tensor, key or not, which has NaN,
  // infinity or an F64 number beyond binary32.
  bool not_finite = false;
};

// What an encoder found out of a tensor that helps with those like it.
class EncoderFindings {
 public:
  virtual ~EncoderFindings() = default;
};

// Encodes one tensor. Not thread safe.
class TensorEncoder {
 public:
  virtual ~TensorEncoder() = default;

  // Takes the next bytes of the tensor. Appends payload bytes to `*payload`,
  // and the bytes that decoding will produce to `*decoded` unless it is null;
  // either may lag behind the input. INVALID_ARGUMENT, with the element's
  // index, for a value the codec refuses.
  virtual absl::Status Append(absl::string_view bytes, std::string* payload,
                              std::string* decoded) = 0;

  // Whether it measures tokens by itself (token_sums): one that holds the
  // whole tensor does, so that nobody else holds it for that.
  virtual bool measures_tokens() const { return false; }

  // Ends the tensor and appends what is left. REQUIRES: every byte of the
  // tensor was appended.
  virtual absl::Status Finish(std::string* payload, std::string* decoded) = 0;

  // Distortion of what was encoded; complete after Finish.
  virtual const DistortionAccumulator& distortion() const = 0;

  // What was measured of the tokens; known after Finish. Null where it does not
  // measure them, or the tensor has none.
  virtual const TokenSums* token_sums() const { return nullptr; }

  // Hints from keys for the encoder of their layer's values; known after
  // Finish.
  virtual KeyHints key_hints() const { return {}; }

  // What it found out for tensors like this one, EncodeHints::earlier; known
  // after Finish. Null where nothing was.
  virtual std::shared_ptr<const EncoderFindings> findings() const {
    return nullptr;
  }

  // The codec the payload is to be recorded under, where an encoder chose among
  // others; known after Finish.
  virtual const CodecSpec* chosen() const { return nullptr; }
};

// The largest block that any codec decodes to, in bytes.
inline constexpr uint64_t kMaxDecodedBlock = 2 << 20;

// What decoding a tensor takes, in bytes, whatever its payload says.
struct DecoderBounds {
  // The largest piece of output that comes whole; at most kMaxDecodedBlock.
  uint64_t block = 0;
  // What a decoder holds from one step to the next, besides what is passed in
  // and out: the payload of a block, tables, and output that it keeps for
  // later. What a step takes beyond that it releases at its end: less than
  // 32 MiB, for each thread that decodes, not for each decoder.
  uint64_t memory = 0;
};

// Decodes one tensor in steps that are bounded however far the payload expands.
// Not thread safe. Payloads are not trusted.
class TensorDecoder {
 public:
  // Whether any of the elements [begin, end) of the flattened tensor is needed.
  using Needed = std::function<bool(uint64_t begin, uint64_t end)>;

  virtual ~TensorDecoder() = default;

  // Lets the decoder return any bytes instead of blocks that are not needed,
  // instead of decoding them. To be called before Decode.
  void set_needed(Needed needed) { needed_ = std::move(needed); }

  // A step: decodes payload from the front of `*payload`, cut anywhere, takes
  // it away there, and appends to `*decoded`. `*decoded` never grows beyond
  // `most` bytes. One exception: a block that is larger than `most` is appended
  // if `*decoded` is empty. One call decodes and keeps for later at most as
  // many bytes, or one block.
  //
  // True when it stopped for that: call it again, with what `*payload` still
  // has, which may be nothing, and with space in `*decoded`. False when it
  // needs more payload: `*payload` is empty, and all that came of it was given.
  // DATA_LOSS for a payload that breaks the format. INTERNAL where steps that
  // have space for any block make no progress, so that no loop over steps is
  // without an end. REQUIRES: most > 0.
  absl::StatusOr<bool> Decode(absl::string_view* payload, size_t most,
                              std::string* decoded);

  // Instead of steps: decodes a payload that is here whole, block by block by
  // several threads, to all of `*decoded`, which is empty and has the capacity.
  // False where the payload, which may be damaged, is not for that, or not all
  // is needed; then nothing has happened, and steps say what it is. Ends with
  // the status of the checkpoint, which may be null, when that stops it.
  virtual absl::StatusOr<bool> DecodeWhole(absl::string_view, Workers*,
                                           Checkpoint*, std::string*) {
    return false;
  }

  // Instead of steps: cuts a payload that is here whole, and stays so, into
  // pieces of consecutive elements, each of as many blocks as have `size` bytes
  // decoded, or of one that is larger. Returns how many these are; 0 where the
  // payload, which may be damaged, is not for that, or not all is needed.
  // Changes nothing for steps, which say what is damaged.
  virtual size_t Cut(absl::string_view, size_t) { return 0; }
  // The first element of the piece of that index. REQUIRES: as for what
  // follows.
  virtual uint64_t PieceBegin(size_t) const { return 0; }
  // Appends what the piece of that index becomes. DATA_LOSS for one that breaks
  // the format. Thread safe. REQUIRES: index is below what Cut returned.
  virtual absl::Status DecodePiece(size_t, std::string*) const {
    return absl::InternalError("the payload was not cut");
  }

  // Ends the payload. DATA_LOSS when it is incomplete. REQUIRES: the last call
  // of Decode, if there was one, returned false.
  virtual absl::Status Finish() = 0;

 protected:
  bool needs_all() const { return !needed_; }
  bool IsNeeded(uint64_t begin, uint64_t end) const {
    return !needed_ || needed_(begin, end);
  }

  // Whether a block of `size` bytes may be appended to `decoded`.
  static bool Fits(size_t size, size_t most, const std::string& decoded) {
    return decoded.empty() || decoded.size() + size <= most;
  }

 private:
  // Decode, without the proof of progress.
  virtual absl::StatusOr<bool> DecodeStep(absl::string_view* payload,
                                          size_t most,
                                          std::string* decoded) = 0;

  Needed needed_;
  // Steps in a row that had space and changed nothing that a caller can see.
  uint32_t idle_steps_ = 0;
};

// What a caller can know of a codec; see kvcompress.v1.CodecInfo.
struct CodecTraits {
  std::string name;
  std::string description;
  std::vector<CodecOption> options;
  std::vector<std::string> presets;
  std::vector<DType> dtypes;
  bool lossless = false;
  bool streaming = false;
  // Bytes that a process grows by for each byte of a tensor, at most, where its
  // encoder is not streaming; elements of one byte count as two. Measured on
  // 32 MiB of BF16 by tests/fault/test_encoder_memory.py.
  uint64_t tensor_memory = 2;
  bool fixed_size = false;
  bool role_aware = false;
  bool weighs_tokens = false;
  bool takes_key_hints = false;  // EncodeHints::from_keys
  bool couples_heads = false;

  bool Takes(DType dtype) const {
    return std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end();
  }
  // Sets `dtypes` to what most codecs take.
  void TakesNumbers() {
    const absl::Span<const DType> numbers = NumberDTypes();
    dtypes.assign(numbers.begin(), numbers.end());
  }
};

// How much time an encoder may take to make less of a tensor at the same
// quality. Does not affect decoding.
enum class Effort {
  kFast,      // leave out what takes many times the time of `ecsq`
  kBalanced,  // the default
  kBest,
};

// Memory that the encoders of a stream take over from one another, tensor by
// tensor: pages that the system gives anew cost about a third of the time of
// `ecsq`. Each takes what it needs and puts it back at its end; what is in them
// means nothing. Not thread safe.
struct EncoderBuffers {
  // Of a tensor.
  std::string source;
  std::string decoded;
  std::string payload;
  // Of a block.
  std::vector<float> values;
  std::vector<int32_t> quanta;
  std::vector<uint16_t> symbols;
  std::vector<uint16_t> words;
};

// Optional hints for the encoder of a tensor, beyond its spec. Never needed to
// decode.
struct EncodeHints {
  // Bounds the result should hold, for codecs that choose by quality.
  QualityThresholds thresholds;
  // Base of the rotary position embedding that keys carry, such as 10000;
  // 0 says that they carry none. Codecs that care find out when it is not set.
  std::optional<double> rope_theta;
  // All that is known of that embedding; goes before `rope_theta`.
  std::shared_ptr<const RopeParameters> rope;
  Effort effort = Effort::kBalanced;
  // For each token how much attention it is likely to get, in octaves above any
  // level common to all; empty when nothing is known. For codecs that spend
  // more on what is looked at more (CodecTraits::weighs_tokens).
  std::vector<float> attention;
  // What TensorEncoder::key_hints returned for the keys of the layer.
  KeyHints from_keys;
  // The whole tensor, where the caller has it: the encoder is given its bytes
  // all the same, but need not copy them. Else empty. Outlives the encoder.
  absl::string_view source;
  // To work in; null, or outlives the encoder.
  EncoderBuffers* buffers = nullptr;
  // Of the codec's encoder (Codec::learns) of an earlier tensor of the same
  // role, type and shape; null for none.
  std::shared_ptr<const EncoderFindings> earlier;
  // Whether anybody wants to know TensorEncoder::token_sums.
  bool measures_tokens = true;
  // Threads to share blocks among; null for none, or outlives the encoder.
  Workers* workers = nullptr;
  // Looked at every few milliseconds by an encoder, which returns its status
  // when it stops; null, or outlives the encoder.
  Checkpoint* checkpoint = nullptr;
};

// A codec. Stateless and thread safe; lives as long as the program.
class Codec {
 public:
  virtual ~Codec() = default;

  virtual const CodecTraits& traits() const = 0;

  // Itself, or the codec that a byte compressor comes after.
  virtual const Codec& base() const { return *this; }

  // The name of that byte compressor; empty for none.
  virtual absl::string_view byte_compressor() const { return ""; }

  // Reads PARAMETERS of a codec string by the codec's schema; empty text stands
  // for defaults. INVALID_ARGUMENT, saying what the option takes.
  virtual absl::StatusOr<CodecParameters> Parse(
      absl::string_view text) const = 0;

  // Parameters that between them reach every path worth a self-test.
  virtual std::vector<std::string> SelfTestParameters() const { return {""}; }

  // Parameters that `auto` tries at an effort, in rows from the finest to the
  // coarsest: once one does not hold the thresholds, the rest of its row is not
  // tried. None leaves the codec out.
  using Candidates = std::vector<std::vector<std::string>>;
  virtual Candidates AutoCandidates(Effort) const { return {}; }

  // Most bytes of the codec field that a manifest may need for these
  // parameters; more than that of the codec itself only where an encoder
  // chooses.
  virtual size_t MaxFieldSize(const CodecParameters& parameters) const {
    const absl::string_view text = parameters.text();
    return traits().name.size() + (text.empty() ? 0 : 1) + text.size();
  }

  // `parameters` below are those that Parse returned.

  // What a decoder of such a tensor takes. The errors of NewDecoder.
  virtual absl::StatusOr<DecoderBounds> BoundsOfDecoder(
      const TensorSpec& spec, const CodecParameters& parameters) const = 0;

  // Whether a decoder holds a whole tensor before it returns any of it.
  virtual bool decoder_holds_tensor() const { return false; }

  // Whether its encoders and decoders share blocks among threads:
  // EncodeHints::workers, TensorDecoder::DecodeWhole.
  virtual bool shares_blocks() const { return false; }

  // Whether its encoders and decoders are about as fast as memory is copied.
  // More threads then only copy more, but where small tensors are encoded.
  virtual bool at_memory_speed() const { return false; }

  // Whether its encoders support a warm start from those of earlier tensors:
  // TensorEncoder::findings.
  virtual bool learns() const { return false; }

  // Whether payloads are recorded under this codec's name.
  virtual bool stored() const { return true; }

  // Whether several tensors share a payload (core/FORMAT.md, "klt-profile").
  // Then MaxEncodedSize is what a tensor adds to the bound of the payload, and
  // the pipeline encodes and decodes: the last three functions return an error.
  virtual bool coded_in_groups() const { return false; }

  // The largest payload of a tensor of this spec, in bytes; the exact size when
  // traits().fixed_size.
  virtual absl::StatusOr<uint64_t> MaxEncodedSize(
      const TensorSpec& spec, const CodecParameters& parameters) const = 0;

  virtual absl::StatusOr<std::unique_ptr<TensorEncoder>> NewEncoder(
      const TensorSpec& spec, const CodecParameters& parameters,
      const EncodeHints& hints) const = 0;

  virtual absl::StatusOr<std::unique_ptr<TensorDecoder>> NewDecoder(
      const TensorSpec& spec, const CodecParameters& parameters) const = 0;
};

// Every codec without a byte compressor, in the order of the registry.
absl::Span<const Codec* const> AllCodecs();

// Joins the parts of a codec string; parameters and byte compressor may be
// empty.
std::string CodecString(absl::string_view name, absl::string_view parameters,
                        absl::string_view byte_compressor = "");

// The byte compressors that a codec string may name.
const std::vector<std::string>& ByteCompressors();

// Reads a codec string. INVALID_ARGUMENT, with the field options.codec, for one
// that this build does not take.
absl::StatusOr<CodecSpec> ParseCodec(absl::string_view text);

// Reads the codec field of a manifest. INVALID_ARGUMENT when this build does
// not know the codec, or would write the field otherwise.
absl::StatusOr<CodecSpec> ParseManifestField(absl::string_view text);

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODEC_H_
