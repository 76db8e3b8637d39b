#!/usr/bin/env bash
# Install the ColossalAI releases that are driven side by side, each in a folder of its own.
#
# usage: install.sh PYTHON ROOT      e.g. install.sh .venv/bin/python upstreams
#
# PYTHON has torch, numpy, packaging, psutil and tqdm, which is all that ColossalAI's planner imports
# besides itself. What else it declares stays out: some of that brings a torch of its own.
source "$(dirname "${BASH_SOURCE[0]}")/../../install_releases.sh"
pip+=(install --quiet --no-deps)
build=
trap '[[ -z $build ]] || rm -rf "$build"' EXIT

# A release comes as source, and is built with the interpreter's packages.
install_release() { # RELEASE FOLDER
    if [[ -z $build ]] && ! "$python" -c "import setuptools.command.bdist_wheel" 2>/dev/null; then
        echo "Fetching what builds it"
        build=$root/.build
        rm -rf "$build" # an interrupted run's
        "${pip[@]}" --target "$build" setuptools==80.9.0
    fi
    PYTHONPATH=$build "${pip[@]}" --no-build-isolation --target "$2" "colossalai==$1"
}

# The last one before the difference tables became lazy, and the first after.
for release in 0.4.0 0.4.1; do
    fill "colossalai-$release" 20 install_release "$release"
done
