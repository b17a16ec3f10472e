"""Stand-ins for MPIs that are not installed here: trees of files that look like an installed MPI.

Their libraries are real, compiled by the test, and answer the one question that the command asks: which MPI are you?
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

OFI_CALL = 'const char *um_call(void) { return "fi_getinfo"; }\n'
MPI_ANSWER = """
#include <string.h>
int MPI_Get_library_version(char *text, int *length)
{
    *length = (int)strlen(strcpy(text, ANSWER));
    return 0;
}
"""
SHMEM_ANSWER = """
#include <string.h>
void shmem_info_get_name(char *text) { strcpy(text, ANSWER); }
"""


def answer(text: str) -> str:
    """The -D option that makes a library answer with this text."""
    return '-DANSWER="' + text.replace("\n", "\\n").replace("\t", "\\t") + '"'


MPICH_UCX = answer("MPICH Version:\t4.0.2\nMPICH Device:\tch4:ucx\nMPICH configure:\t--with-ucx")
MPICH_OFI = answer("MPICH Version:\t4.3.0\nMPICH Device:\tch4:ofi\n")
OPENMPI4 = answer("Open MPI v4.1.6, package: Debian OpenMPI, ident: 4.1.6")
SOS = answer("Sandia OpenSHMEM 1.5.2")


def compile_c(target: Path, source: str, *options: str | Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-o", target, "-x", "c", "-", "-x", "none", *options]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)
    return target


def library(target: Path, source: str, *options: str | Path) -> Path:
    return compile_c(target, source, "-shared", "-fPIC", f"-Wl,-soname,{target.name}", *options)


def script(target: Path, text: str = "exec env\n") -> Path:
    """A launcher, a script; by default it prints its environment."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"#!/bin/sh\n{text}")
    target.chmod(0o755)
    return target


def binary(target: Path, mark: str) -> Path:
    """A launcher that contains this text, as MPICH's launchers contain HYDRA_, and prints its environment."""
    source = """
        #include <unistd.h>
        const char mark[] = MARK;
        int main(void) { return execlp("env", "env", (char *)0); }
    """
    return compile_c(target, source, f'-DMARK="{mark}"')


@dataclass(frozen=True)
class Tree:
    """An MPI installed below a folder."""

    top: Path

    @property
    def bin(self) -> Path:
        return self.top / "bin"


def sandia(top: Path, ofi: bool) -> Tree:
    library(top / "lib" / "libsma.so.3", SHMEM_ANSWER + (OFI_CALL if ofi else ""), SOS)
    script(top / "bin" / "oshrun")
    return Tree(top)


def debian(top: Path) -> Tree:
    """Open MPI and an MPICH without OFI in the same folders, as Debian installs them."""
    lib = top / "lib" / "x86_64-linux-gnu"
    library(lib / "libmpi.so.40", MPI_ANSWER, OPENMPI4)
    library(lib / "openmpi" / "lib" / "openmpi3" / "mca_mtl_ofi.so", OFI_CALL)
    library(lib / "libmpich.so.12", MPI_ANSWER, MPICH_UCX)
    binary(top / "bin" / "orterun", "orte_init")
    (top / "bin" / "mpiexec.openmpi").symlink_to("orterun")
    binary(top / "bin" / "mpiexec.hydra", "HYDRA_")
    (top / "bin" / "mpiexec.mpich").symlink_to("mpiexec.hydra")
    return Tree(top)
