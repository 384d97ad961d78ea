// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A profile: what is known of a model's caches beforehand, trained once and
// used by every encoder and decoder (core/FORMAT.md, "Profiles"). It holds
// groups of tensors that are transformed together, the bases they are coded
// in, and the steps of the presets. It is identified by the SHA-256 of its
// bytes.

#ifndef KVCOMPRESS_PROFILE_H_
#define KVCOMPRESS_PROFILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/tensor.h"

namespace kvcompress {

// The largest profile that is read, in bytes.
inline constexpr uint64_t kMaxProfileBytes = uint64_t{1} << 30;
inline constexpr size_t kMaxProfileLabel = 256;
// Of a block of what a profile codes, in tokens.
inline constexpr uint32_t kLeastBlockTokens = 16;
inline constexpr uint32_t kMaxBlockTokens = 256;
inline constexpr size_t kMaxProfileTraining = 4096;
inline constexpr size_t kMaxProfileRotations = 64;
inline constexpr size_t kMaxProfileGroups = 4096;
inline constexpr size_t kMaxProfilePresets = 16;
inline constexpr size_t kMaxProfileCaches = 4096;
inline constexpr size_t kMaxGroupTensors = 1024;
inline constexpr uint64_t kMaxGroupChannels = 65536;
inline constexpr uint64_t kMaxGroupComponents = 8192;
inline constexpr uint64_t kMaxProfileHeadDim = 4096;

// A rotary position embedding: the angle per token of each pair of channels.
struct ProfileRotation {
  // Pair p is the channels (2p, 2p + 1); else (p, p + the number of pairs).
  // Channels beyond the pairs are not rotated.
  bool interleaved = false;
  std::vector<uint64_t> increments;  // in turns of 2^64
};

// One member of a group: [.., heads, tokens, channels] of a layer and a role.
struct ProfileTensor {
  TensorRole role = TensorRole::kKey;
  uint32_t layer = 0;
  uint64_t heads = 0;
  uint64_t channels = 0;           // of a head
  std::optional<size_t> rotation;  // index of ProfileContent::rotations

  uint64_t width() const { return heads * channels; }
};

// Tensors that share tokens. The channels of a token are those of the tensors
// one after the other, of each its heads.
struct ProfileGroup {
  std::vector<ProfileTensor> tensors;
  size_t components = 0;
  std::vector<float> means;     // of each channel
  std::vector<float> scales;    // of each channel: what a unit of `decode` is
  std::vector<int16_t> decode;  // [components, channels]
  // Where not empty, what projects to components instead of `decode`, and the
  // factor of each channel before it.
  std::vector<int16_t> encode;
  std::vector<float> encode_scales;
  std::vector<uint8_t> classes;  // [presets, components]

  size_t channels() const { return means.size(); }
};

// What training measured of a preset, on text that it did not train on. Each
// number but shares is above 0, and all are at most kMaxExpectation.
struct ProfileExpectation {
  float ratio = 0;  // of a cache's bytes to its artefact's
  // Kullback-Leibler divergence of the model's predictions after the preset,
  // and after int4, in nats a token.
  float divergence = 0;
  float int4_divergence = 0;
  // A share is the divergence divided by that after int4. `least_share` is that
  // of the best kind of text. `most_share` is the highest bound of a kind: its
  // share plus 1.65 standard errors, or one in profiles of earlier versions.
  // Both are 0 if kinds were not measured.
  float least_share = 0;
  float most_share = 0;
};
inline constexpr float kMaxExpectation = 0x1p20f;

// The preset that keeps every tensor within bounds, where a profile has it.
inline constexpr absl::string_view kContractPreset = "contract";

struct ProfilePreset {
  std::string name;  // [a-z0-9-], 1 to 32 bytes
  float step = 0;
  std::optional<ProfileExpectation> expected;  // of all presets, or of none
};

struct ProfileContent {
  std::string label;     // of the model, 1 to kMaxProfileLabel bytes of UTF-8
  std::string training;  // how it was trained; UTF-8
  std::vector<ProfilePreset> presets;
  std::vector<ProfileRotation> rotations;
  std::vector<ProfileGroup> groups;
  // MarkOfCache of the caches that it was trained on, the first
  // kMaxProfileCaches of them, in order. Empty where that is not known.
  std::vector<std::string> caches;
};

// What caches of a training are recognised by: the digest of the artefact
// format, over the bytes of the tensor that is first in the first group.
std::string MarkOfCache(absl::string_view tensor);

// What an artefact says of the profile that it needs.
struct ProfileId {
  std::string digest;  // "sha256:" and 64 hexadecimal digits
  std::string label;
};

// What a report says of it.
struct ProfileUse {
  ProfileId id;
  uint64_t tensors = 0;  // that are coded with it
  // The position of the first token in its text, as it was declared or found.
  // Of compression, where there are tokens.
  std::optional<uint64_t> first_token;
  // How well keys fit it there: about 1 for those of the model, about 0 for
  // others; of the group that fits least. Of compression, where the profile
  // knows the mean of keys.
  std::optional<double> fit;
  // Of the preset, where the profile has it. Of compression.
  std::optional<ProfilePreset> preset;
};

// Immutable and thread safe.
class Profile {
 public:
  // Reads a profile file, which is not trusted. DATA_LOSS for one that breaks
  // the format, UNIMPLEMENTED for a later version, OUT_OF_RANGE above
  // kMaxProfileBytes.
  static absl::StatusOr<std::shared_ptr<const Profile>> Parse(
      absl::string_view bytes);

  const ProfileContent& content() const { return content_; }
  const ProfileId& id() const { return id_; }
  // About the memory that it holds, in bytes.
  uint64_t memory() const { return memory_; }

  // The group and the place in it of a layer and a role.
  struct Place {
    size_t group = 0;
    size_t tensor = 0;
  };
  std::optional<Place> Find(TensorRole role, uint32_t layer) const;
  // The index of a preset.
  std::optional<size_t> FindPreset(absl::string_view name) const;

 private:
  Profile(ProfileContent content, ProfileId id, uint64_t memory)
      : content_(std::move(content)), id_(std::move(id)), memory_(memory) {}

  const ProfileContent content_;
  const ProfileId id_;
  const uint64_t memory_;
};

// The bytes of a profile file. INVALID_ARGUMENT for content that breaks a rule
// of the format.
absl::StatusOr<std::string> SerializeProfile(const ProfileContent& content);

// Whether this is the text of ProfileId::digest.
bool IsProfileDigest(absl::string_view text);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PROFILE_H_
