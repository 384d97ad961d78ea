// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/file_type.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"

namespace kvcompress::cli {
namespace {

constexpr absl::string_view kSaveArrays =
    "load it in Python and save its arrays with safetensors.numpy.save_file";
constexpr absl::string_view kSaveTensors =
    "load it in Python and save its tensors with safetensors.torch.save_file";
constexpr absl::string_view kDecompress = "decompress it first";
constexpr absl::string_view kLlamaCpp =
    "compress it with python -m kvcompress.integrations.llama_cpp compress";
constexpr absl::string_view kNameCache =
    "name the .safetensors file that has the cache";

struct FileType {
  absl::string_view start;
  absl::string_view what;
  absl::string_view remedy;
};

// In the order in which they are tried.
constexpr FileType kTypes[] = {
    {"\x93NUMPY", "a NumPy array (.npy)", kSaveArrays},
    {"GGUF", "a GGUF file, which has weights of a model, not a KV cache",
     kNameCache},
    {"nsgg", "a session of llama.cpp", kLlamaCpp},
    {"qsgg", "a saved slot of llama.cpp", kLlamaCpp},
    {"\x80\x02", "a Python pickle, as PyTorch wrote before 1.6", kSaveTensors},
    {"\x80\x03", "a Python pickle", kSaveTensors},
    {"\x80\x04\x95", "a Python pickle", kSaveTensors},
    {"\x80\x05\x95", "a Python pickle", kSaveTensors},
    {"\x1f\x8b\x08", "compressed with gzip", kDecompress},
    {"\x28\xb5\x2f\xfd", "compressed with Zstandard", kDecompress},
    {"\x04\x22\x4d\x18", "compressed with LZ4", kDecompress},
    {"\xfd"
     "7zXZ",
     "compressed with xz", kDecompress},
    {"BZh", "compressed with bzip2", kDecompress},
    {"\x89HDF\r\n\x1a\n", "an HDF5 file", kSaveArrays},
    {"PAR1", "a Parquet file", kSaveArrays},
    {"ARROW1", "an Arrow file", kSaveArrays},
    {"version https://git-lfs.github.com/spec/",
     "a Git LFS pointer, which stands for a file that was not downloaded",
     "run git lfs pull where it lies"},
    {"<!DOCTYPE html", "an HTML page, perhaps of a download that failed",
     "download the cache again"},
    {"<html", "an HTML page, perhaps of a download that failed",
     "download the cache again"},
};

// What a ZIP archive is by the name of its first member.
FileType ZipType(absl::string_view start) {
  constexpr size_t kNameOffset = 30;
  const absl::string_view name =
      start.size() > kNameOffset ? start.substr(kNameOffset) : "";
  const size_t pickle = name.find("data.pkl");
  const size_t array = name.find(".npy");
  if (array < pickle) {
    return {"", "an archive of NumPy arrays (.npz)", kSaveArrays};
  }
  if (pickle != absl::string_view::npos) {
    return {"", "a PyTorch checkpoint (.pt, a ZIP archive of pickles)",
            kSaveTensors};
  }
  return {"", "a ZIP archive", kNameCache};
}

// Whether `start` begins as a safetensors file does: eight bytes of length,
// then an object of JSON. No other type does that.
bool LooksLikeSafetensors(absl::string_view start) {
  return start.size() > 8 && start[8] == '{' && start[7] == '\0' &&
         start[6] == '\0';
}

absl::Status Unfit(const FileType& type) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("the file is ", type.what,
                                ", not a safetensors file: ", type.remedy),
                   {.reason = "INVALID_HEADER"});
}

}  // namespace

absl::Status CheckFileType(absl::string_view start) {
  if (LooksLikeSafetensors(start)) return absl::OkStatus();
  for (const FileType& type : kTypes) {
    if (absl::StartsWith(start, type.start)) return Unfit(type);
  }
  if (absl::StartsWith(start, "PK\x03\x04")) return Unfit(ZipType(start));
  constexpr size_t kTarOffset = 257;
  if (start.size() > kTarOffset &&
      absl::StartsWith(start.substr(kTarOffset), "ustar")) {
    return Unfit({"", "a tar archive", "unpack it, and name what it has"});
  }
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(start);
  if (absl::StartsWith(text, "{") || absl::StartsWith(text, "[")) {
    const bool index = absl::StrContains(start, "weight_map");
    return Unfit(
        {"", index ? "the index of a model in several files (JSON)" : "JSON",
         kNameCache});
  }
  return absl::OkStatus();
}

absl::Status CheckFileTypeOf(const std::string& path) {
  struct stat file;
  if (path == "-" || stat(path.c_str(), &file) != 0) return absl::OkStatus();
  if (S_ISDIR(file.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("read ", path,
                     ": is a directory: name a file, or give "
                     "folders as arguments, without -input"));
  }
  if (!S_ISREG(file.st_mode)) return absl::OkStatus();
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::OkStatus();
  char start[kFileTypeBytes];
  const ssize_t size = pread(fd, start, sizeof(start), 0);
  close(fd);
  if (size < 0) return absl::OkStatus();
  return CheckFileType({start, static_cast<size_t>(size)});
}

}  // namespace kvcompress::cli
