#!/usr/bin/env bash
# ./quickstart and then ./check must pass in a whole Debian 12 that is made from nothing.
#
#   tests/fresh_debian.sh [DIRECTORY]     (as root, or through sudo; needs debootstrap, which it installs)
#
# Makes the system with debootstrap in DIRECTORY (by default a new one under /var/tmp, removed at the end), copies the
# committed tree into it, enters it with chroot in namespaces of its own, and runs both scripts as a new user would.
set -euo pipefail

# shellcheck source=tests/debian_root.sh
. "$(dirname "${BASH_SOURCE[0]}")/debian_root.sh"
enter_namespaces "$0" "$@"

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
