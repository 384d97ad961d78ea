# shellcheck shell=bash
# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

# What the scripts share. Source it; it changes nothing by itself.

# One line on what is going on. Standard output is kept for results.
say() { printf '%s\n' "$*" >&2; }

die() {
  printf '%s: error: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# answer_help ARGUMENT...: where one of them asks for help, calls the script's
# `usage` and ends.
answer_help() {
  local argument
  for argument in "$@"; do
    if [[ $argument == -h || $argument == --help ]]; then
      usage
      exit 0
    fi
  done
}

# Runs a command in silence and shows the end of its output if it fails.
quietly() {
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  if ((status != 0)); then
    tail -n 60 "$log" >&2
    say "this failed with status $status: $*"
  fi
  rm -f "$log"
  return "$status"
}

# The Debian packages among the arguments that are not installed.
missing_packages() {
  local package
  for package in "$@"; do
    if [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
      printf '%s\n' "$package"
    fi
  done
}

# Installs the Debian packages among the arguments that are missing. Touches
# neither apt nor the network when there are none.
need_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian system: taking for granted that these are here: $*"
    return 0
  fi
  local missing=() root=()
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} == 0)); then
    return 0
  fi
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      say "not root, and no sudo. Install these first: ${missing[*]}"
      return 1
    fi
    root=(sudo)
  fi
  # One at a time: apt-get waits for what dpkg locks, but not for another's lists.
  local apt=("${root[@]}" flock /var/lib/apt
    env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  quietly "${apt[@]}" update &&
    quietly "${apt[@]}" install --yes --no-install-recommends "${missing[@]}"
}

# may_install PURPOSE PACKAGE...: says which of the packages are missing, and asks
# whether they may be installed where there is a terminal to ask.
may_install() {
  local purpose=$1 answer missing=()
  shift
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} == 0)); then
    return 0
  fi
  say "$purpose needs Debian packages that are not installed: ${missing[*]}"
  if [[ ! -t 0 ]]; then
    return 0
  fi
  printf 'Install them? [y/N] ' >&2
  read -r answer || answer=
  [[ $answer == [yY]* ]]
}

# What building the container image needs.
image_packages() {
  printf '%s\n' ca-certificates catatonit containernetworking-plugins podman runc
}

# A folder for what is worth keeping between runs, outside the repository. Falls
# back to a folder of this user under TMPDIR where the usual place cannot be
# written.
cache_dir() {
  local dir
  for dir in "${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/kvcompress" \
    "${TMPDIR:-/tmp}/kvcompress-cache-$EUID"; do
    if (umask 077 && mkdir -p "$dir") 2>/dev/null && [[ -O $dir && -w $dir ]]; then
      printf '%s\n' "$dir"
      return 0
    fi
  done
  say "neither the cache folder nor TMPDIR can be written"
  return 1
}
