#!/bin/sh
# Makes the virtual environment /opt/slipway of an image, in its build stage: sh install.sh NAME
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
requirements=$source/manifests/images/requirements
export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1

python3 -m venv /build
# The image has no pip: that of /build writes into it.
python3 -m venv --without-pip /opt/slipway
install() { /build/bin/pip --python /opt/slipway/bin/python install --quiet --no-compile "$@"; }

install --require-hashes --only-binary :all: -r "$requirements/$1.txt"
if [ -n "${TORCH:-}" ]; then install --only-binary :all: "$TORCH"; fi
# One word for each driver. Their clients may need other versions of shared packages: the check below judges.
# shellcheck disable=SC2086
if [ -n "${STORAGE_DRIVERS:-}" ]; then install --only-binary :all: $STORAGE_DRIVERS; fi
# Before Slipway, whose own requirements are those of all components.
/build/bin/pip --python /opt/slipway/bin/python check

/build/bin/pip install --quiet --require-hashes -r "$requirements/build.txt"
/build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /build/wheels "$source"
install --no-deps /build/wheels/slipway-*.whl
# By content: a build with a timestamp changes the times of the files, and nothing can be compiled later.
# -f, as a program that has run here has compiled its modules by time. Of all packages a failure is no error:
# PyTorch has a file in the syntax of a later Python, which nothing imports.
compile() { /opt/slipway/bin/python -m compileall -q -f --invalidation-mode unchecked-hash "$@"; }
compile /opt/slipway/lib || true
for package in serving tuner autoscaler; do compile /opt/slipway/lib/python*/site-packages/$package; done
