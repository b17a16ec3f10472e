# shellcheck shell=bash
# tests/debian_root.sh: a whole Debian 12 in a directory, made with debootstrap and entered with chroot. Sourced.
#
# The caller calls enter_namespaces "$0" DIRECTORY_OR_NOTHING first: it returns in namespaces of its own, as root, with the
# directory in ROOT. The host's apt sources, pip configuration and CA bundle are copied, so that a host behind a mirror
# or a proxy can run this. Needs debootstrap, which it installs.

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SUITE=bookworm
MIRROR=${DEBIAN_MIRROR:-} # empty: debootstrap's own choice
CA_BUNDLE=/etc/ssl/host-ca-bundle.crt

say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*"; }

# The mounts are in a mount namespace of their own: whatever happens to the script, the kernel undoes them when the last
# process of the namespace ends, and removing the directory never reaches the host's /proc, /sys or /dev. Without a
# directory this makes a new one under /var/tmp, and removes it at the end.
enter_namespaces() { # SCRIPT [DIRECTORY]
    local status=0
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { say "needs root, or sudo" >&2; exit 1; }
        exec sudo -n -- "$@"
    fi
    if [ -n "${DEBIAN_ROOT_INSIDE:-}" ]; then
        ROOT=$DEBIAN_ROOT_INSIDE
        return
    fi
    command -v debootstrap >/dev/null || {
        apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends debootstrap
    }
    ROOT=${2:-$(mktemp -d /var/tmp/unimem-debian-XXXXXX)}
    [ -n "${2:-}" ] || trap 'rm -rf --one-file-system "$ROOT"' EXIT
    DEBIAN_ROOT_INSIDE=$ROOT unshare --mount --propagation private --pid --fork --kill-child "$@" || status=$?
    exit "$status"
}

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

# Copies the configuration that the host needs to reach its mirrors. On a plain Debian this changes nothing.
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
    # Its own /dev/shm: no file of the host can be mistaken for one that a test left behind.
    mount -t tmpfs -o mode=1777 tmpfs "$ROOT/dev/shm"
}

# The committed tree only: what is not committed is not there for a new user either.
copy_tree() {
    rm -rf "$ROOT/root/unimem"
    mkdir -p "$ROOT/root/unimem"
    git -c safe.directory="$TOP" -C "$TOP" archive HEAD | tar -x -C "$ROOT/root/unimem"
}

# Runs a command in the new system, with a clean environment except for the variables by which the host reaches the
# network.
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
