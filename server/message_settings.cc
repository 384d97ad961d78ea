// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "message_settings.h"

namespace kvcompress {

void SetMessages(uint64_t max_bytes, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(static_cast<int>(max_bytes));
  builder->SetMaxSendMessageSize(-1);
  // Calls that use these are ended, and none is in `grpc-accept-encoding`...
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  // ...and as that comes when a message may be there already, nothing inflates.
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
}

}  // namespace kvcompress
