"""Shows the progress: a bar on a terminal (tqdm), else a line now and then."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

EACH_S = 30  # seconds between lines, where there is no terminal


class Progress:
    def __init__(self, total: int, stream: TextIO = sys.stderr) -> None:
        self.total, self.done, self.stream = total, 0, stream
        self.said = self.began = time.monotonic()
        self.bar: Any = None
        if stream.isatty():
            try:
                from tqdm import tqdm
            except ImportError:  # an older environment: shows lines instead
                return
            self.bar = tqdm(total=total, file=stream, unit="run", dynamic_ncols=True)

    def begin(self, what: str) -> None:
        """Called before a run."""
        if self.bar is not None:
            self.bar.set_postfix_str(what)
        elif self.done == 0 or time.monotonic() - self.said >= EACH_S:
            self.said = time.monotonic()
            print(f"compare: {self.done} of {self.total} runs, {self.said - self.began:.0f} s: {what}", file=self.stream, flush=True)

    def end(self) -> None:
        """Called after a run."""
        self.done += 1
        if self.bar is not None:
            self.bar.update()

    def say(self, text: str) -> None:
        if self.bar is not None:
            self.bar.write(text, file=self.stream)
        else:
            print(text, file=self.stream, flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
        else:
            print(f"compare: {self.done} runs in {time.monotonic() - self.began:.0f} s", file=self.stream, flush=True)
