"""Threads in which a process waits for data of others, one for each sender: a slow host delays its own."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

Work = Callable[[], None]


@dataclass(slots=True, eq=False)
class _Lane:
    """What is to be done for one sender, in order. Credits bound it: nothing is queued that was not sent."""

    work: queue.SimpleQueue[Work | None] = field(default_factory=queue.SimpleQueue)
    thread: threading.Thread | None = None

    def run(self) -> None:
        while (work := self.work.get()) is not None:
            work()


class Fetching:
    """`put` and `end` are for one thread."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    def put(self, sender: str, work: Work) -> None:
        """Do `work` after all that was put for `sender` before."""
        lane = self._lanes.setdefault(sender, _Lane())
        lane.work.put(work)
        # A thread that some work broke has left its traceback in the log; the others' work goes on.
        if lane.thread is None or not lane.thread.is_alive():
            lane.thread = threading.Thread(target=lane.run, name=f"fetch-{sender}", daemon=True)
            lane.thread.start()

    def end(self, sender: str) -> None:
        """Nothing more comes from `sender`; its thread ends after what it has."""
        lane = self._lanes.pop(sender, None)
        if lane is not None:
            lane.work.put(None)
