# Sourced by install.sh of a family: reads PYTHON and ROOT, and makes a folder for each release.
# shellcheck shell=bash
set -euo pipefail

if [[ $# -ne 2 ]]; then
    echo "usage: $0 PYTHON ROOT" >&2
    exit 2
fi
python=$1
root=$2
pip=("$python" -m pip --disable-pip-version-check)
mkdir -p "$root"

# Fill a folder by a command that is given its path; it gets its name when it is complete.
fill() { # NAME SIZE COMMAND...
    local partial=$root/.$1.partial
    if [[ -d $root/$1 ]]; then
        echo "$1 is there"
        return
    fi
    echo "Installing $1 ($2 MB)"
    rm -rf "$partial" # an interrupted run's
    "${@:3}" "$partial"
    mv "$partial" "$root/$1"
}
