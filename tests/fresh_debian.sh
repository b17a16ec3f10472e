#!/usr/bin/env bash
# A whole Debian 12 made from nothing: ./quickstart and then ./check must pass in it.
#
#   tests/fresh_debian.sh [DIRECTORY]     (as root, or through sudo; needs debootstrap, which it installs)
#
# Makes the system with debootstrap in DIRECTORY (by default a new one under /var/tmp, removed at the end), copies the
# committed tree into it, enters it with chroot in namespaces of its own, and runs both scripts as a new user would. The
# host's apt sources, pip configuration and CA bundle are copied, so that a host behind a mirror or a proxy can run this.
set -euo pipefail

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SUITE=bookworm
MIRROR=${DEBIAN_MIRROR:-} # empty: debootstrap's own choice
CA_BUNDLE=/etc/ssl/host-ca-bundle.crt
KEEP=${1:-}

if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "fresh_debian: needs root, or sudo" >&2; exit 1; }
    exec sudo -n -- "$0" "$@"
fi

# Mounts live in a mount namespace of their own: whatever happens to this script, the kernel undoes them with its last
# process, and removing the directory can never reach into the host's /proc, /sys or /dev.
if [ -z "${FRESH_DEBIAN_INSIDE:-}" ]; then
    command -v debootstrap >/dev/null || {
        apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends debootstrap
    }
    ROOT=${KEEP:-$(mktemp -d /var/tmp/unimem-fresh-XXXXXX)}
    [ -n "$KEEP" ] || trap 'rm -rf --one-file-system "$ROOT"' EXIT
    FRESH_DEBIAN_INSIDE=$ROOT unshare --mount --propagation private --pid --fork --kill-child "$0" "$@"
    exit
fi

ROOT=$FRESH_DEBIAN_INSIDE
say() { printf 'fresh_debian: %s\n' "$*"; }

make_system() {
    [ ! -x "$ROOT/usr/bin/apt-get" ] || { say "using the system in $ROOT"; return; }
    say "debootstrap $SUITE into $ROOT"
    # what debootstrap writes into sources.list is kept for a host whose own sources do not fit
    debootstrap --variant=minbase "$SUITE" "$ROOT" ${MIRROR:+"$MIRROR"}
    cp "$ROOT/etc/apt/sources.list" "$ROOT/debootstrap.sources"
}

copy_file() { # FILE...: each to the same place in the new system, when the host has it
    local file
    for file in "$@"; do
        if [ -f "$file" ]; then install -D -m 644 "$(readlink -f "$file")" "$ROOT$file"; fi
    done
}

# What a host needs to reach its mirrors; on a plain Debian nothing of it changes anything.
copy_host_configuration() {
    copy_file /etc/resolv.conf /etc/hosts /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf" \
        /usr/share/keyrings/*.gpg /etc/apt/keyrings/* /etc/apt/auth.conf
    # Only Debian's own sources: a package from anywhere else would make the result differ from a plain Debian.
    local list
    rm -f "$ROOT"/etc/apt/sources.list "$ROOT"/etc/apt/sources.list.d/*
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
        if [ -f "$list" ] && grep -q "$SUITE" "$list" && grep -qE 'debian(-security)?/? |debian(-security)?/?$' "$list"; then
            copy_file "$list"
        fi
    done
    if ! cat "$ROOT"/etc/apt/sources.list "$ROOT"/etc/apt/sources.list.d/* 2>/dev/null | grep -q .; then
        cp "$ROOT/debootstrap.sources" "$ROOT/etc/apt/sources.list"
    fi
    # Under a name of its own: installing ca-certificates writes Debian's own bundle anew.
    local bundle=${PIP_CERT:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}
    if [ -f "$bundle" ]; then install -D -m 644 "$bundle" "$ROOT$CA_BUNDLE"; fi
    # Proxies are set in apt's configuration or in the environment; the latter is handed over in `enter`.
    local conf
    for conf in /etc/apt/apt.conf.d/*; do
        if grep -qiE 'proxy|CAInfo' "$conf"; then copy_file "$conf"; fi
    done
}

mount_kernel_filesystems() {
    # As in a real system: ordinary users may enter /, and it is a mount point (tests make mounts of their own).
    chmod 755 "$ROOT"
    mount --bind "$ROOT" "$ROOT"
    mkdir -p "$ROOT"/{proc,sys,dev}
    mount -t proc proc "$ROOT/proc"
    mount --rbind /sys "$ROOT/sys"
    mount --rbind /dev "$ROOT/dev"
    # Its own /dev/shm: nothing of the host's can be mistaken for something left behind.
    mount -t tmpfs -o mode=1777 tmpfs "$ROOT/dev/shm"
}

# The committed tree only: what is not committed is not there for a new user either.
copy_tree() {
    rm -rf "$ROOT/root/unimem"
    mkdir -p "$ROOT/root/unimem"
    git -c safe.directory="$TOP" -C "$TOP" archive HEAD | tar -x -C "$ROOT/root/unimem"
}

# A clean environment, but for how the host reaches the network.
enter() { # COMMAND...
    local -a keep=()
    local name
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL; do
        if [ -n "${!name:-}" ]; then keep+=("$name=${!name}"); fi
    done
    if [ -f "$ROOT$CA_BUNDLE" ]; then keep+=("PIP_CERT=$CA_BUNDLE" "SSL_CERT_FILE=$CA_BUNDLE"); fi
    chroot "$ROOT" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM=dumb \
        ${keep[@]+"${keep[@]}"} "$@"
}

make_system
copy_host_configuration
mount_kernel_filesystems
copy_tree
say "$(enter cat /etc/debian_version | sed 's/^/Debian /'), $(enter sh -c 'ls /usr/bin | wc -l') programs in /usr/bin"

say "./quickstart"
enter sh -c 'cd /root/unimem && ./quickstart'
say "./check"
enter sh -c 'cd /root/unimem && ./check'
say "both passed"
