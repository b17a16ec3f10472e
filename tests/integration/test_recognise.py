"""`unimem run` recognises the MPI that it is to start, sets what this MPI needs, and refuses MPIs that cannot use
unimem."""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import BUILD, TOP, VENV
from mpis import MPI_ANSWER, MPICH_OFI, OFI_CALL, SHMEM_ANSWER, SOS, binary, compile_c, debian, library, sandia, script

UNIMEM = BUILD / "unimem"
PROVIDER = f"{BUILD}/libunimem-fi.so"
ALWAYS = {"FI_PROVIDER_PATH": str(BUILD), "FI_PROVIDER": "unimem"}
MPICH = ALWAYS | {"MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1", "FI_UNIMEM_MPICH_ATOMICS": "1"}
MPICH |= {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "67108864"}
OPENMPI = ALWAYS | {"OMPI_MCA_pml": "cm", "OMPI_MCA_mtl": "ofi", "OMPI_MCA_osc": "^ucx"}
OPENMPI_4 = OPENMPI | {"OMPI_MCA_mtl_ofi_provider_include": "unimem"}
OPENMPI_5 = OPENMPI | {"OMPI_MCA_opal_common_ofi_provider_include": "unimem"}
INTEL = ALWAYS | {"I_MPI_FABRICS": "ofi", "I_MPI_OFI_PROVIDER": "unimem"}
SANDIA = ALWAYS | {"SHMEM_OFI_PROVIDER": "unimem"}
ALL = MPICH | OPENMPI_4 | OPENMPI_5 | INTEL | SANDIA


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def settings(self) -> dict[str, str]:
        """The variables that -v shows as set."""
        return dict(re.findall(r"^unimem: (\w+)=(.*) \((?:set|yours, \w+)\)$", self.err, re.MULTILINE))

    @property
    def choice(self) -> str:
        return self.err.splitlines()[0]


def call(*arguments: str | Path, **env: str) -> Outcome:
    base = {"PATH": os.environ["PATH"], "HOME": "/"}  # Open MPI will not start without HOME
    run = subprocess.run([UNIMEM, *arguments], env=base | env, capture_output=True, text=True, timeout=60, check=False)
    return Outcome(run.returncode, run.stdout, run.stderr)


@dataclass(frozen=True)
class Installed:
    """A real MPI of this machine."""

    launcher: Path
    title: str
    variables: dict[str, str]
    compiler: Path | None = None

    @property
    def library(self) -> str:
        return self.title.split()[0]


def installed(name: str) -> Installed:
    openmpi5, impi = TOP / ".venv-openmpi" / "bin", TOP / ".venv-impi" / "bin"
    found = {
        "mpich": Installed(VENV / "bin" / "mpiexec", "MPICH 5.0.2", MPICH, VENV / "bin" / "mpicc"),
        "openmpi5": Installed(openmpi5 / "mpiexec", "Open MPI 5.", OPENMPI_5, openmpi5 / "mpicc"),
        "openmpi4": Installed(
            Path("/usr/bin/mpirun.openmpi"), "Open MPI 4.1.", OPENMPI_4, Path("/usr/bin/mpicc.openmpi")
        ),
        "impi": Installed(
            impi / "mpiexec", "Intel MPI 2021.", INTEL | {"FI_PROVIDER_PATH": f"{BUILD}:{impi.parent.resolve()}/lib"}
        ),
    }[name]
    if not found.launcher.exists():
        pytest.skip(f"{found.launcher} is not installed")
    return found


@pytest.fixture(params=["mpich", "openmpi5", "openmpi4", "impi"])
def mpi(request: pytest.FixtureRequest) -> Installed:
    return installed(request.param)


@pytest.fixture(params=["mpich", "openmpi5", "openmpi4"])
def compiling_mpi(request: pytest.FixtureRequest) -> Installed:
    return installed(request.param)


def build(mpi: Installed, target: Path) -> Path:
    """Builds a program that is linked with this MPI and ends at once."""
    source = target.with_suffix(".c")
    source.write_text("#include <mpi.h>\nint main(void) { int flag; return MPI_Initialized(&flag); }\n")
    subprocess.run([str(mpi.compiler), "-o", target, source], check=True, timeout=60)
    return target


# --- real MPIs --------------------------------------------------------------------------------------------------


def test_launcher_tells_the_mpi(mpi: Installed) -> None:
    run = call("run", "-v", "--", mpi.launcher, "--version")
    assert run.status == 0, run.err
    assert run.choice.startswith(f"unimem: {mpi.title}"), run.err
    assert run.choice.endswith(f" over {PROVIDER}"), run.err
    assert run.settings == mpi.variables, run.err


def test_one_line_says_what_was_chosen(mpi: Installed) -> None:
    ours = [line for line in call("run", mpi.launcher, "--version").err.splitlines() if line.startswith("unimem:")]
    assert len(ours) == 1, ours
    assert call("run", "-q", mpi.launcher, "--version").err.count("unimem:") == 0


def test_launcher_is_found_in_path_and_behind_links(mpi: Installed, tmp_path: Path) -> None:
    run = call("run", mpi.launcher.name, "--version", PATH=f"{mpi.launcher.parent}:{os.environ['PATH']}")
    assert run.choice.startswith(f"unimem: {mpi.title}"), run.err
    link = tmp_path / "mpiexec"
    link.symlink_to(mpi.launcher)
    run = call("run", link, "--version")
    assert f"unimem: {mpi.title}" in run.err, run.err


def test_launcher_is_found_behind_other_commands(mpi: Installed) -> None:
    run = call("run", "-v", "--", "env", "A=b", "timeout", "60", mpi.launcher, "--version")
    assert run.settings == mpi.variables, run.err


def test_intel_mpirun_is_a_script() -> None:
    mpi = installed("impi")
    run = call("run", "-v", mpi.launcher.parent / "mpirun", "--version", PATH=f"{mpi.launcher.parent}:/usr/bin:/bin")
    assert run.settings == mpi.variables, run.err


def test_program_alone_tells_the_mpi(compiling_mpi: Installed, tmp_path: Path) -> None:
    run = call("run", "-v", build(compiling_mpi, tmp_path / "app"))
    assert run.status == 0, run.err
    assert run.choice.startswith(f"unimem: {compiling_mpi.title}"), run.err
    assert run.settings == compiling_mpi.variables, run.err


def test_program_decides_and_a_launcher_of_another_mpi_is_named(tmp_path: Path) -> None:
    program = build(installed("mpich"), tmp_path / "app")
    launcher = installed("openmpi4").launcher
    run = call("run", "-v", launcher, "--version", program)
    assert run.settings == MPICH, run.err
    assert f"{launcher} belongs to Open MPI, but {program} is linked with MPICH" in run.err
    run = call("run", "-v", installed("mpich").launcher, "--version", program)
    assert run.settings == MPICH and "belongs to" not in run.err, run.err


def test_python_of_a_virtual_environment_tells_the_mpi(tmp_path: Path) -> None:
    run = call("run", "-v", VENV / "bin" / "python", "-c", "pass")
    assert run.choice.startswith("unimem: MPICH 5.0.2"), run.err
    assert run.settings == MPICH, run.err
    # The system's Python has nothing to do with the MPI in /usr/lib.
    assert call("run", "/usr/bin/python3", "-c", "pass").choice.startswith("unimem: no MPI recognised")


def test_python_does_not_overrule_the_launcher(tmp_path: Path) -> None:
    library(tmp_path / "lib" / "libmpi.so.12", MPI_ANSWER, MPICH_OFI)
    (tmp_path / "pyvenv.cfg").touch()
    python = script(tmp_path / "bin" / "python", "exit 0\n")
    launcher = debian(tmp_path / "debian").bin / "orterun"
    assert call("run", "-v", python, "x.py").settings == MPICH
    assert call("run", "-v", launcher, python, "x.py").settings == OPENMPI_4


def test_debians_mpich_is_refused() -> None:
    launcher = Path("/usr/bin/mpiexec.mpich")
    if not launcher.exists():
        pytest.skip(f"{launcher} is not installed")
    run = call("run", launcher, "--version")
    assert (run.status, run.out) == (1, "")
    assert "built for ch4:ucx cannot use unimem" in run.err and "pip install mpich" in run.err, run.err


# --- stand-ins --------------------------------------------------------------------------------------------------


def test_sandia_openshmem(tmp_path: Path) -> None:
    tree = sandia(tmp_path, ofi=True)
    run = call("run", "-v", tree.bin / "oshrun", "-np", "2", "./app")
    assert run.choice.startswith("unimem: Sandia OpenSHMEM 1.5.2 ("), run.err
    assert run.settings == SANDIA, run.err
    assert "SHMEM_OFI_PROVIDER=unimem" in run.out.splitlines()


def test_sandia_openshmem_by_its_program_under_mpichs_launcher(tmp_path: Path) -> None:
    sma = library(tmp_path / "lib" / "libsma.so.3", SHMEM_ANSWER + OFI_CALL, SOS)
    source = "void shmem_info_get_name(char *);\nint main(int n, char **v) { if (n > 99) shmem_info_get_name(v[0]); }"
    app = compile_c(tmp_path / "bin" / "app", source, sma, "-Wl,-rpath,$ORIGIN/../lib")
    launcher = script(tmp_path / "other" / "bin" / "mpiexec", "exit 0\n")
    library(tmp_path / "other" / "lib" / "libmpi.so.12", MPI_ANSWER, MPICH_OFI)
    run = call("run", "-v", launcher, "-n", "2", app)
    assert run.settings == SANDIA, run.err
    assert "belongs to" not in run.err


def test_sandia_openshmem_without_ofi_is_refused(tmp_path: Path) -> None:
    run = call("run", sandia(tmp_path, ofi=False).bin / "oshrun", "./app")
    assert (run.status, run.out) == (1, ""), "the program must not be started"
    assert "cannot use unimem" in run.err and "--with-ofi" in run.err, run.err


def test_mpis_that_share_their_folders_are_told_apart(tmp_path: Path) -> None:
    tree = debian(tmp_path)
    for name in ("mpiexec.openmpi", "orterun"):
        run = call("run", "-v", tree.bin / name)
        assert run.choice.startswith("unimem: Open MPI 4.1.6"), run.err
        assert run.settings == OPENMPI_4, run.err
    for name in ("mpiexec.mpich", "mpiexec.hydra"):
        run = call("run", tree.bin / name)
        assert (run.status, run.out) == (1, ""), "the program must not be started"
        assert "MPICH 4.0.2" in run.err and "built for ch4:ucx cannot use unimem" in run.err, run.err
        assert "What to do:" in run.err and "pip install mpich" in run.err, run.err


def test_a_library_of_another_mpi_beside_the_launcher_is_passed_over(tmp_path: Path) -> None:
    tree = debian(tmp_path)
    library(tmp_path / "lib" / "libmpi.so.12", MPI_ANSWER, MPICH_OFI)  # is found before the libraries of debian()
    assert call("run", "-v", tree.bin / "orterun").settings == OPENMPI_4
    assert call("run", "-v", tree.bin / "mpiexec.hydra").settings == MPICH


def test_a_link_into_the_folder_of_the_library(tmp_path: Path) -> None:
    """The file of the launcher may lie elsewhere, without a library beside it."""
    target = script(tmp_path / "elsewhere" / "launch")
    library(tmp_path / "mpi" / "lib" / "libmpi.so.12", MPI_ANSWER, MPICH_OFI)
    (tmp_path / "mpi" / "bin").mkdir()
    (tmp_path / "mpi" / "bin" / "mpiexec").symlink_to(target)
    assert call("run", "-v", tmp_path / "mpi" / "bin" / "mpiexec").settings == MPICH


def test_open_mpi_without_ofi_is_refused(tmp_path: Path) -> None:
    tree = debian(tmp_path)
    next(tmp_path.rglob("mca_mtl_ofi.so")).unlink()
    run = call("run", tree.bin / "mpiexec.openmpi")
    assert (run.status, run.out) == (1, "")
    assert "no OFI component" in run.err and "openmpi-bin" in run.err, run.err


def test_a_folder_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    tree = debian(tmp_path / "mpi[test]*?")
    assert call("run", "-v", tree.bin / "mpiexec.openmpi").settings == OPENMPI_4


def test_naming_the_mpi_overrules_what_is_recognised(tmp_path: Path) -> None:
    run = call("run", "-v", "--mpi", "mpich", "--", debian(tmp_path).bin / "mpiexec.mpich")
    assert run.status == 0, run.err
    assert run.settings == MPICH


@pytest.mark.parametrize(
    "body", ["__attribute__((constructor)) static void die(void) { __builtin_trap(); }", "extern int nowhere; int *p = &nowhere;"]
)
def test_a_library_that_cannot_be_loaded_is_known_by_its_bytes(tmp_path: Path, body: str) -> None:
    source = f'{body}\nconst char *say(void) {{ return "MPICH Version:"; }}\n'
    library(tmp_path / "lib" / "libmpi.so.12", source + OFI_CALL)
    run = call("run", "-v", script(tmp_path / "bin" / "mpiexec"))
    assert run.choice.startswith("unimem: MPICH ("), run.err
    assert run.settings == MPICH, run.err


def test_a_launcher_whose_library_is_out_of_sight_is_known_by_its_bytes(tmp_path: Path) -> None:
    for mark, variables in (("HYDRA_", MPICH), ("orte_init", OPENMPI_4 | OPENMPI_5), ("Intel(R) MPI", INTEL)):
        assert call("run", "-v", binary(tmp_path / "bin" / "mpiexec", mark)).settings == variables


def elf_variants() -> Iterator[bytes]:
    """Damaged programs: cut off, and with each field of the headers and the dynamic section made absurd."""
    whole = Path("/bin/true").read_bytes()
    yield from (whole[:length] for length in (0, 3, 16, 63, 64, 100, 500, len(whole) // 2))
    for at in range(16, 64 + 56 * 13, 4):
        yield whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4 :]
    for at in range(16, 64 + 56 * 13, 8):
        yield whole[:at] + b"\xff" * 8 + whole[at + 8 :]


def test_damaged_programs_do_no_harm(tmp_path: Path) -> None:
    program = tmp_path / "app"
    for image in elf_variants():
        program.write_bytes(image)
        program.chmod(0o755)
        run = call("run", "--", "true", program)
        assert run.status == 0, f"{image[:64].hex()}: {run.status} {run.err}"


# --- nothing recognised, names, other providers --------------------------------------------------------------------


def test_nothing_recognised_sets_the_variables_of_all_and_says_so() -> None:
    run = call("run", "-v", "--", "true")
    assert run.choice.startswith("unimem: no MPI recognised"), run.err
    assert run.settings == ALL


@pytest.mark.parametrize(
    "name, variables",
    [
        ("mpich", MPICH),
        ("openmpi", OPENMPI_4 | OPENMPI_5),
        ("intel", INTEL),
        ("impi", INTEL),
        ("sos", SANDIA),
        ("any", ALL),
    ],
)
def test_the_mpi_can_be_named(name: str, variables: dict[str, str]) -> None:
    assert call("run", "-v", "--mpi", name, "true").settings == variables
    assert call("run", "-v", f"--mpi={name}", "true").settings == variables
    exports = dict(re.findall(r"^export (\w+)='(.*)'$", call("env", "--mpi", name).out, re.MULTILINE))
    assert exports == variables


@pytest.mark.parametrize("command", [["run", "--mpi", "lam", "true"], ["env", "--mpi=lam"]])
def test_an_unknown_name_is_refused(command: list[str]) -> None:
    run = call(*command)
    assert run.status == 2
    assert "mpich, openmpi, intel, sos" in run.err


@pytest.mark.parametrize(
    "chosen, named", [("tcp", "tcp"), ("tcp,sockets", None), ("^unimem", None), ("tcp;ofi_rxm", "tcp;ofi_rxm")]
)
def test_another_provider_is_the_users_and_is_named(chosen: str, named: str | None) -> None:
    run = call("run", "-v", "true", FI_PROVIDER=chosen)
    assert f"FI_PROVIDER={chosen} is yours and wins" in run.choice, run.err
    for variable in ("OMPI_MCA_mtl_ofi_provider_include", "I_MPI_OFI_PROVIDER", "SHMEM_OFI_PROVIDER"):
        assert run.settings.get(variable) == named, "the MPI must not be told to use another provider than libfabric"
    assert f"FI_PROVIDER={chosen} is yours and wins" in call("env", FI_PROVIDER=chosen).err


@pytest.mark.parametrize("name, value", [("MPIR_CVAR_NOLOCAL", "0"), ("OMPI_MCA_pml", "ob1"), ("I_MPI_FABRICS", "shm")])
def test_a_setting_that_keeps_unimem_out_is_named(name: str, value: str) -> None:
    for command in (["run", "-q", "true"], ["env"]):
        assert f"{name}={value} is yours and wins over {ALL[name]}" in call(*command, **{name: value}).err
        assert "is yours" not in call(*command, **{name: ALL[name]}).err
        assert "is yours" not in call(*command, OMPI_MCA_osc="rdma").err, "that one leaves the messages to unimem"


def test_a_colon_in_the_path_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a:b"
    folder.mkdir()
    for name in ("unimem", "libunimem-fi.so"):
        (folder / name).write_bytes((BUILD / name).read_bytes())
    (folder / "unimem").chmod(0o755)
    run = subprocess.run([folder / "unimem", "run", "true"], capture_output=True, text=True, timeout=30, check=False)
    assert run.returncode == 1
    assert f"{folder} has a ':'" in run.stderr and "meson setup" in run.stderr, run.stderr
