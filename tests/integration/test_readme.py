"""The README and the pages for users are right: every command in them is run as it is written there.

Commands are the blocks ```sh. A comment right before a block tells what to do with it:
  <!-- test: skip: REASON -->      it is not run here; tests/skips.toml must allow it
  <!-- test: in a fresh copy -->   it is run where nothing is built yet
Without such a comment it is run in a copy of the tree with build/ and .venv as they are here, and a test's app.c.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from harness import BUILD, TOP, VENV, Launcher

PAGES = {name: (TOP / name).read_text(encoding="utf-8") for name in ("README.md", "docs/install.md", "docs/troubleshooting.md")}
BLOCK = re.compile(r"(?:^<!-- test: (?P<mark>.*?) -->\n)?^```(?P<language>.*)\n(?P<text>(?s:.*?))^```$", re.MULTILINE)
# For any number of ranks; it fails when the sum of the ranks is wrong.
APP = """
#include <mpi.h>
int main(int argc, char **argv)
{
    int rank, size, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum != size * (size - 1) / 2)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}
"""
FRESH = "in a fresh copy"
SKIP = "skip: "


class Block(NamedTuple):
    text: str
    mark: str
    page: str

    @property
    def name(self) -> str:
        """What the block does, for the name of its test: its last command without settings and arguments."""
        last = [line for line in self.text.splitlines() if line and not line.startswith("#")][-1]
        return re.sub(r"[^\w./]+", "-", re.sub(r"(^| )\w+=\S+", "", last.split("|")[0].split("#")[0]).strip())[:50]


BLOCKS = [
    Block(match["text"], match["mark"] or "", page)
    for page in PAGES
    for match in BLOCK.finditer(PAGES[page])
    if match["language"] == "sh"
]


def copy_tree(to: Path) -> None:
    """Copies the tree as a new user has it: without what was built in it."""
    leave_out = shutil.ignore_patterns(".git", ".venv", ".cache", "__pycache__", ".pytest_cache")

    def ignore(directory: str, names: list[str]) -> set[str]:
        built = {name for name in names if name.startswith("build") and Path(directory) == TOP}
        return set(leave_out(directory, names)) | built

    shutil.copytree(TOP, to, ignore=ignore, symlinks=True)


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    copy_tree(tmp_path / "unimem")
    return tmp_path / "unimem"


@pytest.fixture
def ready(fresh: Path) -> Path:
    """A tree in which everything is built, and the user has a program."""
    (fresh / "build").symlink_to(BUILD)
    (fresh / ".venv").symlink_to(VENV)
    (fresh / "app.c").write_text(APP)
    subprocess.run([VENV / "bin" / "mpicc", "-o", fresh / "app", fresh / "app.c"], check=True)
    return fresh


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_commands_and_they_stand_in_blocks(page: str) -> None:
    blocks, text = [block for block in BLOCKS if block.page == page], PAGES[page]
    assert len(blocks) >= {"README.md": 4, "docs/install.md": 3, "docs/troubleshooting.md": 2}[page]
    without = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"\n\n {4,}\S.*", without)
    assert not indented, f"commands belong into a block that begins with ```sh: {indented}"
    for match in BLOCK.finditer(text):
        assert match["language"], f"a block says what it holds (```sh, ```text): {match['text']}"
    assert text.count("<!-- test:") == sum(bool(block.mark) for block in blocks), "a mark stands right before a block"


@pytest.mark.parametrize("block", BLOCKS, ids=[block.name for block in BLOCKS])
def test_command(block: Block, request: pytest.FixtureRequest, launcher: Launcher, tmp_path: Path) -> None:
    if block.mark.startswith(SKIP):
        pytest.skip(block.mark.removeprefix(SKIP))
    assert block.mark in ("", FRESH), f"unknown mark: {block.mark}"
    top = request.getfixturevalue("fresh" if block.mark == FRESH else "ready")
    env = {"DESTDIR": str(tmp_path / "installed")}
    script = f"set -eu\n{block.text}"
    run = launcher.run(["bash", "-o", "pipefail", "-c", script], env=env, timeout=300, cwd=top).succeeded()
    if "meson install" in block.text:
        check_installed(tmp_path / "installed")
    if "grep 'libfabric provider'" in block.text:
        assert f"prints `{run.out.strip()}`" in PAGES[block.page], str(run)
    if "fi_info" in block.text:
        assert re.search(r"\bprov(ider|_name): unimem$", run.out, re.MULTILINE), str(run)


def check_installed(root: Path) -> None:
    """What docs/install.md promises about the installed files."""
    files = {file.name: file for file in root.rglob("*") if file.is_file()}
    assert files["libunimem-fi.so"].parent.name == "libfabric"
    pages = {"fi_unimem.7", "unimem.1", "unimem-boardd.8"} & {file.name.removesuffix(".md") for file in (TOP / "man").glob("*.md")}
    if not shutil.which("pandoc"):
        pages = set()
    board = {"libunimem.so.1", "libunimem.so", "unimem-boardd", "unimem.h", "fi_ext_unimem.h", "libunimem.pc"}
    plugins = {"libunimem-fi.so", "libunimem-heap.so", "libunimem-yield.so"}
    assert set(files) == plugins | {"unimem", "unimem.pc", "LICENSE"} | board | pages

    prefix = next(parent for parent in files["unimem"].parents if parent.name == "bin").parent
    env = os.environ | {"PKG_CONFIG_PATH": str(files["unimem.pc"].parent), "PKG_CONFIG_SYSROOT_DIR": ""}
    query = ["pkg-config", "--variable=providerdir", "unimem"]
    told = subprocess.run(query, env=env, capture_output=True, text=True, check=True).stdout.strip()
    assert str(root) + told == str(files["libunimem-fi.so"].parent)

    # The command looks for the provider in its final folder; with DESTDIR it is elsewhere, and the command says so.
    moved = subprocess.run([prefix / "bin" / "unimem", "env"], capture_output=True, text=True)
    assert moved.returncode == 1 and told in moved.stderr, moved

    listed = ["fi_info", "-p", "unimem"]
    env = os.environ | {"FI_PROVIDER_PATH": str(files["libunimem-fi.so"].parent)}
    found = subprocess.run(listed, env=env, capture_output=True, text=True)
    assert "provider: unimem" in found.stdout, found
    # The board's library is in the folder above the provider, where the loader may not look.
    found = subprocess.run([*listed, "-d", "board"], env=env, capture_output=True, text=True)
    assert "domain: board" in found.stdout, found
