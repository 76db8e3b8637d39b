#!/usr/bin/env bash
# Install the PaddlePaddle releases that are driven side by side, each in an environment of its own.
#
# usage: install.sh PYTHON ROOT      e.g. install.sh .venv/bin/python upstreams
#
# PYTHON is 3.11 and has pip; nothing of its environment is used or changed. The environments run by
# their bin/python alone, which may be moved; the other scripts in them may not, and do not work.
here=$(dirname "${BASH_SOURCE[0]}")
source "$here/../../install_releases.sh"

install_release() { # RELEASE FOLDER
    "$python" -m venv --without-pip "$2"
    "${pip[@]}" --python "$2/bin/python" \
        install --quiet --no-deps --requirement "$here/requirements-$1.txt"
}

# The last one before the insertions were batched, and one after.
fill paddle-2.6.2 600 install_release 2.6.2
fill paddle-3.3.1 850 install_release 3.3.1
