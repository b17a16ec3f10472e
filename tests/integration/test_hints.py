"""Hints of libfabric 2.x, whose structures are longer than those with which the provider is built: it reads the
additional members if the caller's API version has them."""

from pathlib import Path

import pytest
from harness import BUILD, VENV, Launcher
from mpis import compile_c

SOURCE = Path(__file__).parent / "programs" / "hints.c"
LIBFABRIC = VENV / "lib" / "mpich" / "libfabric.so.1"


@pytest.fixture(scope="module")
def hints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("hints") / "hints", SOURCE.read_text(), "-Wall", "-Wextra", "-Werror", "-ldl")


def asked(launcher: Launcher, hints: Path, version: tuple[int, int], auth_keys: int, group: int) -> list[str]:
    command = [hints, LIBFABRIC, *(str(number) for number in (*version, auth_keys, group))]
    environment = {"FI_PROVIDER_PATH": str(BUILD), "FI_PROVIDER": "unimem"}
    return launcher.run(command, env=environment).succeeded().out.splitlines()


VERSIONS = [(1, 17), (1, 20), (2, 0), (2, 5)]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: f"{v[0]}.{v[1]}")
def test_what_nobody_asks_for_is_offered(launcher: Launcher, hints: Path, version: tuple[int, int]) -> None:
    out = asked(launcher, hints, version, 0, 0)
    assert out[0] == "offered"
    if version >= (2, 5):
        assert out[1:] == ["0 0 ffffffffffffffff ffffffffffffffff"]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: f"{v[0]}.{v[1]}")
def test_authorization_keys_of_an_endpoint_are_refused_from_1_20_on(launcher: Launcher, hints: Path, version: tuple[int, int]) -> None:
    assert asked(launcher, hints, version, 1, 0)[0] == ("refused" if version >= (1, 20) else "offered")


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: f"{v[0]}.{v[1]}")
def test_groups_are_refused_from_2_0_on(launcher: Launcher, hints: Path, version: tuple[int, int]) -> None:
    assert asked(launcher, hints, version, 0, 1)[0] == ("refused" if version >= (2, 0) else "offered")
