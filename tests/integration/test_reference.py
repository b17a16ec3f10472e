"""The tests themselves rely on this: a reference that hangs or fails does not make a test fail."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import SHARED_FILES, Launcher, Run
from reference import ATTEMPTS, Reference, own_dev_shm

# A reference that behaves like libfabric's shm: a file that another process left stops it.
STALE = "unimem-test-stale"
STOPS_AT_A_STALE_FILE = ["sh", "-c", f"test ! -e /dev/shm/{STALE} || exec sleep 1000; echo well"]


@pytest.fixture
def reference(launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reference:
    monkeypatch.setattr("reference.BUILD", tmp_path)
    return Reference("stand-in", launcher)


@pytest.fixture
def stale(launcher: Launcher) -> Iterator[Path]:
    file = SHARED_FILES / STALE
    file.write_text("of a process that was killed")
    yield file
    file.unlink()


def run(under: Launcher, command: list[str], timeout: float) -> Run:
    return under.run(command, timeout=timeout).succeeded()


def test_a_stale_file_stops_no_reference(reference: Reference, stale: Path) -> None:
    result = reference.attempt(lambda inside: run(inside, STOPS_AT_A_STALE_FILE, 5))
    wrapper, where = own_dev_shm()
    if not wrapper:
        assert result is None and where in reference.failure
        pytest.skip(where)
    assert result and result.out == "well\n", reference.failure
    assert stale.exists(), "the host's /dev/shm is as it was"


def test_what_a_reference_leaves_is_gone_before_the_next_attempt(reference: Reference) -> None:
    def leaves_a_file(inside: Launcher) -> Run:
        return run(inside, ["sh", "-c", f"test ! -e /dev/shm/{STALE} && touch /dev/shm/{STALE} && ls /dev/shm"], 30)

    if not own_dev_shm()[0]:
        pytest.skip(own_dev_shm()[1])
    for _ in range(3):
        result = reference.attempt(leaves_a_file)
        assert result and result.out == f"{STALE}\n", reference.failure
    assert not (SHARED_FILES / STALE).exists()


def test_a_reference_that_hangs_is_tried_again_and_then_named(reference: Reference, launcher: Launcher) -> None:
    begun = []

    def hangs(inside: Launcher) -> Run:
        begun.append(inside)
        return run(inside, ["sleep", "1000"], 1)

    assert reference.attempt(hangs) is None
    assert len(begun) == ATTEMPTS and not launcher.wait_until_gone(10)
    assert "the reference, stand-in, failed 2 times" in reference.failure and "did not end" in reference.failure
    log = Path(reference.failure.split()[-1]).read_text()
    assert log.count("---- stand-in, attempt") == ATTEMPTS and "sleep 1000" in log
    with pytest.raises(pytest.skip.Exception, match="the reference, stand-in"):
        reference.result(hangs)
    assert len(begun) == ATTEMPTS, "it is not waited for again"


def test_a_reference_that_fails_once_is_tried_again(reference: Reference, tmp_path: Path) -> None:
    """If its output is not as expected, that is a failure of the reference, too."""
    mark = tmp_path / "mark"

    def second_time_well(inside: Launcher) -> str:
        out = run(inside, ["sh", "-c", f"cat {mark} 2>&1; echo well >{mark}"], 30).out
        assert out == "well\n", out
        return out

    mark.write_text("ill\n")
    assert reference.attempt(second_time_well) == "well\n" and not reference.failure
