"""Threads in which a process waits for data of others, one for each sender: a slow host delays its own."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

Work = Callable[[], None]


@dataclass(slots=True, eq=False)
class _Lane:
    """What is to be done for one sender, in order. Credits bound it: nothing is queued that was not sent."""

    name: str
    work: queue.SimpleQueue[Work | None] = field(default_factory=queue.SimpleQueue)

    def start(self) -> None:
        threading.Thread(target=self._run, name=self.name, daemon=True).start()

    def _run(self) -> None:
        over = False
        try:
            while (work := self.work.get()) is not None:
                work()
            over = True
        finally:
            # No handler: the traceback goes to the log, and another thread goes on with the rest.
            if not over:
                self.start()


class Fetching:
    """`put` and `end` are for one thread."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    def put(self, sender: str, work: Work) -> None:
        """Do `work` after all that was put for `sender` before."""
        lane = self._lanes.get(sender)
        if lane is None:
            lane = self._lanes[sender] = _Lane(f"fetch-{sender}")
            lane.start()
        lane.work.put(work)

    def end(self, sender: str) -> None:
        """Nothing more comes from `sender`; its thread ends after what it has."""
        lane = self._lanes.pop(sender, None)
        if lane is not None:
            lane.work.put(None)
