// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How a complete file gets its name: at once, and without taking the place of
// another file that may not be replaced, whoever else writes there.
//
// A file that takes the place of another has a temporary name for that moment,
// ".kvcompress-0123456789abcdef.tmp", and holds a lock (flock) meanwhile. A
// process that is killed leaves such a name behind, without the lock: that
// distinguishes it from one in use, by other processes and in other containers.
//
// Folders are descriptors; O_PATH is enough. Functions return 0 or an errno
// where they do not say otherwise. Thread safe.

#ifndef KVCOMPRESS_FILES_PUBLISH_H_
#define KVCOMPRESS_FILES_PUBLISH_H_

#include <sys/types.h>

#include <string>

#include "absl/functional/function_ref.h"

namespace kvcompress {

// What becomes of a file that has the name already.
enum class Taken { kRefuse, kReplace };

// A temporary name that no other file has.
std::string TemporaryName();

// Takes the lock of a file that is about to get a temporary name, until its
// last descriptor is closed. EWOULDBLOCK when somebody else holds it.
int HoldTemporary(int fd);

// Creates a file with a temporary name. Calls `hook` with the name before, and
// with an empty one after an error. A descriptor for reading and writing, or -1
// with errno.
int CreateTemporary(int folder, mode_t mode,
                    absl::FunctionRef<void(const std::string&)> hook);

// Links the file `fd`, which has no name (O_TMPFILE), to `name` in `folder`.
// EEXIST with kRefuse when the name is taken. With kReplace, calls `hook` with
// a temporary name before the file has it, and with an empty one afterwards.
int PublishUnnamed(int fd, int folder, const std::string& name, Taken taken,
                   absl::FunctionRef<void(const std::string&)> hook);

// Moves a file from its temporary name to `name`, in `folder`. After an error
// it has its temporary name still.
int PublishNamed(int folder, const std::string& temporary,
                 const std::string& name, Taken taken);

// What PublishNamed does with kRefuse where file systems cannot rename without
// replacing: with a hard link, or where there are none by creating an empty
// file of the name and replacing that. A process that is killed between the two
// leaves the empty file.
int MoveByLink(int folder, const std::string& temporary,
               const std::string& name);
int MoveByClaim(int folder, const std::string& temporary,
                const std::string& name);

// Removes temporary files of killed processes of this user from `folder`.
void RemoveLeftovers(int folder);

// The same for the first file that this process writes there, as far as it
// remembers: to read a large folder for each of them would take long.
void RemoveLeftoversOnce(int folder);

}  // namespace kvcompress

#endif  // KVCOMPRESS_FILES_PUBLISH_H_
