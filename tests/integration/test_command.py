"""The command `unimem`: which environment it sets, that the user's own settings win, and how it reports mistakes."""

import os
import subprocess
from pathlib import Path

import pytest
from harness import BUILD

UNIMEM = BUILD / "unimem"
OURS = {
    "FI_PROVIDER_PATH": str(BUILD),
    "FI_PROVIDER": "unimem",
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "MPIR_CVAR_NOLOCAL": "1",
    "FI_UNIMEM_MPICH_ATOMICS": "1",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "67108864",
}


def call(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    base = {"PATH": os.environ["PATH"]}
    command = [UNIMEM, *arguments]
    return subprocess.run(command, env=base | env, capture_output=True, text=True, timeout=30)


def seen_by_program(**env: str) -> dict[str, str]:
    run = call("run", "--", "env", **env)
    assert run.returncode == 0, run.stderr
    return dict(line.split("=", 1) for line in run.stdout.splitlines() if line.split("=")[0] in OURS)


def test_run_sets_the_environment() -> None:
    assert seen_by_program() == OURS


def test_env_prints_what_run_sets() -> None:
    script = f'eval "$({UNIMEM} env)" && env'
    out = subprocess.run(["sh", "-c", script], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True).stdout
    assert OURS.items() <= dict(line.split("=", 1) for line in out.splitlines() if "=" in line).items()


def test_env_quotes_for_the_shell() -> None:
    odd = "/a'b $(false) \"c\""
    script = f'eval "$({UNIMEM} env)" && printf %s "$FI_PROVIDER_PATH"'
    env = {"PATH": os.environ["PATH"], "FI_PROVIDER_PATH": odd}
    out = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True)
    assert out.stdout == f"{BUILD}:{odd}", out.stderr


@pytest.mark.parametrize("name, value", [("MPIR_CVAR_CH4_NETMOD", "ucx"), ("MPIR_CVAR_NOLOCAL", "0")])
def test_the_users_own_setting_wins(name: str, value: str) -> None:
    assert seen_by_program(**{name: value}) == OURS | {name: value}


@pytest.mark.parametrize(
    "own, expected",
    [
        ("/opt/providers", f"{BUILD}:/opt/providers"),
        ("@/opt/providers", f"@{BUILD}:/opt/providers"),  # '@' asks for the order of the list
        ("@", f"@{BUILD}"),
        (f"{BUILD}:/opt/providers", f"{BUILD}:/opt/providers"),  # run inside run
        ("", str(BUILD)),
    ],
)
def test_the_users_provider_path_is_extended(own: str, expected: str) -> None:
    assert seen_by_program(FI_PROVIDER_PATH=own)["FI_PROVIDER_PATH"] == expected


@pytest.mark.parametrize("chosen, path", [("shm", None), ("^unimem", None), ("unimemory,tcp", None)])
def test_another_provider_keeps_libfabrics_own_search(chosen: str, path: str | None) -> None:
    """If FI_PROVIDER_PATH were set, libfabric would no longer find its own loadable providers."""
    assert seen_by_program(FI_PROVIDER=chosen).get("FI_PROVIDER_PATH") == path


@pytest.mark.parametrize("chosen", ["unimem", "unimem,tcp", "tcp,unimem", "^tcp"])
def test_a_choice_that_includes_unimem_gets_the_path(chosen: str) -> None:
    assert seen_by_program(FI_PROVIDER=chosen) == OURS | {"FI_PROVIDER": chosen}


def test_verbose_tells_what_is_kept_and_set() -> None:
    run = call("run", "-v", "true", FI_PROVIDER="shm")
    assert run.returncode == 0
    assert "FI_PROVIDER=shm (yours, kept)" in run.stderr
    assert "MPIR_CVAR_NOLOCAL=1 (set)" in run.stderr


def test_run_becomes_the_program() -> None:
    assert call("run", "sh", "-c", "exit 7").returncode == 7
    assert call("run", "--", "sh", "-c", "kill -9 $$").returncode == -9


def test_version_and_help() -> None:
    assert call("--version").stdout.startswith("unimem 0.")
    for arguments in (["--help"], ["run", "--help"], ["env", "--help"], ["info", "--help"]):
        run = call(*arguments)
        assert run.returncode == 0
        assert run.stdout.startswith("usage: unimem")


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "no command given"),
        (["frobnicate"], "unknown command frobnicate"),
        (["run"], "unimem run -- mpiexec -n 4 ./app"),
        (["run", "--"], "unimem run -- mpiexec -n 4 ./app"),
        (["run", "-n", "4"], "put `--` before it"),
        (["run", "-x", "true"], "unknown option -x"),
        (["env", "x"], "unimem run -- PROGRAM"),
        (["info", "x"], "unexpected argument x"),
    ],
)
def test_usage_errors_say_what_to_do(arguments: list[str], says: str) -> None:
    run = call(*arguments)
    assert run.returncode == 2
    assert run.stdout == ""
    assert says in run.stderr
    assert "--help" in run.stderr


def test_missing_program_is_127_and_not_executable_126(tmp_path: Path) -> None:
    run = call("run", "no-such-program-anywhere")
    assert run.returncode == 127
    assert "no-such-program-anywhere" in run.stderr
    (tmp_path / "file").write_text("not a program\n")
    assert call("run", str(tmp_path / "file")).returncode == 126


def test_missing_library_is_explained(tmp_path: Path) -> None:
    copy = tmp_path / "unimem"
    copy.write_bytes(UNIMEM.read_bytes())
    copy.chmod(0o755)
    run = subprocess.run([copy, "run", "true"], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
    assert run.returncode == 1
    assert "libunimem-fi.so" in run.stderr
    assert "quickstart" in run.stderr
