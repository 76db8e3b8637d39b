#!/usr/bin/env bash
# Install the PaddlePaddle releases that are driven side by side, each in an environment of its own.
#
# usage: install.sh PYTHON ROOT      e.g. install.sh .venv/bin/python upstreams
#
# PYTHON is 3.11 and has pip; nothing of its environment is used or changed. The environments run by
# their bin/python alone, which may be moved; the other scripts in them may not, and do not work.
set -euo pipefail

if [[ $# -ne 2 ]]; then
    echo "usage: $0 PYTHON ROOT" >&2
    exit 2
fi
python=$1
root=$2
here=$(dirname "${BASH_SOURCE[0]}")
releases=(2.6.2 3.3.1) # the last one before the insertions were batched, and one after
declare -A megabytes=([2.6.2]=600 [3.3.1]=850)

mkdir -p "$root"
for release in "${releases[@]}"; do
    name=paddle-$release
    if [[ -d $root/$name ]]; then
        echo "$name is there"
        continue
    fi
    echo "Installing $name (${megabytes[$release]} MB)"
    partial=$root/.$name.partial # renamed when complete, so that a folder of that name always is
    rm -rf "$partial"            # an interrupted run's
    "$python" -m venv --without-pip "$partial"
    "$python" -m pip --disable-pip-version-check --python "$partial/bin/python" \
        install --quiet --no-deps --requirement "$here/requirements-$release.txt"
    mv "$partial" "$root/$name"
done
