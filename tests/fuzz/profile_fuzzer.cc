// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Profile files and the payloads of groups: refused, or read. A profile that is
// read is in its one form; a payload that is read yields all of its tensors.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "input.h"
#include "kvcompress/profile.h"
#include "profile/group_decoder.h"
#include "profile/group_format.h"
#include "profile/member_restorer.h"
#include "small_profile.h"

namespace kvcompress::fuzz {
namespace {

void FuzzPayload(Input input) {
  profile::GroupShape shape;
  shape.batches = 1 + input.UpTo(1);
  shape.tokens = 1 + input.UpTo(70);
  shape.exact = input.UpTo(1) == 1;
  shape.dtypes = {NumberDTypes()[input.UpTo(NumberDTypes().size() - 1)],
                  DType::kBF16};
  if (shape.exact) shape.dtypes[0] = DType::kF16;
  const auto quanta =
      profile::GroupQuanta::Parse(input.rest(), SmallProfile(), 0, shape,
                                  /*checkpoint=*/nullptr);
  if (!quanta.ok()) return;
  for (size_t member = 0; member < shape.dtypes.size(); ++member) {
    profile::MemberRestorer restorer(*quanta, member);
    std::string elements(
        shape.tokens * kChannels * DTypeSize(shape.dtypes[member]), '\0');
    for (uint64_t head = 0; head < shape.batches * restorer.heads(); ++head) {
      const absl::Status status = restorer.Restore(
          head / restorer.heads(), head % restorer.heads(), 0, shape.tokens,
          reinterpret_cast<uint8_t*>(elements.data()));
      Require(status.ok() || absl::IsDataLoss(status), "residuals are damaged");
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
