// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The client against the real service, and against one that breaks the
// protocol.

#include "kvcompress/client.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "client/cpp/transfer.h"
#include "embedded.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcompress/error.h"
#include "kvcompress/file_source.h"
#include "temp_dir.h"

namespace kvcompress {
namespace {

using testing::HasSubstr;

constexpr char kSample[] =
    KVCOMPRESS_TEST_DATA "/smollm2_kjv_96_bf16.safetensors";

class StringSource : public ByteSource {
 public:
  explicit StringSource(std::string text) : text_(std::move(text)) {}

  absl::StatusOr<size_t> Read(absl::Span<char> buffer) override {
    const size_t size = text_.copy(buffer.data(), buffer.size(), position_);
    position_ += size;
    return size;
  }
  void Cancel() override {}

 private:
  const std::string text_;
  size_t position_ = 0;
};

// Waits until it is cancelled, as an idle pipe would.
class IdleSource : public ByteSource {
 public:
  absl::StatusOr<size_t> Read(absl::Span<char>) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return cancelled_; });
    return absl::CancelledError("idle");
  }
  void Cancel() override {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false;
};

class FailingSource : public ByteSource {
 public:
  absl::StatusOr<size_t> Read(absl::Span<char>) override {
    return absl::UnknownError("read x: input/output error");
  }
  void Cancel() override {}
};

class StringSink : public ByteSink {
 public:
  absl::Status WriteAt(uint64_t offset, absl::string_view bytes) override {
    if (text_.size() < offset + bytes.size()) {
      text_.resize(offset + bytes.size());
    }
    text_.replace(offset, bytes.size(), bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class FullSink : public ByteSink {
 public:
  absl::Status WriteAt(uint64_t, absl::string_view) override {
    return absl::ResourceExhaustedError("write x: no space left on device");
  }
};

class ClientTest : public testing::Test {
 protected:
  void SetUp() override {
    auto server = EmbeddedServer::Start();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = std::make_unique<Client>(server_->channel());
    auto sample = FileSource::Open(kSample);
    ASSERT_TRUE(sample.ok()) << sample.status();
    sample_ = *std::move(sample);
  }

  std::unique_ptr<EmbeddedServer> server_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<FileSource> sample_;
};

TEST_F(ClientTest, RoundTrip) {
  StringSink artefact, reconstructed, restored;
  v1::CompressOptions options;
  options.set_reconstruct(true);
  const auto compressed =
      client_->Compress(options, sample_.get(), &artefact, &reconstructed);
  ASSERT_TRUE(compressed.ok()) << compressed.status();
  EXPECT_EQ(compressed->compressed_size_bytes(), artefact.text().size());
  StringSource source(artefact.text());
  const auto report = client_->Decompress({}, &source, &restored);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->payload_digest(), compressed->payload_digest());
  EXPECT_EQ(restored.text(), reconstructed.text());
}

TEST_F(ClientTest, MeasureReportsWhatCompressDoes) {
  const auto measured = client_->Measure({}, sample_.get());
  ASSERT_TRUE(measured.ok()) << measured.status();
  const auto again = FileSource::Open(kSample);
  const auto compressed = client_->Compress({}, again->get(), nullptr);
  ASSERT_TRUE(compressed.ok()) << compressed.status();
  EXPECT_EQ(measured->payload_digest(), compressed->payload_digest());
  EXPECT_EQ(measured->metrics().snr_db(), compressed->metrics().snr_db());
}

TEST_F(ClientTest, ServerInfoAndSelfTest) {
  const auto info = client_->GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->api_version(), "v1");
  const auto result = client_->SelfTest();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->passed());
}

TEST_F(ClientTest, ANamedOutputReplacesNeitherItsInputNorAnotherFile) {
  const TempDir dir;
  const std::string input = dir.Path("in");
  std::filesystem::copy_file(kSample, input);
  std::filesystem::create_hard_link(input, dir.Path("hard"));
  dir.Write("theirs", "precious");
  const Client client(server_->channel(), {.shared_directory = "/"});
  const auto compress = [&](const std::string& name, bool overwrite) {
    return client
        .CompressShared(
            {}, input, dir.Path(name), [](uint64_t) {}, overwrite)
        .status();
  };
  for (const char* const name : {"in", "hard"}) {
    const absl::Status refusal = compress(name, true);
    EXPECT_EQ(refusal.code(), absl::StatusCode::kInvalidArgument) << refusal;
    EXPECT_EQ(GetErrorDetail(refusal)->reason, "SAME_FILE");
  }
  EXPECT_TRUE(absl::IsAlreadyExists(compress("theirs", false)));
  EXPECT_EQ(dir.Read("theirs"), "precious");
  EXPECT_TRUE(compress("theirs", true).ok());
  EXPECT_TRUE(compress("new", false).ok());
  EXPECT_EQ(dir.Read("new"), dir.Read("theirs"));
}

TEST(ClientTargetTest, AWrongAddressIsTheErrorOfEveryCall) {
  const Client client("[::1]:99999");
  StringSource source("");
  for (const absl::Status& status :
       {client.GetServerInfo().status(), client.SelfTest().status(),
        client.Measure({}, &source).status(),
        client.Compress({}, &source, nullptr).status(),
        client.Decompress({}, &source, nullptr).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(GetErrorDetail(status)->reason, "INVALID_ADDRESS");
  }
}

TEST_F(ClientTest, TheServersErrorIsTheOneReported) {
  // Many times: what ends the sending side races with the status.
  for (int i = 0; i < 50; ++i) {
    StringSource source(std::string(3 * kChunkBytes, 'x'));
    const auto report = client_->Compress({}, &source, nullptr);
    EXPECT_TRUE(absl::IsInvalidArgument(report.status())) << report.status();
  }
}

TEST_F(ClientTest, AnErrorReachesACallerWhoseInputIsIdle) {
  v1::CompressOptions options;
  options.set_codec("none such");
  IdleSource source;
  const auto report = client_->Compress(options, &source, nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(report.status())) << report.status();
}

TEST_F(ClientTest, AnErrorOfTheSourceEndsTheCall) {
  FailingSource source;
  EXPECT_THAT(
      std::string(client_->Compress({}, &source, nullptr).status().message()),
      HasSubstr("read x"));
  EXPECT_THAT(std::string(client_->Measure({}, &source).status().message()),
              HasSubstr("read x"));
}

TEST_F(ClientTest, AnErrorOfTheSinkEndsTheCall) {
  FullSink sink;
  EXPECT_THAT(
      std::string(
          client_->Compress({}, sample_.get(), &sink).status().message()),
      HasSubstr("no space left"));
}

TEST_F(ClientTest, ATimeoutEndsTheCall) {
  const Client hasty(server_->channel(), {.timeout = absl::Milliseconds(20)});
  IdleSource source;
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(hasty.Compress({}, &source, nullptr).status()));
}

// Answers Compress with the given messages, whatever comes in.
class ScriptedService : public v1::CompressionService::Service {
 public:
  explicit ScriptedService(std::vector<v1::CompressResponse> script)
      : script_(std::move(script)) {}

  grpc::Status Compress(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::CompressResponse, v1::CompressRequest>*
          stream) override {
    v1::CompressRequest request;
    while (stream->Read(&request)) continue;
    for (const v1::CompressResponse& response : script_) {
      stream->Write(response);
    }
    return grpc::Status::OK;
  }

 private:
  const std::vector<v1::CompressResponse> script_;
};

v1::CompressResponse Begin(uint64_t reserved) {
  v1::CompressResponse response;
  response.mutable_begin()->set_reserved_header_bytes(reserved);
  return response;
}

v1::CompressResponse Chunk(uint64_t offset, const std::string& data) {
  v1::CompressResponse response;
  response.mutable_artefact()->set_offset(offset);
  response.mutable_artefact()->set_data(data);
  return response;
}

v1::CompressResponse Trailer(uint64_t size) {
  v1::CompressResponse response;
  response.mutable_trailer()->set_compressed_size_bytes(size);
  return response;
}

absl::Status Play(std::vector<v1::CompressResponse> script) {
  ScriptedService service(std::move(script));
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  StringSource source("input");
  StringSink sink;
  const absl::Status status = Client(server->InProcessChannel({}))
                                  .Compress({}, &source, &sink)
                                  .status();
  server->Shutdown();
  return status;
}

TEST(ClientProtocolTest, AcceptsWhatTheProtocolSays) {
  EXPECT_TRUE(
      Play({Begin(2), Chunk(2, "body"), Chunk(0, "he"), Trailer(6)}).ok());
}

TEST(ClientProtocolTest, RefusesEverythingElse) {
  const auto begin = Begin(2), body = Chunk(2, "body"), head = Chunk(0, "he");
  const std::vector<v1::CompressResponse> broken[] = {
      {},
      {begin},
      {begin, body, head},
      {Trailer(0)},
      {body, begin, head, Trailer(6)},
      {begin, begin, body, head, Trailer(6)},
      {begin, body, Trailer(6)},
      {begin, body, Chunk(0, "h"), Trailer(6)},
      {begin, Chunk(3, "ody"), head, Trailer(6)},
      {begin, body, body, head, Trailer(6)},
      {begin, body, head, Trailer(7)},
      {begin, body, head, Trailer(6), Trailer(6)},
      {begin, body, v1::CompressResponse(), head, Trailer(6)},
  };
  for (const auto& script : broken) {
    EXPECT_EQ(Play(script).code(), absl::StatusCode::kInternal)
        << &script - broken;
  }
}

TEST(ClientProtocolTest, NoServerIsUnavailable) {
  StringSource source("x");
  EXPECT_TRUE(absl::IsUnavailable(
      Client("unix:/nonexistent/socket").Measure({}, &source).status()));
}

}  // namespace
}  // namespace kvcompress
