// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "server_info_rpc.h"

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "admission.h"
#include "convert.h"
#include "kvcompress/kernels.h"
#include "kvcompress/version.h"
#include "request.h"
#include "stream_reactor.h"

namespace kvcompress {
namespace {

// A stream holds one request and one response at most. The copy that a message
// is parsed from is as large as the message, and a slice of a request produces
// at most 4 MiB.
uint64_t StreamMemory(const ServiceOptions& options) {
  return 4 * options.max_message_bytes;
}

double SecondsOrNone(absl::Duration duration) {
  return duration == absl::InfiniteDuration() ? 0
                                              : absl::ToDoubleSeconds(duration);
}

}  // namespace

void FillServerInfo(const ServiceOptions& options, bool to_local,
                    v1::GetServerInfoResponse* response) {
  constexpr uint64_t kRecommendedChunk = 1 << 20;
  response->set_version(kVersion);
  response->set_api_version(kApiVersion);
  response->set_format_version(kFormatVersion);
  response->set_min_format_version(kMinFormatVersion);
  response->set_kernels(std::string(ActiveKernels()));
  v1::ServerLimits& limits = *response->mutable_limits();
  limits.set_max_message_bytes(options.max_message_bytes);
  limits.set_recommended_chunk_bytes(kRecommendedChunk);
  limits.set_max_header_bytes(options.max_header_bytes);
  limits.set_max_rank(kMaxRank);
  limits.set_max_labels(kMaxLabels);
  limits.set_max_tensor_bytes(options.max_tensor_bytes);
  limits.set_max_stream_memory_bytes(StreamMemory(options));
  limits.set_memory_budget_bytes(options.memory_budget_bytes);
  limits.set_min_stream_memory_bytes(kStreamBytes);
  limits.set_stall_seconds(SecondsOrNone(options.time.stall));
  limits.set_max_call_seconds(SecondsOrNone(options.time.call));
  limits.set_max_tensors(kMaxTensors);
  limits.set_max_metadata_entries(kMaxMetadata);
  limits.set_max_patterns(kMaxPatterns);
  limits.set_max_attention_layers(kMaxAttentionLayers);
  limits.set_max_attention_values(kMaxAttentionValues);
  limits.set_max_empty_messages(kMaxEmptyRequests);
  limits.set_max_connections(static_cast<uint32_t>(options.connections.total));
  limits.set_max_connections_per_host(
      static_cast<uint32_t>(options.connections.per_host));
  if (options.profiles != nullptr && options.profiles->max_bytes() != 0) {
    limits.set_max_profile_bytes(options.profiles->max_bytes());
    limits.set_max_profiles(kMaxProfiles);
  }
  const std::shared_ptr<const ProfileSet> profiles = options.CurrentProfiles();
  for (const LoadedProfile& loaded : profiles->loaded()) {
    *response->add_profiles() = ToProto(loaded);
  }
  for (const Codec* codec : AllCodecs()) {
    *response->add_codecs() = ToProto(codec->traits());
  }
  for (const std::string& name : ByteCompressors()) {
    response->add_byte_compressors(name);
  }
  if (to_local && options.shared_directory != nullptr) {
    v1::SharedDirectory& directory = *response->mutable_shared_directory();
    directory.set_path(options.shared_directory->path());
    directory.set_device(options.shared_directory->device());
    directory.set_inode(options.shared_directory->inode());
  }
}

}  // namespace kvcompress
