#!/usr/bin/env bash
# Builds the images of Slipway with buildah, and prints a table of them. `make images` calls it.
# From the environment: PREFIX, TAG and IMAGES (what to build, and their names), BASE and BUILD_BASE (both or
# none: without them it makes bases of Debian's packages), TORCH, STORAGE_DRIVERS, BUILDAH and BUILD_OPTIONS.
set -euo pipefail
cd "$(dirname "$0")/../.."

: "${PREFIX:?}" "${TAG:?}" "${IMAGES:?}"
read -ra buildah <<<"${BUILDAH:-buildah}"
read -ra options <<<"${BUILD_OPTIONS:-}"
# Files of an image have the time of the commit, not that of the build.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
revision=$(git rev-parse HEAD)

fail() {
  echo "images: $*" >&2
  exit 1
}

command -v "${buildah[0]}" >/dev/null || fail "${buildah[0]} is not installed (apt-get install buildah)"

check_base() {
  case $2 in
    *@sha256:* | localhost/*) ;;
    *) fail "$1=$2 has no digest: name it as NAME@sha256:…, as a tag may change" ;;
  esac
}

# Makes an image of Debian's packages, once: its name and the packages are the arguments.
debian() {
  local name=$1 packages=$2 folder container
  "${buildah[@]}" inspect --type image "$name" >/dev/null 2>&1 && return
  command -v mmdebstrap >/dev/null ||
    fail "mmdebstrap is not installed (apt-get install mmdebstrap); or name BASE and BUILD_BASE"
  echo "images: $name of Debian's packages (once, about two minutes) ..."
  folder=$(mktemp -d)
  mmdebstrap --quiet --variant=essential --include="$packages" \
    --dpkgopt='path-exclude=/usr/share/man/*' bookworm "$folder/base.tar" 2>"$folder/log" ||
    { cat "$folder/log" >&2; rm -rf "$folder"; fail "mmdebstrap has failed"; }
  container=$("${buildah[@]}" from scratch)
  "${buildah[@]}" add --quiet "$container" "$folder/base.tar" / >/dev/null
  "${buildah[@]}" commit --quiet --timestamp "$SOURCE_DATE_EPOCH" --rm "$container" "$name" >/dev/null
  rm -rf "$folder"
}

if [ -n "${BASE:-}${BUILD_BASE:-}" ]; then
  [ -n "${BASE:-}" ] && [ -n "${BUILD_BASE:-}" ] || fail "BASE and BUILD_BASE need each other: the same Python"
  check_base BASE "$BASE"
  check_base BUILD_BASE "$BUILD_BASE"
else
  BASE=localhost/slipway-base:bookworm
  BUILD_BASE=localhost/slipway-build-base:bookworm
  packages=python3,libstdc++6,ca-certificates,tzdata
  debian "$BASE" "$packages"
  debian "$BUILD_BASE" "$packages,python3-venv,gcc,libc6-dev"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
table=
for name in $IMAGES; do
  image=$PREFIX/$name:$TAG
  started=$SECONDS
  echo "images: $image ..."
  "${buildah[@]}" build --pull=false "${options[@]}" --timestamp "$SOURCE_DATE_EPOCH" \
    --build-arg BASE="$BASE" --build-arg BUILD_BASE="$BUILD_BASE" --build-arg TORCH="${TORCH:-}" \
    --build-arg STORAGE_DRIVERS="${STORAGE_DRIVERS:-}" --build-arg SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" \
    --build-arg VERSION="$TAG" --build-arg REVISION="$revision" \
    --file "manifests/images/$name.Containerfile" --tag "$image" . \
    >"$log" 2>&1 || { cat "$log" >&2; fail "$image was not built"; }
  echo "images: $image: built in $((SECONDS - started)) s"
  table+=$("${buildah[@]}" images --format '{{.Name}}:{{.Tag}}|{{.Size}}|{{.Digest}}' "$image" | head -1)$'\n'
done
printf 'IMAGE|SIZE|DIGEST\n%s' "$table" | awk -F '|' '
  { for (i = 1; i <= 3; i++) { cell[NR, i] = $i; if (length($i) > width[i]) width[i] = length($i) } }
  END {
    format = "%-" width[1] "s  %-" width[2] "s  %s\n"
    for (row = 1; row <= NR; row++) printf format, cell[row, 1], cell[row, 2], cell[row, 3]
  }'
