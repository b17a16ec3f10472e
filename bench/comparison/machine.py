"""The machine of a run, as far as a reader of its figures must know it."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

CPU = Path("/sys/devices/system/cpu")
CACHE_UNKNOWN = 32 << 20


def processor() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else platform.machine()


def last_level_cache() -> int:
    """Size in bytes, for the first processor."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = [file.read_text().strip() for file in CPU.glob("cpu0/cache/index*/size")]
    return max((int(text[:-1]) * units[text[-1]] for text in sizes if text and text[-1] in units), default=CACHE_UNKNOWN)


def allowed() -> tuple[int, ...]:
    """The processors that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0)))


def describe() -> dict[str, Any]:
    return {"processor": processor(), "processors": os.cpu_count(), "cache": last_level_cache(),
            "system": f"Linux {platform.release()}", "load": os.getloadavg()[0]}  # fmt: skip
