"""Programs over the board in software: what a user of FI_UNIMEM_MACHINE=board sees. The board takes no time, except in
the test of the model of time.

test_mpi4py.py runs mpi4py's own tests over it, too.
"""

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fabric_tools import pingpong, rows, tool, tool_environment
from harness import BUILD, VENV, Launcher, Run, stats_lines

Program = Callable[[str], Path]
MPIEXEC = [BUILD / "unimem", "run", "--machine", "board", "--", VENV / "bin" / "mpiexec", "-n"]


@pytest.fixture
def board() -> Iterator[dict[str, str]]:
    """The environment of a board of its own."""
    yield {"UNIMEM_BOARD": f"test-{uuid.uuid4().hex[:12]}", "UNIMEM_EMU_TIMING": "off"}


def run(launcher: Launcher, env: dict[str, str], *command: str | Path, ranks: int = 2, timeout: float = 240) -> Run:
    return launcher.run_ranks([*MPIEXEC, str(ranks)], command, env=env, timeout=timeout)


def test_fi_info_shows_the_board(launcher: Launcher) -> None:
    env = tool_environment(launcher)
    by_name = launcher.run([tool("fi_info"), "-p", "unimem", "-d", "board"], env=env).succeeded()
    by_variable = launcher.run([tool("fi_info"), "-p", "unimem"], env=env | {"FI_UNIMEM_MACHINE": "board"}).succeeded()
    assert by_name.out == by_variable.out and "domain: board" in by_name.out, str(by_name)
    usual = launcher.run([tool("fi_info"), "-p", "unimem"], env=env).succeeded()
    assert "domain: unimem" in usual.out and "board" not in usual.out, str(usual)
    unknown = launcher.run([tool("fi_info"), "-p", "unimem", "-d", "table"], env=env | {"FI_LOG_LEVEL": "info"})
    assert unknown.status != 0 and "only shm, board" in unknown.err, str(unknown)


@pytest.mark.parametrize("mode", ["msg", "tagged"])
def test_fi_pingpong_with_checked_data(launcher: Launcher, board: dict[str, str], mode: str) -> None:
    wrapper = ["env", "FI_UNIMEM_MACHINE=board", *(f"{name}={value}" for name, value in board.items())]
    for size in ("0", "64", "4096", "65536", "1048576"):
        done = pingpong(launcher, "unimem", "-c", "-m", mode, "-I", "20", "-S", size, wrapper=wrapper)
        assert len(rows(done)) == 1, str(done)


@pytest.mark.parametrize("engine", ["local", "server"])
@pytest.mark.parametrize("tagged", ["1", "0"], ids=["tagged", "active messages"])
def test_mpich(launcher: Launcher, board: dict[str, str], program: Program, tagged: str, engine: str) -> None:
    """With engine=server no process maps the memory of another one: the board's process moves all bytes."""
    env = board | {"MPIR_CVAR_CH4_OFI_ENABLE_TAGGED": tagged, "UNIMEM_EMU_ENGINE": engine, "FI_UNIMEM_STATS": "1"}
    done = run(launcher, env, program("exchange.c"), "100", "10").succeeded()
    assert all(line["sent"] for line in stats_lines(done)) and stats_lines(done), str(done)
    run(launcher, env, program("collectives.c"), "65536").succeeded()


@pytest.mark.parametrize("step", ["naive", "cache", "dmable", "eager", "embedded", "direct", "native"])
def test_every_step(launcher: Launcher, board: dict[str, str], program: Program, step: str) -> None:
    env = board | {"FI_UNIMEM_BOARD_STEP": step}
    run(launcher, env, program("exchange.c"), "20", "5").succeeded()
    run(launcher, env, program("collectives.c"), "4096").succeeded()


def test_steps_in_the_time_of_the_model(
    launcher: Launcher, program: Program, figure: Callable[[str], None], board: dict[str, str]
) -> None:
    """Virtual time: savings do not depend on the host. A call costs 0.546 us (bench/board), a mailbox 1 us."""
    times = {}
    for step, tagged in (("naive", "0"), ("cache", "0"), ("dmable", "0"), ("eager", "0"), ("embedded", "1")):
        env = board | {
            "FI_UNIMEM_BOARD_LIBRARY": str(BUILD / "libunimem.so.1"),
            "FI_UNIMEM_BOARD_STEP": step,
            "UNIMEM_EMU_TIMING": "virtual",
            "UNIMEM_EMU_PARAMS": "cpu_call_ns=546",
            "MPIR_CVAR_CH4_OFI_ENABLE_TAGGED": tagged,
        }
        done = run(launcher, env, program("bench/board/pingpong.c"), "--max", "0").succeeded()
        times[step] = float(done.out.split()[1])
    figure("board, 0 bytes, modelled us: " + ", ".join(f"{step} {us:.2f}" for step, us in times.items()))
    assert times["naive"] == pytest.approx(23.41, rel=0.02), "what cpu_call_ns is fitted to"
    assert times["naive"] > times["cache"] + 10 > times["cache"] > times["dmable"] > times["eager"] > times["embedded"]
    assert times["embedded"] <= 1.5 * (1.0 + 2 * 0.546)


def test_more_ranks_over_tiny_mailboxes(launcher: Launcher, board: dict[str, str], program: Program) -> None:
    env = board | {"UNIMEM_EMU_PARAMS": "mailbox_depth=1,dma_depth=1"}
    run(launcher, env, program("collectives.c"), "4096", ranks=4).succeeded()


def test_a_missing_library_is_named_with_the_remedy(launcher: Launcher, program: Program) -> None:
    env = {"FI_UNIMEM_BOARD_LIBRARY": "libno-such-board.so"}
    done = run(launcher, env, program("exchange.c"), "1", "1", timeout=30)
    assert done.status != 0
    assert "libno-such-board.so" in done.err and "FI_UNIMEM_BOARD_LIBRARY" in done.err, str(done)
    done = run(launcher, {"FI_UNIMEM_BOARD_LIBRARY": "libc.so.6"}, program("exchange.c"), "1", "1", timeout=30)
    assert done.status != 0 and "no library of a Unimem board" in done.err, str(done)


def test_a_board_that_does_not_start_is_named_with_the_remedy(
    launcher: Launcher, board: dict[str, str], program: Program
) -> None:
    env = board | {"UNIMEM_EMU_SERVER": "/nonexistent/unimem-boardd"}
    done = run(launcher, env, program("exchange.c"), "1", "1", timeout=30)
    assert done.status != 0
    assert "/nonexistent/unimem-boardd" in done.err and "cannot be opened" in done.err, str(done)


def test_a_board_with_too_short_dmas_is_refused(launcher: Launcher, board: dict[str, str], program: Program) -> None:
    env = board | {"UNIMEM_EMU_PARAMS": "dma_size_max=16384"}
    done = run(launcher, env, program("exchange.c"), "1", "1", timeout=30)
    assert done.status != 0
    assert "moves at most 16384 bytes in one DMA; messages need 32832" in done.err, str(done)


def test_a_library_of_another_name_and_place(launcher: Launcher, tmp_path: Path) -> None:
    """A vendor's library of a board may have any name and place."""
    shutil.copy(BUILD / "libunimem.so.1", tmp_path / "libvendor.so")
    for given in (str(tmp_path / "libvendor.so"), "libvendor.so"):
        env = tool_environment(launcher) | {"FI_UNIMEM_BOARD_LIBRARY": given, "LD_LIBRARY_PATH": str(tmp_path)}
        done = launcher.run([tool("fi_info"), "-p", "unimem", "-d", "board"], env=env).succeeded()
        assert "domain: board" in done.out, str(done)


def test_another_machine_on_the_command_line(launcher: Launcher) -> None:
    done = launcher.run([BUILD / "unimem", "run", "--machine", "table", "true"])
    assert done.status == 2 and "allowed: shm, board, net, or shm and one of the others" in done.err, str(done)
    done = launcher.run(
        [BUILD / "unimem", "run", "-q", "--machine=board", "--", "printenv", "FI_UNIMEM_MACHINE"],
        env={"FI_UNIMEM_MACHINE": "shm"},
    ).succeeded()
    assert done.out == "board\n"


def test_killed_ranks_end_the_board(launcher: Launcher, board: dict[str, str], program: Program) -> None:
    """The board's process ends with its last context; the launcher fixture finds it if it does not."""
    job = launcher.start_ranks([*MPIEXEC, "2"], [program("forever.c")], launcher.environment(extra=board))
    job.wait_for("out", "^running .*\n", 2)
    names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in launcher.processes() if Path(f"/proc/{pid}").exists()}
    assert "unimem-boardd" in names
    for pid in launcher.processes():
        if Path(f"/proc/{pid}/comm").read_text().strip() == "forever":
            os.kill(pid, 9)
    job.finish(timeout=60)
    assert not launcher.wait_until_gone(10)
