#!/usr/bin/env bash
# Install the balancers of SGLang and vLLM, a few files of each release, in a folder of its own.
#
# usage: install.sh PYTHON ROOT      e.g. install.sh .venv/bin/python upstreams
#
# PYTHON has torch and numpy, which is all that these files import besides themselves. vLLM's wheel
# has 336 MB; it is deleted afterwards.
source "$(dirname "${BASH_SOURCE[0]}")/../../install_releases.sh"

install_files() { # RELEASE FILES FOLDER
    local wheel=$3.wheel
    rm -rf "$wheel"
    "${pip[@]}" download --quiet --no-deps --only-binary :all: --dest "$wheel" "$1"
    "$python" - "$wheel" "$2" "$3" <<'END'
import sys, zipfile
from pathlib import Path
wheel = zipfile.ZipFile(next(Path(sys.argv[1]).glob("*.whl")))
names = [name for name in wheel.namelist() if name.startswith(sys.argv[2])]
if not names:
    sys.exit(f"{sys.argv[2]} is not in {wheel.filename}")
for name in names:
    target = Path(sys.argv[3], Path(name).name)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(wheel.read(name))
END
    rm -rf "$wheel"
}

fill sglang-eplb-0.5.9 5 install_files sglang==0.5.9 sglang/srt/eplb/eplb_algorithms/deepseek
fill sglang-eplb-0.5.23 39 install_files sglang==0.5.23 sglang/srt/eplb/eplb_algorithms/deepseek
fill vllm-eplb-0.33.0 336 install_files vllm==0.33.0 vllm/distributed/eplb/policy/
