"""The event loop that a server runs on: uvloop's, which takes about a seventh off the front end's work
(docs/performance.md, "The front end"). Its clock counts whole milliseconds."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import uvloop


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` to its end, on a loop of its own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def keep_what_is_loaded() -> None:
    """Once everything is loaded: the garbage collector passes over it from now on. Of a full collection, in
    which all talks wait, a quarter is left."""
    gc.collect()
    gc.freeze()
