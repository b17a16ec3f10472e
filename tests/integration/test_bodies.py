"""Large messages from ordinary memory, with each setting of FI_UNIMEM_COPY: what is received is what was sent."""

import pytest
from harness import PROGRAMS, VENV, Launcher, stats_lines


@pytest.mark.parametrize(("ranks", "copy"), [(2, "1"), (4, "1"), (2, "auto"), (2, "0")])
def test_large_messages_come_whole(launcher: Launcher, ranks: int, copy: str) -> None:
    env = {"FI_UNIMEM_COPY": copy, "FI_UNIMEM_STATS": "1"}
    run = launcher.mpi(ranks, [VENV / "bin" / "python", PROGRAMS / "bodies.py"], env=env).succeeded()
    assert sorted(run.out.splitlines()) == [f"ok {rank}" for rank in range(ranks)], str(run)
    lines = stats_lines(run)
    assert len(lines) == ranks, str(run)
    if copy == "1":
        assert all(line["copied"] >= 80 and line["bounced"] == 0 for line in lines), str(lines)
        assert ranks > 2 or sum(line["joint"] for line in lines) > 0, str(lines)  # if each rank has a processor
    if copy == "0":
        assert all(line["copied"] == line["joint"] == 0 for line in lines), str(lines)
