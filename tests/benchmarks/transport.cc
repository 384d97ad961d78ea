// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Both ends of what `tests/benchmark --transport` measures.
//
//   kvcompress_transport serve SOCKET SHARED
//     The service as kv-compressd has it; on the same gRPC server a null echo,
//     which drops a message and answers with as many bytes as int4 has; and
//     on SOCKET.raw the same without gRPC. Ends with its standard input.
//   kvcompress_transport work SOCKET INPUT SHARED
//     Reads names of tasks, one in a line, and answers each with the seconds it
//     took and those of processor time in this process; STREAMS N SIZE with the
//     seconds of each of N streams at once.

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/transfer.h"
#include "embedded.h"
#include "flow_control.h"
#include "kvcompress/client.h"
#include "kvcompress/file_source.h"
#include "kvcompress/output_file.h"
#include "service.h"
#include "shared_directory.h"
#include "tuning.h"
#include "wire/messages.h"

namespace kvcompress {
namespace {

constexpr size_t kChunk = 1 << 20;
// Of a chunk of F32, in int4 with groups of 64.
constexpr size_t kAnswer = kChunk / 256 * 34;
constexpr char kCompress[] = "/kvcompress.v1.CompressionService/Compress";
constexpr char kEcho[] = "/benchmark.Null/Echo";

void Check(bool ok, const std::string& what) {
  if (ok) return;
  std::cerr << what << "\n";
  std::exit(1);
}

const std::string& Zeros() {
  static const std::string* const zeros = new std::string(8 << 20, '\0');
  return *zeros;
}

grpc::Slice Borrow(const char* bytes, size_t size) {
  return {bytes, size, grpc::Slice::STATIC_SLICE};
}

// Reads a message, answers it, and reads the next.
class Echo : public grpc::ServerGenericBidiReactor {
 public:
  Echo() { StartRead(&in_); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    const grpc::Slice answer =
        Borrow(Zeros().data(), in_.Length() * kAnswer / kChunk);
    in_.Clear();
    out_ = SerializeBytes(1, answer);
    StartWrite(&out_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&in_);
  }
  void OnDone() override { delete this; }

  grpc::ByteBuffer in_, out_;
};

class EchoService : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext*) override {
    return new Echo();
  }
};

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

bool ReadAll(int fd, char* buffer, size_t size) {
  while (size > 0) {
    const ssize_t count = read(fd, buffer, size);
    if (count <= 0) return false;
    buffer += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

bool WriteAll(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t count = write(fd, bytes, size);
    if (count <= 0) return false;
    bytes += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

void ServeRaw(const std::string& path) {
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  const sockaddr_un address = AddressOf(path);
  Check(bind(listener, reinterpret_cast<const sockaddr*>(&address),
             sizeof(address)) == 0 &&
            listen(listener, 8) == 0,
        "cannot listen on " + path);
  std::string buffer(kChunk, '\0');
  while (true) {
    const int fd = accept(listener, nullptr, nullptr);
    while (ReadAll(fd, buffer.data(), kChunk) &&
           WriteAll(fd, Zeros().data(), kAnswer)) {
    }
    close(fd);
  }
}

int Serve(const std::string& path, const std::string& shared) {
  ServiceOptions options;
  auto directory = SharedDirectory::Open(shared);
  Check(directory.ok(), std::string(directory.status().message()));
  options.shared_directory = *std::move(directory);
  const auto service = NewCompressionService(options, /*observer=*/nullptr);
  EchoService echo;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder.SetMaxSendMessageSize(-1);
  SetFlowControl(&builder);
  builder.RegisterService(service.get());
  builder.RegisterCallbackGenericService(&echo);
  builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  const auto server = builder.BuildAndStart();
  Check(server != nullptr, "gRPC did not start");
  std::thread(ServeRaw, path + ".raw").detach();
  std::cout << "ready" << std::endl;
  while (std::cin.get() != EOF) {
  }
  std::_Exit(0);
}

// Bytes in memory.
class MemorySource : public ByteSource {
 public:
  explicit MemorySource(absl::string_view bytes) : rest_(bytes) {}
  absl::StatusOr<size_t> Read(absl::Span<char> buffer) override {
    const size_t size = rest_.copy(buffer.data(), buffer.size());
    rest_.remove_prefix(size);
    return size;
  }
  void Cancel() override {}

 private:
  absl::string_view rest_;
};

// What is asked for: without a codec it would be `auto`.
v1::CompressOptions Of(const std::string& codec) {
  v1::CompressOptions options;
  options.set_codec(codec);
  return options;
}
v1::CompressOptions Int4() { return Of("int4"); }

class Worker {
 public:
  Worker(std::string path, std::string input, std::string shared)
      : path_(std::move(path)),
        input_(std::move(input)),
        shared_(std::move(shared)),
        client_("unix:" + path_) {
    std::ifstream file(input_, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    Check(!bytes_.empty(), "no input");
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    channel_ = grpc::CreateCustomChannel(
        "unix:" + path_, grpc::InsecureChannelCredentials(), arguments);
    auto embedded = EmbeddedServer::Start();
    Check(embedded.ok(), "no embedded server");
    embedded_ = *std::move(embedded);
    embedded_client_ = std::make_unique<Client>(
        embedded_->channel(), ClientOptions{.shared_directory = "/"});
  }

  void Run(const std::string& task) {
    if (task == "socket") return Raw();
    if (task == "echo") return Stream(kEcho, bytes_);
    if (task == "int4") return Stream(kCompress, bytes_);
    if (task == "ecsq") return Stream(kCompress, bytes_, "ecsq:contract");
    if (task == "client") return ClientFromMemory();
    if (task == "files streamed") return FilesStreamed();
    if (task == "files named") return FilesNamed(client_);
    if (task == "embedded") return FilesNamed(*embedded_client_);
    Check(false, "no task " + task);
  }

  // A stream of messages that are there already: what is measured is what
  // carries them.
  void Stream(const char* method, absl::string_view bytes,
              const std::string& codec = "int4") {
    grpc::ClientContext context;
    using Factory = grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer,
                                                              grpc::ByteBuffer>;
    const std::unique_ptr<
        grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>>
        stream(Factory::Create(
            channel_.get(),
            grpc::internal::RpcMethod(
                method, grpc::internal::RpcMethod::BIDI_STREAMING),
            &context));
    std::thread sender([&] {
      v1::CompressRequest first;
      *first.mutable_options() = Of(codec);
      stream->Write(Serialize(first));
      for (size_t at = 0; at < bytes.size(); at += kChunk) {
        const size_t size = std::min(kChunk, bytes.size() - at);
        if (!stream->Write(SerializeBytes(2, Borrow(&bytes[at], size)))) break;
      }
      stream->WritesDone();
    });
    grpc::ByteBuffer response;
    while (stream->Read(&response)) response.Clear();
    sender.join();
    const grpc::Status status = stream->Finish();
    Check(status.ok(), status.error_message());
  }

  absl::string_view bytes() const { return bytes_; }

 private:
  void Raw() {
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    const sockaddr_un address = AddressOf(path_ + ".raw");
    Check(connect(fd, reinterpret_cast<const sockaddr*>(&address),
                  sizeof(address)) == 0,
          "cannot connect");
    const size_t chunks = bytes_.size() / kChunk;
    std::thread sender([&] {
      for (size_t i = 0; i < chunks; ++i) {
        Check(WriteAll(fd, &bytes_[i * kChunk], kChunk), "cannot write");
      }
    });
    std::string answer(kAnswer, '\0');
    for (size_t i = 0; i < chunks; ++i) {
      Check(ReadAll(fd, answer.data(), kAnswer), "cannot read");
    }
    sender.join();
    close(fd);
  }

  void ClientFromMemory() {
    MemorySource source(bytes_);
    const auto report = client_.Compress(Int4(), &source, nullptr);
    Check(report.ok(), std::string(report.status().message()));
  }

  void FilesStreamed() {
    auto source = FileSource::Open(input_);
    auto output = OutputFile::Create(shared_ + "/streamed");
    Check(source.ok() && output.ok(), "cannot open");
    const auto report = client_.Compress(Int4(), source->get(), output->get());
    Check(report.ok(), std::string(report.status().message()));
    Check((*output)->Commit().ok(), "cannot publish");
  }

  void FilesNamed(const Client& client) {
    const auto report = client.CompressShared(
        Int4(), input_, shared_ + "/named", [](uint64_t) {});
    Check(report.ok() && report->has_value(), "the file cannot be named");
  }

  const std::string path_, input_, shared_;
  std::string bytes_;
  Client client_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<EmbeddedServer> embedded_;
  std::unique_ptr<Client> embedded_client_;
};

double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double ProcessorTime() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// A file of one tensor of `size` bytes with the values of another.
std::string SmallCache(absl::string_view bytes, size_t size) {
  const std::string header = R"({"layer_0_key":{"dtype":"F32","shape":[1,1,)" +
                             std::to_string(size / 256) +
                             R"(,64],"data_offsets":[0,)" +
                             std::to_string(size) + "]}}";
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) {
    file[i] = static_cast<char>(header.size() >> (8 * i));
  }
  return file + header + std::string(bytes.substr(kChunk, size));
}

void Streams(Worker* worker, int count, size_t size) {
  const std::string cache = SmallCache(worker->bytes(), size);
  std::vector<double> seconds(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (double& taken : seconds) {
    threads.emplace_back([&] {
      const double begun = Now();
      worker->Stream(kCompress, cache);
      taken = Now() - begun;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const double taken : seconds) std::cout << taken << " ";
  std::cout << std::endl;
}

int Work(const std::string& path, const std::string& input,
         const std::string& shared) {
  Worker worker(path, input, shared);
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string word;
    int count = 0;
    size_t size = 0;
    if (words >> word && word == "STREAMS" && words >> count >> size) {
      Streams(&worker, count, size);
      continue;
    }
    const double begun = Now();
    const double used = ProcessorTime();
    worker.Run(line);
    const double taken = Now() - begun;
    std::cout << taken << " " << ProcessorTime() - used << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace kvcompress

int main(int argc, char** argv) {
  kvcompress::TuneProcess();
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 3 && words[0] == "serve") {
    return kvcompress::Serve(words[1], words[2]);
  }
  if (words.size() == 4 && words[0] == "work") {
    return kvcompress::Work(words[1], words[2], words[3]);
  }
  std::cerr << "see the comment at the top of the source\n";
  return 2;
}
