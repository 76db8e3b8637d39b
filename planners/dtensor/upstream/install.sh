#!/usr/bin/env bash
# Install a release of torch, and the packages for this family's tests, in a new environment.
#
# usage: install.sh PYTHON ROOT RELEASE      e.g. install.sh python3.11 upstreams 2.15.0
set -euo pipefail

if [[ $# -ne 3 ]]; then
    echo "usage: $0 PYTHON ROOT RELEASE" >&2
    exit 2
fi
python=$1 release=$3
place=$2/torch-$release
root=$(dirname "$0")/../../..
requirements=$root/requirements.txt

if [[ -e $place/.ready ]]; then
    echo "torch $release is there"
    exit
fi
echo "Installing torch $release into $place (several gigabytes where its build has CUDA)"
rm -rf "$place" # an interrupted run's
mkdir -p "$2"
"$python" -m venv "$place"
pip=("$place/bin/python" -m pip --disable-pip-version-check install --quiet)
"${pip[@]}" "torch==$release"
"${pip[@]}" -r <(grep -v '^torch==' "$requirements")
"${pip[@]}" --no-deps --editable "$root"
touch "$place/.ready"
