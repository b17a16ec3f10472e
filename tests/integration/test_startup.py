"""When `unimem run` asks an MPI library for its version, the start-up code of UCX, which takes longer than all the
rest, does not run, unless the library needs it."""

import os
import subprocess
from pathlib import Path

import pytest
from harness import BUILD
from mpis import MPI_ANSWER, MPICH_OFI, OFI_CALL, compile_c, library, script

# Each library leaves its letter in a file when its start-up code runs.
LEAVE = """
#include <stdio.h>
#include <stdlib.h>
static void leave(const char *letter)
{
    FILE *file = fopen(MARK, "a");
    fputs(letter, file);
    fclose(file);
}
"""
UCS = (
    LEAVE
    + """
int ucs_ready = 0;
int ucs_call(void) { return ucs_ready; }
void STARTUP(void) { ucs_ready = 1; leave("s"); }
"""
)
HOW = {
    "constructor": ["-DSTARTUP=__attribute__((constructor))start"],
    "DT_INIT": ["-DSTARTUP=start", "-Wl,-init,start"],
}
USES_UCS = "extern int ucs_call(void), ucs_ready; int *ucs_seen = &ucs_ready;\nint ucp_call(void) { return ucs_call(); }\n"
MPI = LEAVE + MPI_ANSWER + '__attribute__((constructor)) static void start(void) { leave("m"); }\n'
NEEDS_IT_READY = "__attribute__((constructor(101))) static void demand(void) { if (!ucs_call()) abort(); }\n"


class Tree:
    """An MPI with UCX; its libmpi needs libucs, or libucp that needs libucs."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.mark = top / "mark"
        self.launcher = script(top / "bin" / "mpiexec", 'exec "$@"\n')

    def lib(self, name: str, source: str, *options: str, needs: str | None = None) -> Path:
        link = [f"-L{self.top}/lib", "-Wl,--no-as-needed", f"-l:{needs}"] if needs else []
        paths = ["-Wl,-rpath,$ORIGIN", f'-DMARK="{self.mark}"']
        return library(self.top / "lib" / name, source, *options, *paths, *link)

    def build(self, how: str, indirect: bool = False, more: str = "") -> None:
        self.lib("libucs.so.0", UCS, *HOW[how])
        if indirect:
            self.lib("libucp.so.0", USES_UCS, needs="libucs.so.0")
            self.lib("libmpi.so.12", MPI + more, MPICH_OFI, needs="libucp.so.0")
        else:
            self.lib("libmpi.so.12", MPI + USES_UCS + more, MPICH_OFI, needs="libucs.so.0")

    def run(self, *words: str | Path) -> str:
        """Returns the line in which the command says what it found; left() then tells which start-up code ran."""
        command = [BUILD / "unimem", "run", "--", self.launcher, *words]
        env = {"PATH": os.environ["PATH"]}
        run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
        return run.stderr.splitlines()[0]

    def left(self) -> str:
        return self.mark.read_text() if self.mark.exists() else ""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("indirect", [False, True], ids=["direct", "indirect"])
def test_ucx_is_not_started(tree: Tree, how: str, indirect: bool) -> None:
    tree.build(how, indirect)
    assert tree.run("true").startswith("unimem: MPICH 4.3.0 ("), "it says itself what it is"
    assert tree.left() == "m"


@pytest.mark.parametrize("how", HOW)
def test_a_library_that_cannot_do_without_is_asked_again(tree: Tree, how: str) -> None:
    tree.build(how, more=NEEDS_IT_READY)
    assert tree.run("true").startswith("unimem: MPICH 4.3.0 (")
    assert tree.left() == "sm"


def test_a_damaged_ucx_does_no_harm(tree: Tree) -> None:
    # A library that cannot be loaded is recognised by its bytes.
    tree.build("constructor", more=OFI_CALL + 'const char *um_words = "MPICH Version:";\n')
    ucs = tree.top / "lib" / "libucs.so.0"
    whole = ucs.read_bytes()
    for size in (0, 20, 64, 200, 1000, len(whole) // 2, len(whole) - 1):
        ucs.write_bytes(whole[:size])
        assert tree.run("true").startswith("unimem: MPICH ")


def test_launcher_and_program_ask_the_same_library_once(tree: Tree) -> None:
    tree.build("constructor")
    app = compile_c(
        tree.top / "app",
        "int MPI_Get_library_version(char *, int *);\nint main(int n, char **a) { return n > 9 && MPI_Get_library_version(*a, &n); }\n",
        f"-L{tree.top}/lib",
        "-l:libmpi.so.12",
        "-Wl,-rpath,$ORIGIN/lib",
    )
    tree.run("true", app)  # `true` is what the launcher runs
    assert tree.left() == "m"
