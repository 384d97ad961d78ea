// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Profile files and the payloads of groups: refused, or read. A profile that is
// read is in its one form; a payload that is read gives all of its tensors.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "input.h"
#include "kvcompress/profile.h"
#include "profile/group_decoder.h"
#include "profile/group_format.h"
#include "profile/member_restorer.h"

namespace kvcompress::fuzz {
namespace {

constexpr size_t kComponents = 40;
constexpr uint64_t kChannels = 24;

// Keys of a layer, whose first channels are turned, and its values.
std::shared_ptr<const Profile> SmallProfile() {
  ProfileContent content;
  content.label = "fuzz";
  content.presets = {{"a", 0.5f}, {"b", 2.0f}};
  content.rotations = {{.interleaved = true,
                        .increments = std::vector<uint64_t>(8, 1ull << 60)}};
  ProfileGroup group;
  group.tensors = {
      {.role = TensorRole::kKey,
       .heads = 2,
       .channels = kChannels,
       .rotation = 0},
      {.role = TensorRole::kValue, .heads = 1, .channels = kChannels}};
  const size_t n = 3 * kChannels;
  group.components = kComponents;
  group.means.assign(n, 0.25f);
  group.scales.assign(n, 0x1p-15f);
  for (size_t i = 0; i < n * kComponents; ++i) {
    group.decode.push_back(static_cast<int16_t>(i * 7919 % 65535 - 32767));
  }
  for (size_t i = 0; i < 2 * kComponents; ++i) {
    group.classes.push_back(static_cast<uint8_t>(i * 5 % 72));
  }
  content.groups = {group};
  const absl::StatusOr<std::string> bytes = SerializeProfile(content);
  Require(bytes.ok(), "the profile of the fuzzer is one");
  return *Profile::Parse(*bytes);
}

void FuzzPayload(Input input) {
  static const auto* const profile =
      new std::shared_ptr<const Profile>(SmallProfile());
  profile::GroupShape shape;
  shape.batches = 1 + input.UpTo(1);
  shape.tokens = 1 + input.UpTo(70);
  shape.dtypes = {NumberDTypes()[input.UpTo(NumberDTypes().size() - 1)],
                  DType::kBF16};
  const auto quanta =
      profile::GroupQuanta::Parse(input.rest(), *profile, 0, shape,
                                  /*checkpoint=*/nullptr);
  if (!quanta.ok()) return;
  for (size_t member = 0; member < shape.dtypes.size(); ++member) {
    profile::MemberRestorer restorer(*quanta, member);
    std::string elements(
        shape.tokens * kChannels * DTypeSize(shape.dtypes[member]), '\0');
    for (uint64_t head = 0; head < shape.batches * restorer.heads(); ++head) {
      restorer.Restore(head / restorer.heads(), head % restorer.heads(), 0,
                       shape.tokens,
                       reinterpret_cast<uint8_t*>(elements.data()));
    }
  }
}

void FuzzFile(Input input) {
  const auto profile = Profile::Parse(input.rest());
  if (!profile.ok()) return;
  Require(SerializeProfile((*profile)->content()).value() == input.rest(),
          "a profile has one form");
}

}  // namespace
}  // namespace kvcompress::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvcompress::fuzz::Input input(data, size);
  if (input.Byte() % 2 == 0) {
    kvcompress::fuzz::FuzzFile(input);
  } else {
    kvcompress::fuzz::FuzzPayload(input);
  }
  return 0;
}
