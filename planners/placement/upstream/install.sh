#!/usr/bin/env bash
# Install AutoParallel, toulbar2, and PuLP with its solver CBC, in folders of their own.
#
# usage: install.sh PYTHON ROOT      e.g. install.sh .venv/bin/python upstreams
#
# PYTHON has torch. AutoParallel has no releases; AUTOPARALLEL is a path or an address of its
# repository.
source "$(dirname "${BASH_SOURCE[0]}")/../../install_releases.sh"

commit=a54c2529b1cb10b6b27a585b4a6fc2f84bc1d232

install_commit() { # FOLDER
    "${pip[@]}" install --quiet --target "$1" pulp==3.3.0
    git clone --quiet "${AUTOPARALLEL:-https://github.com/meta-pytorch/autoparallel}" "$1/checkout"
    git -C "$1/checkout" archive "$commit" autoparallel | tar -x -C "$1"
    rm -rf "$1/checkout"
}

install_release() { # RELEASE FOLDER
    "${pip[@]}" install --quiet --no-deps --target "$2" "$1"
}

fill toulbar2-1.4.0.1 44 install_release pytoulbar2==1.4.0.1
fill pulp-3.3.0 36 install_release pulp==3.3.0
fill autoparallel-a54c252 60 install_commit
