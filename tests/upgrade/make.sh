#!/usr/bin/env bash
# Writes state with the programs of a version, for the tests that read it with later ones: make.sh OLD OUT, with the directory of
# `pumice`, `jobctl` and `lib_core.so` (a release build) and a folder to be made, such as tests/upgrade/0.2.0. As root, in a
# checkout of that version: the Python library is taken from it.
set -euo pipefail
old=$(realpath "$1") out=$(realpath -m "$2")
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=$("$root/tests/python/venv")
# What is written names no folder of this machine but this one, and nothing of its user.
place=/tmp/pumice-upgrade-programs
rm -rf "$place" && mkdir -p "$place/python"
trap 'rm -rf "$place"' EXIT
cp "$old/pumice" "$old/jobctl" "$place"
cp -r "$root/python/pumice" "$place/python"
cp "$old/lib_core.so" "$place/python/pumice/_core.abi3.so"
cp -r "$root/tests/python" "$place/tests"
cd "$place"
env -i HOME="$place" PATH=/usr/local/bin:/usr/bin:/bin PUMICE_BINARIES="$place" PYTHONPATH="$place/python:$place/tests" \
  PYTHONDONTWRITEBYTECODE=1 GRPC_ENABLE_FORK_SUPPORT=0 "$venv/bin/python" -m make_upgrade "$out"
du -sh "$out"
