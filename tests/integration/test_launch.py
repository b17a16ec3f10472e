"""What `unimem run` says when the program cannot be run: what is wrong with it, and what to do."""

import ctypes
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import BUILD, VENV
from mpis import MPI_ANSWER, MPICH_OFI, compile_c, library, script

UNIMEM = BUILD / "unimem"
NOT_FOUND, NOT_EXECUTABLE = 127, 126
Make = Callable[[Path], object]


def call(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    base = {"PATH": os.environ["PATH"]}
    command = [UNIMEM, "run", *arguments]
    return subprocess.run(command, cwd=folder, env=base | env, capture_output=True, text=True, timeout=30, check=False)


def executable(content: bytes) -> Make:
    def make(path: Path) -> None:
        path.write_bytes(content)
        path.chmod(0o755)

    return make


def program(*, machine: int | None = None, length: int | None = None) -> Make:
    """Makes a program out of a real one: for another processor, or cut off."""
    image = bytearray(Path("/bin/true").read_bytes())
    if machine is not None:
        struct.pack_into("<H", image, 18, machine)
    return executable(bytes(image[:length]))


def other_loader(path: Path) -> None:
    compile_c(path, "int main(void) { return 0; }", "-Wl,--dynamic-linker=/lib/ld-of-another-system.so.1")


ARM = 40
AARCH64 = 183
OTHER = ARM if os.uname().machine == "aarch64" else AARCH64


@pytest.mark.parametrize(
    "make, status, says",
    [
        (lambda path: None, NOT_FOUND, "there is no such file, seen from {folder}. Build it"),
        (lambda path: path.symlink_to("/gone/app"), NOT_FOUND, "a symbolic link to /gone/app, which does not exist"),
        (lambda path: path.symlink_to(path), NOT_EXECUTABLE, "symbolic links"),
        (Path.mkdir, NOT_EXECUTABLE, "it is a folder"),
        (os.mkfifo, NOT_EXECUTABLE, "it is not a file"),
        (lambda path: path.write_text("#!/bin/sh\n"), NOT_EXECUTABLE, "chmod +x ./app"),
        (executable(b"#!/no/such/shell -e\ntrue\n"), NOT_EXECUTABLE, "asks for /no/such/shell, which does not exist"),
        (executable(b"#! /no/such/shell"), NOT_EXECUTABLE, "asks for /no/such/shell, which"),
        (executable(b"#!/bin/sh\r\ntrue\r\n"), NOT_EXECUTABLE, r"sed -i 's/\r$//' ./app"),
        (executable(b"#!/etc/passwd\n"), NOT_EXECUTABLE, "what runs it"),
        (executable(b""), NOT_EXECUTABLE, "it is empty"),
        (executable(b"\x7fELF"), NOT_EXECUTABLE, "a damaged program"),
        (program(length=500), NOT_EXECUTABLE, "a damaged program"),
        (program(machine=OTHER), NOT_EXECUTABLE, "another kind of processor"),
        (executable(bytes(range(256))), NOT_EXECUTABLE, "neither a program of this machine nor a script"),
        (other_loader, NOT_EXECUTABLE, "its loader /lib/ld-of-another-system.so.1 does not exist"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_with_the_file(tmp_path: Path, make: Make, status: int, says: str) -> None:
    make(tmp_path / "app")
    run = call(tmp_path, "--", "./app")
    assert (run.returncode, run.stdout) == (status, ""), run
    assert run.stderr.splitlines()[-1].startswith("unimem: cannot run ./app: "), run.stderr
    assert says.format(folder=tmp_path) in run.stderr, run.stderr


def test_names_that_are_not_in_path(tmp_path: Path) -> None:
    script(tmp_path / "here")
    for word, says in (
        ("nowhere-at-all", "add its folder to PATH"),
        ("mpiexec.nowhere", "./quickstart puts MPICH's mpiexec into .venv/bin"),
        ("A=b", "write: env A=b PROGRAM"),
        ("here", "Write: ./here"),
    ):
        run = call(tmp_path, word, "true")
        assert run.returncode == NOT_FOUND
        assert says in run.stderr and run.stderr.count("\n") == 1, run.stderr


@pytest.mark.parametrize("words", [[""], ["--", "", "true"]])
def test_an_empty_name_is_a_wrong_command_line(tmp_path: Path, words: list[str]) -> None:
    run = call(tmp_path, *words)
    assert run.returncode == 2 and "the name of the program is empty" in run.stderr, run


@pytest.mark.parametrize("words", [["run", "--mpi"], ["run", "--mpi="], ["run", "--mpi", "--", "true"], ["env", "--mpi"]])
def test_mpi_without_a_name(words: list[str]) -> None:
    run = subprocess.run([UNIMEM, *words], capture_output=True, text=True, timeout=30, check=False)
    assert run.returncode == 2, run
    assert "--mpi needs a name: mpich, openmpi, intel, sos, or any" in run.stderr, run.stderr


def test_a_text_without_first_line_is_run_by_sh(tmp_path: Path) -> None:
    executable(b'echo "$0 $*"; exit 3\n')(tmp_path / "app")
    run = call(tmp_path, "./app", "a", "b c")
    assert (run.returncode, run.stdout) == (3, "./app a b c\n")


def test_folders_of_that_name_in_path_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "first" / "tool").mkdir(parents=True)
    script(tmp_path / "second" / "tool", "echo right\n")
    assert call(tmp_path, "tool", PATH=f"{tmp_path}/first:{tmp_path}/second").stdout == "right\n"


def test_another_provider_is_named_even_quietly(tmp_path: Path) -> None:
    """-q does not suppress this warning: unimem is not used at all."""
    assert "FI_PROVIDER=tcp is yours and wins" in call(tmp_path, "-q", "true", FI_PROVIDER="tcp").stderr
    assert call(tmp_path, "-q", "true", FI_PROVIDER="unimem").stderr == ""


def test_an_empty_choice_of_provider_is_none(tmp_path: Path) -> None:
    assert call(tmp_path, "printenv", "FI_PROVIDER", FI_PROVIDER="").stdout == "unimem\n"


@pytest.mark.parametrize(
    "mpi, machine, use, expected",
    [
        ("openmpi", "shm,net", "auto", "unimem,tcp"),
        ("openmpi", "shm,net", "tcp;ofi_rxm", "unimem,tcp"),
        ("openmpi", "shm,net", "verbs;ofi_rxm", "unimem,verbs"),
        ("openmpi", "shm,net", "off", "unimem"),
        ("openmpi", "shm", "auto", "unimem"),
        ("sos", "shm,net", "auto", "unimem,tcp"),
        ("mpich", "shm,net", "auto", "unimem"),
    ],
)
def test_libraries_with_the_systems_libfabric_get_the_inner_provider_too(
    tmp_path: Path, mpi: str, machine: str, use: str, expected: str
) -> None:
    run = call(tmp_path, "--mpi", mpi, "--machine", machine, "printenv", "FI_PROVIDER", FI_UNIMEM_NET=use)
    assert run.stdout == f"{expected}\n"


def test_unimems_own_choice_of_provider_is_extended(tmp_path: Path) -> None:
    """FI_PROVIDER=unimem may come from `unimem env`."""
    net = ["--mpi", "openmpi", "--machine", "shm,net", "printenv", "FI_PROVIDER"]
    assert call(tmp_path, *net, FI_PROVIDER="unimem").stdout == "unimem,tcp\n"
    assert call(tmp_path, *net, FI_PROVIDER="unimem,verbs").stdout == "unimem,verbs\n"


def test_open_mpi_is_told_what_ranks_of_other_hosts_need(tmp_path: Path) -> None:
    name = "OMPI_MCA_mca_base_env_list"
    net = ["--mpi", "openmpi", "--machine", "shm,net"]
    run = call(tmp_path, *net, "printenv", name, FI_UNIMEM_NET="tcp", FI_LOG_LEVEL="warn")
    names = {"FI_PROVIDER_PATH", "FI_PROVIDER", "FI_UNIMEM_MACHINE", "FI_UNIMEM_NET", "FI_LOG_LEVEL"}
    assert set(run.stdout.strip().split(";")) >= names, str(run)
    assert call(tmp_path, "--mpi", "openmpi", "printenv", name).returncode == 1  # nothing leaves this host
    assert call(tmp_path, *net, "printenv", name, FI_PROVIDER="tcp").returncode == 1  # not over unimem
    # Open MPI 4 refuses a list beside -x.
    run = call(tmp_path, *net, "sh", "-c", f"printenv {name}", "-x")
    assert run.returncode == 1 and "-x FI_PROVIDER_PATH" in run.stderr and "-x FI_UNIMEM_MACHINE" in run.stderr


def test_the_programs_own_x_does_not_keep_open_mpi_from_being_told(tmp_path: Path) -> None:
    name = "OMPI_MCA_mca_base_env_list"
    script(tmp_path / "mpiexec", f"printenv {name}\n")
    script(tmp_path / "app")
    net = ["--mpi", "openmpi", "--machine", "shm,net", "./mpiexec"]
    assert "FI_UNIMEM_MACHINE" in call(tmp_path, *net, "-n", "2", "./app", "-x").stdout
    run = call(tmp_path, *net, "-n", "1", "./app", ":", "-x", "HOME", "./app")
    assert run.returncode == 1 and "-x FI_PROVIDER_PATH" in run.stderr, run
    (tmp_path / "parts").write_text("-n 1 -x HOME ./app\n")
    run = call(tmp_path, *net, "--app", "parts")
    assert run.returncode == 1 and "-x FI_PROVIDER_PATH" in run.stderr, run


def test_what_the_command_passes_on_is_not_asked_for(tmp_path: Path) -> None:
    script(tmp_path / "mpiexec", "exit 0\n")
    script(tmp_path / "app")
    net = ["--mpi", "openmpi", "--machine", "shm,net", "./mpiexec"]
    given = ["-x", "FI_PROVIDER_PATH", "-x", "FI_PROVIDER=unimem,tcp"]
    run = call(tmp_path, *net, *given, "./app")
    assert "-x FI_UNIMEM_MACHINE\n" in run.stderr and "FI_PROVIDER_PATH" not in run.stderr.splitlines()[-1], run
    run = call(tmp_path, *net, *given, "-x", "FI_UNIMEM_MACHINE", "./app")
    assert "these variables" not in run.stderr, run
    run = call(tmp_path, *net, "--mca", "mca_base_env_list", "HOME", "./app")
    needed = run.stderr.split("add to mca_base_env_list: ")[1].strip()
    assert "FI_PROVIDER_PATH" in needed.split(";"), run
    run = call(tmp_path, *net, "--mca", "mca_base_env_list", f"HOME;{needed}", "./app")
    assert "these variables" not in run.stderr, run
    net[1] = "mpich"
    assert "these variables" not in call(tmp_path, *net, "-hosts", "a,b", "./app").stderr
    for narrow in (["-genvlist", "HOME,FI_PROVIDER"], ["-genvnone"]):
        run = call(tmp_path, *net, "-hosts", "a,b", *narrow, "./app")
        names = set(run.stderr.split("-genvlist ")[1].split()[0].split(","))
        assert f"in place of {narrow[0]}\n" in run.stderr, run
        assert names >= {"FI_PROVIDER_PATH", "FI_UNIMEM_MACHINE", "MPIR_CVAR_NOLOCAL"}, run
        assert "FI_PROVIDER" in names and ("HOME" in names) == (narrow == ["-genvlist", "HOME,FI_PROVIDER"]), run
        run = call(tmp_path, *net, "-hosts", "a,b", "-genvlist", ",".join(names), "./app")
        assert "more variables" not in run.stderr, run
    run = call(tmp_path, *net, "-hosts", "a,b", "-genvlist=HOME", "-genv", "FI_PROVIDER", "unimem", "./app")
    assert "FI_PROVIDER," not in run.stderr and "-genvlist HOME," in run.stderr, run
    assert "more variables" not in call(tmp_path, *net, "-n", "2", "./app", "-genvnone").stderr


def test_where_no_launcher_is_seen_it_is_said_what_open_mpi_needs(tmp_path: Path) -> None:
    name = "OMPI_MCA_mca_base_env_list"
    script(tmp_path / "job", f"printenv {name}\n")
    run = call(tmp_path, "--machine", "shm,net", "./job")
    assert run.returncode == 1 and "variables, too: Open MPI's mpiexec -x " in run.stderr, run
    assert "these variables" not in call(tmp_path, "./job").stderr
    base = {"PATH": os.environ["PATH"], "FI_UNIMEM_MACHINE": "shm,net"}
    for mpi, says in (("openmpi", True), ("any", True), ("mpich", False)):
        env = subprocess.run(
            [UNIMEM, "env", "--mpi", mpi], env=base, capture_output=True, text=True, timeout=30, check=True
        )
        assert ("-x FI_PROVIDER_PATH" in env.stderr and "-x FI_UNIMEM_MACHINE" in env.stderr) == says, env
    run = call(tmp_path, "--machine", "shm,net", "./job", **{name: "HOME"})
    assert "add to OMPI_MCA_mca_base_env_list: FI_" in run.stderr, run


def test_a_value_with_an_equals_sign_goes_to_other_hosts(tmp_path: Path) -> None:
    """Open MPI takes an entry for NAME=VALUE if the variable's value has a '='."""
    run = call(
        tmp_path,
        *["--mpi", "openmpi", "--machine", "shm,net", "printenv", "OMPI_MCA_mca_base_env_list"],
        FI_LOG_SUBSYS="a=b",
        FI_UNIMEM_NET="tcp;ofi_rxm",
    )
    assert {"FI_LOG_SUBSYS=a=b", "FI_UNIMEM_NET"} <= set(run.stdout.strip().split(";")), run


def test_a_users_list_for_other_hosts_is_kept(tmp_path: Path) -> None:
    name = "OMPI_MCA_mca_base_env_list"
    net = ["--mpi", "openmpi", "--machine", "shm,net"]
    own = "HOME;FI_LOG_LEVEL=warn"
    run = call(tmp_path, *net, "printenv", name, FI_LOG_LEVEL="info", **{name: own})
    assert run.stdout.startswith(f"{own};") and run.stdout.count("FI_LOG_LEVEL") == 1, str(run)
    assert "FI_UNIMEM_MACHINE" in run.stdout
    twice = call(tmp_path, *net, UNIMEM, "run", *net, "printenv", name, **{name: own, "FI_LOG_LEVEL": "info"})
    assert sorted(twice.stdout.strip().split(";")) == sorted(run.stdout.strip().split(";")), str(twice)
    assert "these variables" not in twice.stderr
    run = call(tmp_path, *net, "printenv", name, **{name: "HOME,PATH", f"{name}_delimiter": ","})
    assert run.stdout.startswith("HOME,PATH,FI_"), str(run)


def test_the_heap_goes_to_other_hosts(tmp_path: Path) -> None:
    name = "OMPI_MCA_mca_base_env_list"
    net = ["--mpi", "openmpi", "--machine", "shm,net"]
    assert "LD_PRELOAD" in call(tmp_path, "--heap", *net, "printenv", name).stdout.strip().split(";")
    assert "LD_PRELOAD" not in call(tmp_path, *net, "printenv", name).stdout


def test_mpich_yields_by_the_preloaded_library(tmp_path: Path) -> None:
    library, own = str(BUILD / "libunimem-yield.so"), "/usr/lib/gcc/none.so"
    tell = ["--mpi", "mpich", "printenv", "LD_PRELOAD"]
    assert call(tmp_path, *tell).stdout == f"{library}\n"
    twice = call(tmp_path, "--mpi", "mpich", UNIMEM, "run", *tell, LD_PRELOAD=own)
    assert twice.stdout == f"{own}:{library}\n", str(twice)
    assert f"LD_PRELOAD={library}" in call(tmp_path, "-v", *tell).stderr
    heap = call(tmp_path, "--heap", *tell).stdout.strip().split(":")
    assert heap[0].endswith("libunimem-heap.so") and heap[-1] == library, heap
    ctypes.c_uint32.in_dll(ctypes.CDLL(library), "unimem_yield_found")  # the provider looks for that name


def test_who_else_yields_does_so_by_the_system(tmp_path: Path) -> None:
    tell = ["printenv", "LD_PRELOAD"]
    assert call(tmp_path, "--system-yield", "--mpi", "mpich", *tell).returncode == 1
    assert call(tmp_path, "--mpi", "openmpi", *tell).returncode == 1
    assert call(tmp_path, "--mpi", "intel", *tell).returncode == 1
    assert call(tmp_path, "--mpi", "mpich", *tell, FI_PROVIDER="tcp").returncode == 1  # not over unimem
    for name, other, ours in (("MPIR_CVAR_CH4_NETMOD", "ucx", "ofi"), ("MPIR_CVAR_NOLOCAL", "0", "1")):
        assert call(tmp_path, "--mpi", "mpich", *tell, **{name: other}).returncode == 1
        assert call(tmp_path, "--mpi", "mpich", *tell, **{name: ours}).stdout == f"{BUILD / 'libunimem-yield.so'}\n"


def test_a_program_with_an_address_sanitizer_starts(tmp_path: Path) -> None:
    source = '#include <stdio.h>\n#include <stdlib.h>\nint main(void) { return puts(getenv("LD_PRELOAD") ? "yes" : "no") < 0; }\n'
    compile_c(tmp_path / "app", source, "-fsanitize=address")
    run = call(tmp_path, "--mpi", "mpich", "./app")
    assert run.returncode == 0 and run.stdout == "no\n", str(run)
    run = call(tmp_path, "--heap", "--mpi", "openmpi", "./app")
    assert run.returncode == 0 and run.stdout == "no\n" and "runs with that" in run.stderr, str(run)


def test_without_the_yield_library_mpich_runs_and_it_is_said(tmp_path: Path) -> None:
    for name in ("unimem", "libunimem-fi.so"):
        shutil.copy(BUILD / name, tmp_path)
    command = [tmp_path / "unimem", "run", "--mpi", "mpich", "echo", "here"]
    env = {"PATH": os.environ["PATH"]}
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert run.returncode == 0 and run.stdout == "here\n", str(run)
    assert "libunimem-yield.so is not beside the provider" in run.stderr


def test_commands_that_drop_the_environment_are_named(tmp_path: Path) -> None:
    script(tmp_path / "sudo", "exit 0\n")
    assert "put `unimem run --` behind it" in call(tmp_path, "./sudo", "mpiexec").stderr
    assert "behind it" not in call(tmp_path, "./sudo", "-E", "mpiexec").stderr


TELL = 'echo "${FI_UNIMEM_MACHINE-none}"\n'


def launch(folder: Path, *words: str, before: tuple[str, ...] = ("--",), **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a launcher with an MPI program ./app; both are scripts, and the launcher prints FI_UNIMEM_MACHINE."""
    script(folder / "mpiexec", TELL)
    script(folder / "app")
    return call(folder, *before, "./mpiexec", *words, **env)


def check_noticed(run: subprocess.CompletedProcess[str], by: str | None) -> None:
    assert run.stdout == ("shm,net\n" if by else "none\n"), run
    assert (f"unimem: FI_UNIMEM_MACHINE=shm,net ({by})\n" in run.stderr) == (by is not None), run


@pytest.mark.parametrize(
    "words, by",
    [
        ("", None),
        ("-n 2 --oversubscribe ./app", None),
        ("-hosts alpha,beta", "-hosts"),
        ("-n 2 -f file ./app", "-f"),
        ("-H alpha:2,beta:2 ./app", "-H"),
        ("--hostfile=file ./app", "--hostfile=file"),
        # arguments of the program, whether or not it is known to be an MPI program
        ("-n 2 ./app -H x", None),
        ("-n 2 python3 x.py --host x", None),
        ("-wdir folder -prepend-rank ./gone -f x", None),
        ("-n 1 -- ./app -f x", None),
        ("-n 1 -- ./gone -f x", None),
        # values of options: not the program, even if they can be run, and not options
        ("-launcher ssh -launcher-exec /bin/sh -hosts alpha,beta ./app", "-hosts"),
        ("-genv SHELL /bin/sh -env A sh -f file ./app", "-f"),
        ("--mca plm_rsh_agent sh --prtemca plm_ssh_agent sh -x sh -H alpha,beta ./app", "-H"),
        ("-genv A -hosts -n 1 ./app", None),
        ("-x -H -n 1 ./app", None),
        ("-genv A=1 ./app -f x", None),
        ("-genv=A=1 ./app -f x", None),
        # options that are not known
        ("-new ./app -H x", None),
        ("-new 3 -H x ./app", "-H"),
        ("-new=3 ./app -H x", None),
        ("-new -newer -H x ./app", "-H"),
        # parts of a job
        ("-n 1 ./app : -n 1 -host beta ./app", "-host"),
        ("-n 1 ./app -host x : -n 1 ./app -host x", None),
        ("-n 1 ./app : -new : -host beta ./app", "-host"),
    ],
)
def test_hosts_among_the_words_of_the_launcher_are_noticed(tmp_path: Path, words: str, by: str | None) -> None:
    check_noticed(launch(tmp_path, *words.split()), by)


@pytest.mark.parametrize(
    "option, text, noticed",
    [
        ("-configfile", "-n 1 ./app\n-n 1 -host beta ./app\n", True),
        ("--configfile=", "-n 1 -host beta ./app", True),
        ("--app", "# -host beta\n\n-n 1 ./app -host x\n-n 1 ./app # -host beta\n", False),
        ("-configfile", "-n 1 ./app a \\\n -host x\n", False),
        ("-configfile", "-n 1 \\\n -host beta \\\n ./app\n", True),
        ("-configfile", None, False),
    ],
)
def test_hosts_in_a_file_of_the_launchers_words_are_noticed(
    tmp_path: Path, option: str, text: str | None, noticed: bool
) -> None:
    if text is not None:
        (tmp_path / "words").write_text(text)
    words = [f"{option}words"] if option.endswith("=") else [option, "words"]
    check_noticed(launch(tmp_path, *words), words[0] if noticed else None)


def test_words_that_come_from_a_pipe_are_left_to_the_launcher(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "words")
    check_noticed(launch(tmp_path, "-configfile", "words"), None)
    check_noticed(launch(tmp_path, "-f", "words"), "-f")
    check_noticed(launch(tmp_path, "-n", "2", HYDRA_HOST_FILE="words"), "HYDRA_HOST_FILE")


@pytest.mark.parametrize("before", [["--mpi", "mpich"], ["--", "env", "A=1", "timeout", "60"]])
def test_the_launchers_words_are_found_wherever_it_stands(tmp_path: Path, before: list[str]) -> None:
    check_noticed(launch(tmp_path, "-hosts", "alpha,beta", "./app", before=tuple(before)), "-hosts")
    check_noticed(launch(tmp_path, "-n", "2", "./app", "-f", "x", before=tuple(before)), None)


def test_the_launcher_that_is_recognised_counts(tmp_path: Path) -> None:
    """A script in front of the launcher may have a launcher's name, too."""
    library(tmp_path / "mpi" / "lib" / "libmpi.so.12", MPI_ANSWER, MPICH_OFI)
    launcher = str(script(tmp_path / "mpi" / "bin" / "mpiexec", TELL))
    script(tmp_path / "mpirun.sh", 'exec "$@"\n')
    check_noticed(call(tmp_path, "--", "./mpirun.sh", launcher, "-hosts", "alpha,beta", "./app"), "-hosts")


@pytest.mark.parametrize("options", [[], ["--mpi", "mpich"]])
def test_without_a_launcher_no_word_names_hosts(tmp_path: Path, options: list[str]) -> None:
    for word in ("-H", "--host=x", "-f"):
        check_noticed(call(tmp_path, *options, "--", "sh", "-c", TELL, word, "x"), None)


@pytest.mark.parametrize(
    "env, by",
    [
        ({"SLURM_JOB_NUM_NODES": "1"}, None),
        ({"SLURM_JOB_NUM_NODES": "2"}, "SLURM_JOB_NUM_NODES"),
        ({"HYDRA_HOST_FILE": "file"}, "HYDRA_HOST_FILE"),
        ({"PBS_NODEFILE": "one"}, None),
        ({"PBS_NODEFILE": "two"}, "PBS_NODEFILE"),
        ({"PBS_NODEFILE": "missing"}, None),
        ({"LSB_MCPU_HOSTS": "alpha 4"}, None),
        ({"LSB_MCPU_HOSTS": "alpha 4 beta 4"}, "LSB_MCPU_HOSTS"),
    ],
)
def test_hosts_of_a_batch_system_are_noticed(tmp_path: Path, env: dict[str, str], by: str | None) -> None:
    (tmp_path / "one").write_text("alpha\nalpha 2\nalpha")
    (tmp_path / "two").write_text("alpha 2\nalpha\nbeta 2\n")
    check_noticed(launch(tmp_path, "-n", "2", "./app", **env), by)
    check_noticed(call(tmp_path, "--", "sh", "-c", TELL, **env), by)


@pytest.mark.parametrize("env", [{"FI_UNIMEM_MACHINE": "shm"}, {"FI_UNIMEM_NET": "off"}])
def test_what_the_user_says_of_hosts_wins(tmp_path: Path, env: dict[str, str]) -> None:
    run = launch(tmp_path, "-hosts", "alpha,beta", **env)
    assert run.stdout == env.get("FI_UNIMEM_MACHINE", "none") + "\n" and "shm,net" not in run.stderr, run
    assert launch(tmp_path, "-hosts", "alpha,beta", before=("--machine", "shm", "--")).stdout == "shm\n"


@pytest.mark.parametrize(
    "words, env, net",
    [
        ("-hosts alpha,beta", {}, "on"),
        ("--host alpha:2,alpha:1,beta", {}, "on"),
        ("-f two", {}, "on"),
        ("-n 2", {"SLURM_JOB_NUM_NODES": "2"}, "on"),
        ("-n 2", {"HYDRA_HOST_FILE": "two"}, "on"),
        ("-hosts alpha,beta", {"FI_UNIMEM_MACHINE": "shm,net"}, "on"),
        ("-host alpha -n 1 ./app : -host beta -n 1", {}, "on"),
        ("-hosts-group node[1-4]", {}, "on"),
        ("-n 2", {"I_MPI_HYDRA_HOSTS_GROUP": "node[1-4]"}, "on"),
        ("-hosts [fe80::1],[fe80::2]", {}, "on"),
        ("-hosts [fe80::1]:2,[fe80::1]", {}, "none"),
        ("-hosts alpha,", {}, "none"),
        ("-hosts alpha", {}, "none"),
        ("-f absent", {}, "none"),
        ("-hosts localhost", {}, "none"),
        ("--host alpha:2,alpha", {}, "none"),
        ("-f one", {}, "none"),
        ("-n 2", {}, "none"),
        ("-hosts alpha,beta", {"FI_UNIMEM_NET": "auto"}, "auto"),
        ("-hosts alpha,beta", {"FI_UNIMEM_MACHINE": "shm"}, "none"),
    ],
)
def test_net_is_on_where_several_hosts_are_named(tmp_path: Path, words: str, env: dict[str, str], net: str) -> None:
    (tmp_path / "one").write_text("# mine\nalpha:2\n\nalpha slots=4\n")
    (tmp_path / "two").write_text("alpha 2\nbeta 2\n")
    script(tmp_path / "mpiexec", 'echo "${FI_UNIMEM_NET-none}"\n')
    script(tmp_path / "app")
    assert call(tmp_path, "--", "./mpiexec", *words.split(), "./app", **env).stdout == net + "\n"


def test_hosts_among_the_words_of_the_program_are_its_own(tmp_path: Path) -> None:
    """Behind a program that is linked with an MPI, -f is not an option of the launcher."""
    app = tmp_path / "app"
    compile_c(app, "int MPI_Init(int *, char ***); int main(void) { return MPI_Init(0, 0); }",
              "-L" + str(VENV / "lib"), "-lmpi", "-Wl,-rpath," + str(VENV / "lib"))  # fmt: skip
    for words, named in ((["-n", "1", app, "-f", "x"], False), (["-f", "x", "-n", "1", app], True)):
        run = call(tmp_path, "--", str(VENV / "bin" / "mpiexec"), *map(str, words))
        assert ("FI_UNIMEM_MACHINE=shm,net (-f)" in run.stderr) == named, run
