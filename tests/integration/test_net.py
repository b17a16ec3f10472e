"""Another libfabric provider below unimem, as between hosts: FI_UNIMEM_MACHINE=net, and shm,net. All on the loopback.

With shm,net even and odd ranks are in different partitions, so that each rank has peers of both kinds."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import BUILD, PROGRAMS, VENV, Launcher, sent_by_machine
from test_death import RANKS, ranks_running
from test_machines import IN_PARTITION
from test_mpi4py import not_good, watch_suite

Program = Callable[[str], Path]


def mpiexec(machine: str, ranks: int) -> list[str | Path]:
    return [BUILD / "unimem", "run", "--machine", machine, "--", VENV / "bin" / "mpiexec", "-n", str(ranks)]


@pytest.fixture
def net() -> dict[str, str]:
    return {"FI_UNIMEM_NET": "on", "FI_UNIMEM_NET_ADDRESS": "127.0.0.1", "FI_UNIMEM_STATS": "1"}


@pytest.mark.parametrize("ranks", [2, 4])
def test_net_alone(launcher: Launcher, net: dict[str, str], program: Program, ranks: int) -> None:
    run = launcher.run_ranks(mpiexec("net", ranks), [program("anybody.c"), "5000"], env=net, timeout=240)
    assert run.succeeded().out == f"5000 messages of each of {ranks - 1} ranks came in order, whole\n"
    for name, arguments in (("windows.c", ["20"]), ("collectives.c", ["65536"])):
        launcher.run_ranks(mpiexec("net", ranks), [program(name), *arguments], env=net, timeout=240).succeeded()


@pytest.mark.parametrize("machines", ["shm,net", "net,shm"])
def test_both_ways_at_once(launcher: Launcher, net: dict[str, str], program: Program, machines: str) -> None:
    for name, arguments in (("anybody.c", ["5000"]), ("windows.c", ["20"]), ("collectives.c", ["65536"])):
        command = [*IN_PARTITION, program(name), *arguments]
        run = launcher.run_ranks(mpiexec(machines, 4), command, env=net, timeout=240).succeeded()
        sent = sent_by_machine(run)
        assert sent["net"] > 0 and (sent["shm"] > 0) == (machines == "shm,net"), str(run)


TCP_PORTS = """
import os
from mpi4py import MPI
here = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}
lines = open("/proc/self/net/tcp").read().splitlines()[1:]
fields = [line.split() for line in lines]
listening = [f for f in fields if f[3] == "0A" and f[1].startswith("0100007F:") and f"socket:[{f[9]}]" in here]
MPI.COMM_WORLD.Barrier()
print("listens on", len(listening), flush=True)
"""


@pytest.mark.parametrize("group", ["net", pytest.param("net_broken", marks=pytest.mark.long)])
def test_the_machine_over_tcp_itself(launcher: Launcher, group: str) -> None:
    """With MPICH's libfabric: Debian's has only tcp;ofi_rxm, which keeps messages until they are whole."""
    env = {"LD_LIBRARY_PATH": str(VENV / "lib" / "mpich")}
    launcher.run([BUILD / "tests" / "conformance" / "conformance", "net", group], env=env, timeout=240).succeeded()


@pytest.mark.parametrize("use", ["auto", "on", "off"])
def test_a_job_on_one_host_opens_no_port(launcher: Launcher, net: dict[str, str], use: str) -> None:
    command = [VENV / "bin" / "python", "-c", TCP_PORTS]
    env = net | {"FI_UNIMEM_NET": use}
    run = launcher.run_ranks(mpiexec("shm,net", 2), command, env=env, timeout=60).succeeded()
    assert run.out == ("listens on 1\n" if use == "on" else "listens on 0\n") * 2, str(run)


def test_ranks_with_different_providers_are_told(launcher: Launcher, net: dict[str, str], program: Program) -> None:
    other = ["sh", "-c", 'test $PMI_RANK = 0 || export FI_UNIMEM_NET="tcp;ofi_rxm"; exec "$@"', "sh"]
    env = net | {"FI_PROVIDER": "unimem,tcp"}
    run = launcher.run_ranks(mpiexec("net", 2), [*other, program("anybody.c"), "10"], env=env, timeout=60)
    assert run.status != 0 and "give every process the same FI_UNIMEM_NET" in run.err, str(run)


def test_too_few_lanes_are_told(launcher: Launcher, net: dict[str, str], program: Program) -> None:
    """MPI_Init waits until another rank leaves, which none does."""
    env = launcher.environment(None, net | {"FI_UNIMEM_LANES": "1"})
    job = launcher.start_ranks(mpiexec("net", 4), [program("anybody.c"), "10"], env)
    job.wait_for("err", "set FI_UNIMEM_LANES to at least the number of processes", 1)
    launcher.kill_leftovers()
    assert job.finish(timeout=30).status != 0


AHEAD = """
import resource
from mpi4py import MPI
world = MPI.COMM_WORLD
COUNT, LENGTH = 800, 200000
if world.rank == 0:
    bodies = [bytes([i % 251]) * LENGTH for i in range(COUNT)]
    requests = [world.Isend(bodies[i], 1, i) for i in range(COUNT)] + [world.Isend(b"all", 1, COUNT)]
    MPI.Request.Waitall(requests)
else:
    body = bytearray(LENGTH)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    world.Recv(body, 0, COUNT)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, flush=True)
    for i in reversed(range(COUNT)):
        world.Recv(body, 0, i)
        assert body == bytes([i % 251]) * LENGTH, i
"""


def test_a_sender_that_runs_ahead_keeps_its_bodies(launcher: Launcher, net: dict[str, str]) -> None:
    """160 MB of messages have no posted receive. The receiver copies about a quarter of FI_UNIMEM_UNEXPECTED_MEMORY."""
    command = [VENV / "bin" / "python", "-c", AHEAD]
    run = launcher.run_ranks(mpiexec("net", 2), command, env=net, timeout=120).succeeded()
    assert int(run.out) < 40, str(run)


@pytest.mark.parametrize(("rounds", "breaks"), [(150, 3), pytest.param(600, 12, marks=pytest.mark.long)])
def test_connections_that_break_lose_nothing(
    launcher: Launcher, net: dict[str, str], program: Program, rounds: int, breaks: int
) -> None:
    command = [program("broken.c"), str(rounds), str(breaks)]
    run = launcher.run_ranks(mpiexec("net", 2), command, env=net, timeout=240)
    assert run.succeeded().out == f"{rounds} rounds, connections broke\n", str(run)


def test_one_rank_killed_ends_the_job(launcher: Launcher, net: dict[str, str], program: Program) -> None:
    job = launcher.start_ranks(mpiexec("net", RANKS), [program("forever.c")], launcher.environment(None, net))
    os.kill(ranks_running(job, RANKS)[1], signal.SIGKILL)
    run = job.finish(timeout=60)
    assert run.status != 0 and "is not found" not in run.err, str(run)


def test_part_of_mpi4py(launcher: Launcher, net: dict[str, str], suite_directory: Path, tmp_path: Path) -> None:
    """Point to point, collectives and windows of mpi4py's own tests. Not test_rma: it takes a minute, because the
    target executes everything."""
    wanted = ["-i", "test_p2p", "-i", "test_cco_buf", "-i", "test_win"]
    prefix = tmp_path / "net"
    suite = [VENV / "bin" / "python", PROGRAMS / "mpi4py_suite.py", suite_directory, prefix, *wanted]
    command = [str(part) for part in (*mpiexec("net", 2), *suite)]
    outcomes = watch_suite(launcher, command, launcher.environment(None, net), 2, suite_directory, prefix)
    assert not not_good(outcomes), json.dumps(not_good(outcomes), indent=1)
    assert sum(outcome == "passed" for outcome in outcomes[0].values()) > 200
