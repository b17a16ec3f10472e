#!/usr/bin/env bash
# The Debian package: built in one whole Debian 12, checked with lintian, and installed, used and purged in another.
#
#   tests/packaging/debian.sh [DIRECTORY]     (as root, or through sudo; needs debootstrap, which it installs)
#
# Shows that after `apt-get install ./unimem.deb` Debian's own libfabric finds the provider without any variable, that
# messages go through, and that purging leaves no file. Takes some minutes.
set -euo pipefail

# shellcheck source=tests/debian_root.sh
. "$(dirname "${BASH_SOURCE[0]}")/../debian_root.sh"
enter_namespaces "$0" "$@"

HERE=$ROOT
APT="env DEBIAN_FRONTEND=noninteractive apt-get -q"

fail() {
    say "FAILED: $*" >&2
    exit 1
}

# Prints the names of all files, except those that apt and dpkg write on every run.
snapshot() {
    enter find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /root -o -path /var/cache \
        -o -path /var/lib/apt -o -path /var/log -o -path '/var/lib/dpkg/*-old' \) -prune -o -print | sort
}

prepare() { # NAME: a copy of the new system, entered from now on
    ROOT=$HERE/$1
    rm -rf --one-file-system "$ROOT"
    cp -a "$HERE/base" "$ROOT"
    copy_host_configuration
    mount_kernel_filesystems
    enter sh -c "$APT update"
}

ROOT=$HERE/base
make_system

prepare build
copy_tree
say "build, as docs/install.md says"
enter sh -c "cd /root/unimem && $APT install -y dpkg-dev && $APT build-dep -y ./packaging && packaging/build-deb"
PACKAGES=$ROOT/root/unimem/build/deb
PACKAGE=$(cd "$PACKAGES" && echo unimem_*.deb)
grep -qF "build/deb/$PACKAGE" "$TOP/docs/install.md" || fail "docs/install.md calls the package otherwise than $PACKAGE"
say "lintian"
enter sh -c "$APT install -y --no-install-recommends lintian && lintian --allow-root --fail-on error,warning \
    $([ -f "$TOP/man/unimem.1.md" ] || echo --suppress-tags no-manual-page) /root/unimem/build/deb/*.deb"

say "a maintainer of one's own"
enter sh -c "cd /root/unimem && DEB_BUILD_OPTIONS=nocheck DEBFULLNAME='A. Builder' DEBEMAIL=builder@example.org \
    packaging/build-deb /root/mine && dpkg-deb -f /root/mine/$PACKAGE Maintainer" | tee "$HERE/maintainer"
[ "$(tail -n 1 "$HERE/maintainer")" = 'A. Builder <builder@example.org>' ] || fail "DEBEMAIL does not name the maintainer"

prepare clean
cp "$PACKAGES"/*.deb "$ROOT/root/"
enter sh -c "$APT install -y --no-install-recommends libfabric-bin"
if enter fi_info -p unimem; then fail "fi_info finds unimem before it is installed"; fi
snapshot >"$HERE/before"

say "install"
enter sh -c "$APT install -y --no-install-recommends /root/$PACKAGE"
snapshot >"$HERE/installed"
say "what it brings:"
comm -13 "$HERE/before" "$HERE/installed"
say "fi_info -p unimem, without any variable"
enter fi_info -p unimem | tee "$HERE/fi_info"
grep -q '^provider: unimem$' "$HERE/fi_info" || fail "fi_info does not name the provider"
say "fi_pingpong"
enter timeout 60 sh -c "fi_pingpong -p unimem -e rdm -I 100 & server=\$!; sleep 2
    fi_pingpong -p unimem -e rdm -I 100 127.0.0.1 && wait \$server"
say "unimem env"
enter unimem env | tee "$HERE/env"
grep -q '/usr/lib/.*/libfabric' "$HERE/env" || fail "unimem env does not name the installed provider's folder"
enter sh -c 'test -s /usr/share/man/man7/fi_unimem.7.gz && test -s /usr/share/doc/unimem/copyright' ||
    fail "no manual page or no copyright"

say "a board"
if enter fi_info -p unimem -d board; then fail "there is a board before it is installed"; fi
enter sh -c "$APT install -y --no-install-recommends /root/libunimem1_*.deb /root/unimem-boardd_*.deb"
enter fi_info -p unimem -d board
enter timeout 60 sh -c "export FI_UNIMEM_MACHINE=board; fi_pingpong -p unimem -e rdm -I 100 & server=\$!; sleep 2
    fi_pingpong -p unimem -e rdm -I 100 127.0.0.1 && wait \$server"
enter sh -c "$APT install -y --no-install-recommends /root/libunimem-dev_*.deb && test -s /usr/include/unimem/unimem.h && test -s /usr/include/unimem/fi_ext_unimem.h"

say "purge"
enter sh -c "$APT purge -y unimem libunimem-dev libunimem1 unimem-boardd"
snapshot >"$HERE/after"
diff "$HERE/before" "$HERE/after" || fail "purging leaves or takes files: see above"
if enter fi_info -p unimem; then fail "fi_info still finds unimem"; fi
say "passed"
