"""Wrong settings are refused with a message that helps; for what the system refuses there is a fallback."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from fabric_tools import pingpong, rows, tool, tool_environment
from harness import BUILD, Launcher, Run, sent_by_machine, stats_lines

Program = Callable[[str], Path]

WRONG = [
    ("FI_UNIMEM_MACHINE", "abacus"),
    ("FI_UNIMEM_NET", "every provider"),
    ("FI_UNIMEM_NET", "unimem"),
    ("FI_UNIMEM_NET_ADDRESS", "10.1.2.3/24"),
    ("FI_UNIMEM_NET_TIMEOUT", "1.5"),
    ("FI_UNIMEM_BOARD_LIBRARY", "/nonexistent/libboard.so"),
    ("FI_UNIMEM_BOARD_STEP", "giant"),
    ("FI_UNIMEM_COPY", "maybe"),
    ("FI_UNIMEM_SHM_STORES", "fast"),
    ("FI_UNIMEM_STATS", "2"),
    ("FI_UNIMEM_LINGER", "long"),
    ("FI_UNIMEM_ADOPT", "some"),
    ("FI_UNIMEM_MAPPED", "heap"),
    ("FI_UNIMEM_MPICH_ATOMICS", "both"),
    ("FI_UNIMEM_ATTACH", "somehow"),
    ("FI_UNIMEM_ATTACH", "shm/dir"),
    ("FI_UNIMEM_ATTACH", "/" + 79 * "x"),
    ("FI_UNIMEM_LANES", "0"),
    ("FI_UNIMEM_LANES", "-1"),
    ("FI_UNIMEM_LANES", "4x"),
    ("FI_UNIMEM_LANES", "4097"),
    ("FI_UNIMEM_LANES", "99999999999999999999"),
    ("FI_UNIMEM_LANE_MEMORY", "1"),
    ("FI_UNIMEM_PARTITION", "-1"),
    ("FI_UNIMEM_MACHINE", "sim"),
    ("FI_UNIMEM_MACHINE", "shm,shm"),
    ("FI_UNIMEM_MACHINE", "board,"),
    ("FI_UNIMEM_UNEXPECTED_MEMORY", "all"),
    ("FI_UNIMEM_LANE_MEMORY", "much"),
]


def test_every_variable_is_listed_and_tried_here(launcher: Launcher) -> None:
    listing = launcher.run([tool("fi_info"), "-e"], env=tool_environment(launcher)).succeeded().out
    assert set(re.findall(r"FI_UNIMEM_\w+", listing)) == {name for name, _ in WRONG}


@pytest.mark.parametrize("name, value", WRONG)
def test_wrong_value_is_refused_with_a_remedy(launcher: Launcher, name: str, value: str) -> None:
    run = launcher.run([tool("fi_info"), "-p", "unimem"], env=tool_environment(launcher) | {name: value})
    assert run.status != 0, "a wrong value must not be taken for another one"
    assert f"{name}={value}" in run.err, str(run)
    assert "allowed" in run.err, str(run)


def test_wrong_value_ends_an_mpi_program_at_once(launcher: Launcher, program: Program) -> None:
    run = launcher.mpi(2, [program("exchange.c"), 1, 1], env={"FI_UNIMEM_LANES": "many"}, timeout=30)
    assert run.status != 0
    assert "FI_UNIMEM_LANES=many" in run.out + run.err, str(run)


def test_missing_library_ends_an_mpi_program_at_once(launcher: Launcher, program: Program, tmp_path: Path) -> None:
    """What docs/troubleshooting.md describes."""
    env = {"FI_PROVIDER": "unimem", "FI_PROVIDER_PATH": str(tmp_path), "MPIR_CVAR_CH4_NETMOD": "ofi"}
    mpiexec = launcher.mpi_command(1)[3:]
    run = launcher.run_ranks(mpiexec, [program("exchange.c"), 1, 1], env=env | {"MPIR_CVAR_NOLOCAL": "1"}, timeout=30)
    assert run.status != 0
    assert "OFI call getinfo failed" in run.out + run.err, str(run)


@pytest.mark.parametrize(
    "env",
    [
        {"FI_UNIMEM_COPY": "0"},
        {"FI_UNIMEM_LINGER": "0"},
        {"FI_UNIMEM_SHM_STORES": "nontemporal"},
        {"FI_UNIMEM_ADOPT": "0"},
        {"FI_UNIMEM_MPICH_ATOMICS": "1"},
        {"FI_UNIMEM_LANES": "4"},  # as many as a rank has peers
        {"FI_UNIMEM_LANE_MEMORY": "65536"},
        {"FI_UNIMEM_LANES": "4", "FI_UNIMEM_LANE_MEMORY": "65536", "FI_UNIMEM_COPY": "0"},
    ],
    ids=lambda env: " ".join(f"{name[10:].lower()}={value}" for name, value in env.items()),
)
def test_tight_settings_slow_down_but_work(launcher: Launcher, program: Program, env: dict[str, str]) -> None:
    launcher.mpi(2, [program("exchange.c"), 100, 10], env=env).succeeded()
    launcher.mpi(5, [program("collectives.c"), 65536], env=env).succeeded()


def test_too_few_lanes_are_named(launcher: Launcher, program: Program) -> None:
    """If there are more peers than lanes, and none leaves, the job waits, as the manual page says; the log says why."""
    env = {"FI_UNIMEM_LANES": "1", "FI_LOG_LEVEL": "info", "FI_LOG_PROV": "unimem"}
    job = launcher.start_ranks(launcher.mpi_command(5), [program("collectives.c"), 64], launcher.environment(extra=env))
    (said, *_) = job.wait_for("err", "lanes into a peer are taken.*", 1)
    launcher.kill_leftovers()
    run = job.finish(timeout=60)
    assert "all 1 lanes into a peer are taken" in run.err and "set FI_UNIMEM_LANES to at least" in said[0], str(run)


@pytest.mark.parametrize(
    "refused",
    [
        "process_vm_readv",
        "process_vm_writev",
        "process_vm_readv,process_vm_writev",
        "userfaultfd",
        "membarrier",
        "pidfd_open,pidfd_getfd",
    ],
)
def test_refused_system_calls_have_a_substitute(launcher: Launcher, program: Program, refused: str) -> None:
    refuse = program("refuse.c")
    command = [refuse, refused, program("exchange.c"), 50, 10]
    run = launcher.mpi(2, command, env={"FI_UNIMEM_STATS": "1"}).succeeded()
    assert all(line["rendezvous"] >= 10 for line in stats_lines(run)), str(run)
    launcher.mpi(5, [refuse, refused, program("collectives.c"), 65536]).succeeded()


def test_one_side_refused_is_enough_for_the_substitute(launcher: Launcher, program: Program) -> None:
    """As with a rank in a container and its peer outside."""
    exchange = [program("exchange.c"), "50", "10"]
    refused = [program("refuse.c"), "process_vm_readv,process_vm_writev", *exchange]
    launcher.mpi(1, refused, more=[exchange]).succeeded()


@pytest.mark.parametrize("options", ["ro", "size=4k"])
def test_unusable_dev_shm(launcher: Launcher, options: str, provider: str) -> None:
    """/dev/shm may be read-only or full: unimem does not need it. (MPICH itself does, so this runs fi_pingpong.)"""
    wrapped = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o {options} tmpfs /dev/shm && exec "$0" "$@"']
    run = pingpong(launcher, provider, "-c", wrapper=wrapped)
    assert len(rows(run)) > 5


def test_build_folder_holds_one_provider(launcher: Launcher) -> None:
    """libfabric loads every file of the folder that looks like a provider."""
    providers = [path.name for path in BUILD.iterdir() if path.name.endswith("-fi.so")]
    assert providers == ["libunimem-fi.so"]
    run = launcher.run([tool("fi_info"), "-p", "unimem"], env=tool_environment(launcher)).succeeded()
    assert run.out.count("provider: unimem") >= 1


APART = ["unshare", "--pid", "--fork", "--mount-proc"]


def run_apart(launcher: Launcher, program: list[str], *options: str, env: dict[str, str] | None = None) -> Run:
    """Runs two ranks, each in a pid namespace of its own."""
    wrapped = [*APART, *options, *program]
    return launcher.mpi(1, wrapped, more=[wrapped], env=env)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make pid namespaces")
@pytest.mark.parametrize("how, options", [("abstract", []), ("directory", []), ("directory", ["--net"])])
def test_ranks_in_two_pid_namespaces(launcher: Launcher, program: Program, tmp_path: Path, how: str, options: list[str]) -> None:
    tmp_path.chmod(0o700)
    env = {"FI_UNIMEM_ATTACH": "abstract" if how == "abstract" else str(tmp_path), "FI_UNIMEM_STATS": "1"}
    for command in ([str(program("exchange.c")), "50", "10"], [str(program("collectives.c")), "65536"]):
        run = run_apart(launcher, command, *options, env=env).succeeded()
        assert all(line["copied"] == 0 and line["sent"] > 0 for line in stats_lines(run)), str(run)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make pid namespaces")
def test_ranks_that_share_no_memory_go_over_the_network(launcher: Launcher, program: Program) -> None:
    env = {"FI_UNIMEM_MACHINE": "shm,net", "FI_UNIMEM_NET": "on", "FI_UNIMEM_NET_ADDRESS": "127.0.0.1"}
    for command in ([str(program("exchange.c")), "50", "10"], [str(program("collectives.c")), "65536"]):
        run = run_apart(launcher, command, env=env | {"FI_UNIMEM_STATS": "1"}).succeeded()
        assert sent_by_machine(run)["net"] > 0, str(run)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make pid namespaces")
def test_another_pid_namespace_is_refused_with_the_remedy(launcher: Launcher, program: Program) -> None:
    run = run_apart(launcher, [str(program("exchange.c")), "1", "1"])
    assert run.status != 0 and "set FI_UNIMEM_ATTACH" in run.out + run.err, str(run)
