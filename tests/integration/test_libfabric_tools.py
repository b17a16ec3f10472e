"""libfabric's own tools, in the version that Debian ships, over the provider."""

import os
import re
import subprocess

import pytest
from fabric_tools import pingpong, rows, tool, tool_environment
from harness import BUILD, Launcher
from reference import Reference


def test_fi_info_shows_the_provider(launcher: Launcher, provider: str) -> None:
    run = launcher.run([tool("fi_info"), "-p", provider, "-v"], env=tool_environment(launcher)).succeeded()
    assert re.search(rf"prov_name: {provider}$", run.out, re.MULTILINE), str(run)
    for needed in ("FI_EP_RDM", "FI_TAGGED", "FI_MSG", "FI_LOCAL_COMM", "FI_REMOTE_COMM", "FI_DIRECTED_RECV"):
        assert needed in run.out, f"{needed} is missing:\n{run.out}"


@pytest.mark.parametrize("mode", ["msg", "tagged"])
def test_fi_pingpong_all_sizes_with_checked_data(launcher: Launcher, provider: str, mode: str) -> None:
    def sizes(under: Launcher, name: str) -> list[str]:
        return rows(pingpong(under, name, "-c", "-m", mode, "-S", "all"))

    ours = sizes(launcher, provider)
    assert len(ours) > 5
    reference = Reference("tcp", launcher)
    assert ours == reference.result(lambda inside: sizes(inside, "tcp")), "not every size that there is"


@pytest.mark.parametrize("size", ["0", "1", "64", "4096", "1048576", "8388608"])
def test_fi_pingpong_single_sizes(launcher: Launcher, provider: str, size: str) -> None:
    assert len(rows(pingpong(launcher, provider, "-c", "-I", "50", "-S", size))) == 1


def test_fi_pingpong_verbose(launcher: Launcher, provider: str) -> None:
    """-v without -c: together they print a line for every byte."""
    assert len(rows(pingpong(launcher, provider, "-v"))) > 5


def test_library_needs_only_what_debian_has() -> None:
    """One library for libfabric 1.17 to 2.5: it must not ask for symbols that the oldest lacks."""
    library = BUILD / "libunimem-fi.so"
    env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    ldd = subprocess.run(["ldd", "-r", library], env=env, capture_output=True, text=True, check=True)
    assert "undefined symbol" not in ldd.stdout + ldd.stderr
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "Shared library: [libfabric.so.1]" in needed, "loaders that use RTLD_LOCAL need it linked"
