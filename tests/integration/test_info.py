"""`unimem info` tries and reports what is available, and for what is missing says what that costs and how to get it."""

import json
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import BUILD, VENV, Launcher
from mpis import compile_c, debian, library, sandia

UNIMEM = BUILD / "unimem"
DENY = BUILD / "tests" / "refusals" / "deny"
ROOT = os.geteuid() == 0


@dataclass(frozen=True)
class Report:
    status: int
    rows: list[dict[str, str | None]]

    def row(self, name: str) -> dict[str, str | None]:
        (row,) = [row for row in self.rows if row["name"] == name]
        return row

    def details(self, section: str) -> dict[str, str | None]:
        """The state of each row of a section, by its detail."""
        return {str(row["detail"]): row["state"] for row in self.rows if row["section"] == section}


def info(launcher: Launcher, *before: str | Path, env: dict[str, str] | None = None, command: Path = UNIMEM) -> Report:
    run = launcher.run([*before, command, "info", "--json"], env=env, timeout=240)
    assert run.err == "", str(run)
    report = json.loads(run.out)
    return Report(run.status, report["rows"])


def yama() -> int:
    try:
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except OSError:
        return 0


# --- this machine -------------------------------------------------------------------------------------------------


def test_every_row_that_is_not_good_says_what_is_lost_and_what_to_do(launcher: Launcher) -> None:
    report = info(launcher)
    assert report.status == 0
    assert {row["state"] for row in report.rows} <= {"yes", "partly", "no", None}
    for row in report.rows:
        wrong = row["state"] in ("no", "partly")
        assert bool(row["lost"]) == wrong and bool(row["remedy"]) == wrong, row


def test_memory_between_processes_works_here(launcher: Launcher) -> None:
    """All other tests rely on this; process_vm_* works only where Yama allows it."""
    report = info(launcher)
    assert report.row("shared memory")["state"] == "yes"
    if yama() < 2:
        assert report.row("process_vm_readv")["state"] == "yes"
        assert report.row("process_vm_writev")["state"] == "yes"


def test_facts_of_the_kernel_are_the_kernels(launcher: Launcher) -> None:
    report = info(launcher)
    assert os.uname().release in str(report.row("version")["detail"])
    own = os.readlink("/proc/self/ns/pid")
    hosts = own == "pid:[4026531836]"
    assert report.row("pid namespace")["state"] == ("yes" if hosts else "partly")
    huge = re.findall(r"\[(\w+)\]", Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text())
    assert f"transparent: {huge[0]}," in str(report.row("huge pages")["detail"])


def test_wait_instruction_is_what_the_processor_lists(launcher: Launcher) -> None:
    row = info(launcher).row("wait instruction")
    flags = set(Path("/proc/cpuinfo").read_text().split())
    expected = "WAITPKG" if "waitpkg" in flags else "MONITORX" if "monitorx" in flags or "mwaitx" in flags else None
    if os.uname().machine == "aarch64":
        expected = "WFE"
    assert (row["state"] == "yes") == (expected is not None)
    assert expected is None or str(row["detail"]).startswith(expected), row


FIGURES = r"[\d.]+{}, [\d.]+{}, [\d.]+{}: (?:read|both|pushed) \([\d.]+\)"
WARM = FIGURES.format(" GB/s read by the receiver", " copied by both", " pushed by the sender")
MEASURED = f"warm {WARM}; cold {FIGURES.format('', '', '')}"


def test_text_says_what_json_says(launcher: Launcher) -> None:
    text = launcher.run([UNIMEM, "info"]).succeeded().out
    for row in info(launcher).rows:
        detail = re.escape(str(row["detail"]))
        if str(row["name"]).endswith(" messages"):  # each call measures them again
            detail = MEASURED
            assert re.fullmatch(MEASURED, str(row["detail"]))
        assert re.search(rf"^  {row['state'] or '-'} +{re.escape(str(row['name']))} +{detail}$", text, re.M)
        for part in (row["lost"], row["remedy"]):
            assert all(line in text for line in (part or "").splitlines()), part


def test_without_the_provider_it_cannot_run(launcher: Launcher, tmp_path: Path) -> None:
    shutil.copy(UNIMEM, tmp_path / "unimem")
    run = launcher.run([tmp_path / "unimem", "info", "--json"])
    assert run.status == 1
    assert "quickstart" in run.err
    rows = json.loads(run.out)["rows"]
    assert rows[0]["name"] == "libunimem-fi.so" and rows[0]["state"] == "no"
    # A file of that name that is not a library is found, but cannot be loaded.
    (tmp_path / "libunimem-fi.so").write_text("not a library\n")
    report = info(launcher, command=tmp_path / "unimem")
    assert report.status == 1
    assert "cannot be loaded" in str(report.row("libunimem-fi.so")["detail"])


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "refused, name, detail, lost",
    [
        ("process_vm_readv=EPERM", "process_vm_readv", "Operation not permitted", "one side copies alone"),
        ("process_vm_writev=ENOSYS", "process_vm_writev", "Function not implemented", "one side copies alone"),
        ("membarrier=EPERM", "membarrier", "refused", "fence"),
    ],
)
def test_a_refused_call_is_shown(launcher: Launcher, refused: str, name: str, detail: str, lost: str) -> None:
    usual, report = info(launcher), info(launcher, DENY, refused, "--")
    assert report.status == 0
    row = report.row(name)
    assert row["state"] == "no" and detail in str(row["detail"]) and lost in str(row["lost"]), row
    assert "seccomp" in str(row["remedy"]), row
    for other, before in zip(report.rows, usual.rows, strict=True):
        measured = str(other["name"]).endswith("KiB messages")
        assert measured or other["name"] == name or other == before, "nothing else is refused"


def test_large_messages_are_measured_both_ways(launcher: Launcher) -> None:
    for env, fixed in (({}, False), ({"FI_UNIMEM_COPY": "1"}, True)):
        report = info(launcher, env=env)
        for size in (64, 256, 1024):
            detail = str(report.row(f"{size} KiB messages")["detail"])
            assert re.match(MEASURED, detail), detail
            assert ("FI_UNIMEM_COPY=1" in detail) == fixed


def test_large_messages_that_cannot_be_read_are_pushed(launcher: Launcher) -> None:
    report = info(launcher, DENY, "process_vm_readv=EPERM", "--")
    assert str(report.row("1024 KiB messages")["detail"]).count(": pushed (") == 2, report


def test_both_directions_refused(launcher: Launcher) -> None:
    report = info(launcher, DENY, "process_vm_readv=EPERM", "process_vm_writev=EPERM", "--")
    assert report.status == 0, "unimem runs all the same"
    for name in ("process_vm_readv", "process_vm_writev"):
        assert report.row(name)["state"] == "no"
        assert "copied twice" in str(report.row(name)["lost"])
    assert report.row("shared memory")["state"] == "yes"


@pytest.mark.parametrize("refused", ["memfd_create=ENOSYS", "memfd_create=EPERM"])
def test_without_memfd_it_cannot_run(launcher: Launcher, refused: str) -> None:
    report = info(launcher, DENY, refused, "--")
    assert report.status == 1
    row = report.row("shared memory")
    assert row["state"] == "no" and "memfd_create" in str(row["detail"]) and "seccomp" in str(row["remedy"]), row


def test_userfaultfd_refused(launcher: Launcher) -> None:
    """Root could also open /dev/userfaultfd, so for root the test takes /dev away, too."""
    report = info(launcher, DENY, *(["shm=absent"] if ROOT else []), "userfaultfd=EPERM", "--")
    assert report.status == 0
    row = report.row("userfaultfd")
    assert row["state"] == "no" and "refused: Operation not permitted" in str(row["detail"]), row
    assert "seccomp" in str(row["remedy"]), row


@pytest.fixture
def as_user() -> Iterator[tuple[list[str], Path]]:
    """The prefix that runs a command as an ordinary user, and a copy of `unimem` that this user may read."""
    top = Path(tempfile.mkdtemp(prefix="unimem-user-"))
    try:
        top.chmod(0o755)
        for name in ("unimem", "libunimem-fi.so"):
            shutil.copy(BUILD / name, top)
        user = pwd.getpwnam("nobody")
        ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--no-new-privs"]
        yield (["setpriv", *ids] if ROOT else []), top / "unimem"
    finally:
        shutil.rmtree(top)


def test_userfaultfd_of_an_ordinary_user(launcher: Launcher, as_user: tuple[list[str], Path]) -> None:
    prefix, command = as_user
    report = info(launcher, *prefix, command=command)
    assert report.status == 0
    row = report.row("userfaultfd")
    full = Path("/proc/sys/vm/unprivileged_userfaultfd").read_text().strip() == "1"
    if full or os.access("/dev/userfaultfd", os.R_OK) and not ROOT:
        assert row["state"] == "yes" and str(row["detail"]).startswith("full"), row
    else:
        assert row["state"] == "partly" and "user-mode faults only" in str(row["detail"]), row
        assert "vm.unprivileged_userfaultfd" in str(row["remedy"]), row
        assert "one thread" in str(row["lost"]), row


def unshare(*options: str) -> Sequence[str]:
    return ["unshare", *([] if ROOT else ["--user", "--map-root-user"]), "--pid", "--fork", *options]


def test_a_pid_namespace_of_its_own(launcher: Launcher) -> None:
    report = info(launcher, *unshare("--mount-proc"))
    assert report.status == 0
    row = report.row("pid namespace")
    assert row["state"] == "partly" and re.search(r"one of its own, pid:\[\d+\]", str(row["detail"])), row
    assert "outside cannot be reached" in str(row["lost"])
    assert "FI_UNIMEM_ATTACH" in str(row["remedy"])
    assert report.row("shared memory")["state"] == "yes"


@pytest.mark.parametrize("attach, state", [("abstract", "yes"), ("/dev/shm", "yes"), ("off", "partly")])
def test_a_pid_namespace_whose_others_are_reached(launcher: Launcher, attach: str, state: str) -> None:
    row = info(launcher, *unshare("--mount-proc"), "env", f"FI_UNIMEM_ATTACH={attach}").row("pid namespace")
    assert row["state"] == state and (state != "yes" or f"FI_UNIMEM_ATTACH={attach}" in str(row["detail"])), row


def test_the_proc_of_another_pid_namespace(launcher: Launcher) -> None:
    report = info(launcher, *unshare())
    assert report.status == 1
    assert "/proc is that of another one" in str(report.row("pid namespace")["detail"])
    row = report.row("shared memory")
    assert row["state"] == "no" and "--mount-proc" in str(row["remedy"]), row


# --- software -----------------------------------------------------------------------------------------------------


OTHER_HOSTS = "Other hosts (shm,net)"


def test_the_way_to_other_hosts_is_tried(launcher: Launcher) -> None:
    here = {"FI_UNIMEM_NET_ADDRESS": "127.0.0.1"}
    ((detail, state),) = info(launcher, env=here).details(OTHER_HOSTS).items()
    assert state == "yes" and re.fullmatch(r"tcp(;ofi_rxm)? at 127\.0\.0\.1 \(lo\)", detail), detail
    ((detail, state),) = info(launcher, env={"FI_UNIMEM_NET": "off"}).details(OTHER_HOSTS).items()
    assert state is None and "FI_UNIMEM_NET=off" in detail
    for wrong in ({"FI_UNIMEM_NET": "nosuch"}, {"FI_UNIMEM_NET_ADDRESS": "203.0.113.7"}, {"FI_UNIMEM_NET_TIMEOUT": "x"}):
        ((detail, state),) = info(launcher, env=wrong).details(OTHER_HOSTS).items()
        assert state == "no", detail


def test_libfabrics_are_found_and_asked(launcher: Launcher) -> None:
    wheel = VENV.resolve() / "lib" / "mpich" / "libfabric.so.1"
    report = info(launcher, env={"VIRTUAL_ENV": str(VENV)})
    assert report.details("libfabric")[str(wheel)] == "yes"
    versions = {str(row["name"]) for row in report.rows if row["detail"] == str(wheel)}
    assert versions == {"2.5"}, "of the mpich wheel that requirements.txt pins"
    assert [detail for detail in report.details("libfabric") if detail.endswith(", the loader's choice")]


def test_an_old_and_a_missing_libfabric(launcher: Launcher, tmp_path: Path) -> None:
    old = library(tmp_path / "lib" / "libfabric.so.1", "unsigned fi_version(void) { return 1 << 16 | 5; }")
    (tmp_path / "bin").mkdir()
    report = info(launcher, env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    (row,) = [row for row in report.rows if row["detail"] == str(old)]
    assert (row["name"], row["state"], row["remedy"]) == ("1.5", "no", "libfabric 1.17 or later")
    old.write_text("not a library\n")
    report = info(launcher, env={"LD_LIBRARY_PATH": str(old.parent)})
    assert report.row("libfabric.so.1")["state"] == "no"


def test_mpis_are_found_and_judged(launcher: Launcher, tmp_path: Path) -> None:
    trees = [debian(tmp_path / "debian"), sandia(tmp_path / "sandia", ofi=True), sandia(tmp_path / "bare", ofi=False)]
    path = ":".join(str(tree.bin) for tree in trees)
    report = info(launcher, env={"PATH": f"{path}:{VENV}/bin:/usr/bin:/bin"})
    found = {str(row["detail"]).split(",")[0]: (row["name"], row["state"]) for row in report.rows if row["section"] == "MPI"}
    assert found[f"{tmp_path}/debian/bin/mpiexec.openmpi"] == ("Open MPI 4.1.6", "yes")
    assert found[f"{tmp_path}/debian/bin/mpiexec.hydra"] == ("MPICH 4.0.2", "no")
    assert found[f"{tmp_path}/sandia/bin/oshrun"] == ("Sandia OpenSHMEM 1.5.2", "yes")
    assert found[f"{tmp_path}/bare/bin/oshrun"] == ("Sandia OpenSHMEM 1.5.2", "no")
    assert found[f"{VENV}/bin/mpiexec"] == ("MPICH 5.0.2", "yes")
    (refused,) = [row for row in report.rows if row["name"] == "MPICH 4.0.2"]
    assert "ch4:ucx" in str(refused["detail"]) and "pip install mpich" in str(refused["remedy"])


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("__builtin_trap()", id="crash"),
        pytest.param('for (;;) __asm__ volatile ("")', id="hang", marks=pytest.mark.long),
    ],
)
def test_a_library_that_crashes_or_hangs_is_survived(launcher: Launcher, tmp_path: Path, end: str) -> None:
    source = f"__attribute__((constructor)) static void die(void) {{ {end}; }}"
    library(tmp_path / "lib" / "libfabric.so.1", source)
    library(tmp_path / "lib" / "libmpi.so.12", source)
    compile_c(tmp_path / "bin" / "mpiexec", "int main(void) { return 0; }")
    report = info(launcher, env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    assert report.status == 0
    assert not [row for row in report.rows if str(tmp_path) in str(row["detail"])]


def test_usage(launcher: Launcher) -> None:
    run = subprocess.run([UNIMEM, "info", "--yaml"], capture_output=True, text=True, timeout=30, check=False)
    assert run.returncode == 2 and "--yaml" in run.stderr and "unimem info --help" in run.stderr
    assert subprocess.run([UNIMEM, "info", "--help"], capture_output=True, text=True, timeout=30, check=True).stdout.startswith(
        "usage: unimem info"
    )
