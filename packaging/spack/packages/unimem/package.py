# Copyright (c) 2026, The Unimem Authors
# SPDX-License-Identifier: BSD-2-Clause
"""Spack recipe. It builds the checkout in which it lies: see docs/install.md."""

import os

from spack.package import *

try:
    from spack_repo.builtin.build_systems.meson import MesonPackage
except ImportError:
    pass  # Spack before 1.0 has it in spack.package


class Unimem(MesonPackage):
    """A libfabric (OFI) provider for machines whose memory is global: MPICH and other programs over libfabric exchange
    messages through memory that both sides can load from and store to."""

    git = "file://" + os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4))
    license("BSD-2-Clause", checked_by="unimem")

    version("main", branch="main")

    variant("man", default=False, description="Build the manual pages")

    depends_on("c", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("pandoc", type="build", when="+man")
    depends_on("cmocka", type="test")
    depends_on("libfabric@1.17:")

    for unsupported in ("darwin", "freebsd", "windows"):
        conflicts(f"platform={unsupported}", msg="unimem needs Linux: memfd_create, process_vm_readv, /proc")

    sanity_check_is_file = [join_path("bin", "unimem"), join_path("lib", "libfabric", "libunimem-fi.so")]

    def meson_args(self):
        return [
            "-Dwerror=false",
            "-Dtests=" + ("true" if self.run_tests else "false"),
            "-Dman=" + ("enabled" if self.spec.satisfies("+man") else "disabled"),
        ]

    def setup_run_environment(self, env):
        # Spack's libfabric has a prefix of its own, and does not look for providers in this one by itself.
        env.prepend_path("FI_PROVIDER_PATH", self.prefix.lib.libfabric)
