#!/usr/bin/env bash
# Install the ColossalAI releases that are driven side by side, each in a folder of its own.
#
# usage: install.sh PYTHON ROOT      e.g. install.sh .venv/bin/python upstreams
#
# PYTHON has torch, numpy, packaging, psutil and tqdm, which is all that ColossalAI's planner imports
# besides itself. What else it declares stays out: some of that brings a torch of its own.
set -euo pipefail

if [[ $# -ne 2 ]]; then
    echo "usage: $0 PYTHON ROOT" >&2
    exit 2
fi
python=$1
root=$2
releases=(0.4.0 0.4.1) # the last one before the difference tables became lazy, and the first after
pip=("$python" -m pip --disable-pip-version-check install --quiet --no-deps)

mkdir -p "$root"
build=
trap '[[ -z $build ]] || rm -rf "$build"' EXIT

# A release comes as source, and is built with what the interpreter has.
have_build_tools() {
    [[ -n $build ]] || "$python" -c "import setuptools.command.bdist_wheel" 2>/dev/null
}

for release in "${releases[@]}"; do
    name=colossalai-$release
    if [[ -d $root/$name ]]; then
        echo "$name is there"
        continue
    fi
    if ! have_build_tools; then
        echo "Fetching what builds it"
        build=$root/.build
        rm -rf "$build" # an interrupted run's
        "${pip[@]}" --target "$build" setuptools==80.9.0
    fi
    echo "Installing $name"
    partial=$root/.$name.partial # renamed when complete, so that a folder of that name always is
    rm -rf "$partial"
    PYTHONPATH=$build "${pip[@]}" --no-build-isolation --target "$partial" "colossalai==$release"
    mv "$partial" "$root/$name"
done
