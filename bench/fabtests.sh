#!/usr/bin/env bash
# Builds libfabric's own test programs (fabtests) with libfabric 1.22, for comparing unimem with the shm and sm2 providers.
# The sources are those in the crate lamellar-libfabric-src; they are built outside the tree. Can run again: it does nothing
# when the programs are there. Needs cargo, autoconf, automake, libtool, a C compiler; installs the Debian packages if root.
# Usage: bench/fabtests.sh [PREFIX]     default: ~/.cache/unimem/fabtests. Prints PREFIX on its last line.
set -euo pipefail

prefix=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/unimem/fabtests}
crate=lamellar-libfabric-src
version=0.1.1

if [ -x "$prefix/bin/fi_rdm_tagged_pingpong" ]; then
    echo "$prefix"
    exit 0
fi
missing=()
for tool in cargo autoconf automake libtoolize gcc make; do
    command -v "$tool" >/dev/null || missing+=("$tool")
done
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" -ne 0 ]; then
        echo "fabtests.sh: missing: ${missing[*]}; install cargo autoconf automake libtool gcc make, or run as root" >&2
        exit 1
    fi
    packages=(autoconf automake libtool gcc make)
    command -v cargo >/dev/null || packages+=(cargo)
    apt-get install -y --no-install-recommends "${packages[@]}" >/dev/null
fi

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
log=$prefix/build.log
mkdir -p "$prefix" "$build/fetch/src"
echo "building fabtests (about 3 minutes; log: $log)" >&2
{
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n%s = "=%s"\n' "$crate" "$version" \
        >"$build/fetch/Cargo.toml"
    : >"$build/fetch/src/lib.rs"
    (cd "$build/fetch" && cargo vendor "$build/vendor" >/dev/null)
    src=$build/vendor/$crate/libfabric
    chmod -R u+w "$src"
    find "$src" -exec touch -d 2024-01-01 {} + # one date for all: nothing seems out of date to make
    (cd "$src" && sh ./autogen.sh &&
        ./configure --prefix="$prefix" --enable-only --enable-shm --enable-sm2 --enable-tcp --disable-xpmem &&
        make -j"$(nproc)" && make install)
    (cd "$src/fabtests" && sh ./autogen.sh && ./configure --prefix="$prefix" --with-libfabric="$prefix" &&
        make -j"$(nproc)" && make install)
} >"$log" 2>&1 || {
    tail -5 "$log" >&2
    echo "fabtests.sh: the build failed; see $log" >&2
    exit 1
}
echo "$prefix"
