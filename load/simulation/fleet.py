"""From one box to many: what so many talks at once need. Pure arithmetic over stated figures."""

import math
from dataclasses import dataclass

MICROPHONE_BYTES_S = 24_000 * 2 * 4 / 3 + 50 * 60
"""PCM at 24 kHz as base64 in packets of 20 ms, with the JSON around each."""
G711_BYTES_S = 8_000 * 4 / 3 + 50 * 60
"""The same as G.711."""
ITEM_BYTES = 1_500
"""Of a turn in the store: the user's item and the assistant's, with ids."""
WRITES_A_TURN = 6
"""Commands to the store: the items, their order, the lease of the talk."""
REDIS_COMMANDS_S = 80_000
"""Of one Redis process, without pipelining."""
TURNS_KEPT = 40


@dataclass(frozen=True, slots=True)
class Talk:
    """How people talk, on average. `speaking`, `hearing`: shares of the time; `turn_s`: from turn to turn."""

    turn_s: float
    hearing: float


@dataclass(frozen=True, slots=True)
class Need:
    """What `talks` at once need; bandwidth in Gbit/s, both ways."""

    talks: int
    boxes: int
    gpus: int
    server_cores: int
    commands_s: float
    redis_processes: int
    redis_gb: float
    gbit_s: float
    gbit_s_g711: float


def need(
    talks: int, box_talks: int, box_gpus: int, core_talks: float, talk: Talk, spare: float = 0.3
) -> Need:
    """`box_talks`: what one box carries; `core_talks`: what one core of the server process carries. `spare`:
    of each, kept free for bursts and for a box that is lost."""
    boxes = math.ceil(talks / (box_talks * (1 - spare)))
    commands = talks / talk.turn_s * WRITES_A_TURN
    return Need(
        talks=talks,
        boxes=boxes,
        gpus=boxes * box_gpus,
        server_cores=math.ceil(talks / (core_talks * (1 - spare))),
        commands_s=commands,
        redis_processes=max(1, math.ceil(commands / (REDIS_COMMANDS_S * (1 - spare)))),
        redis_gb=talks * TURNS_KEPT * ITEM_BYTES / 1e9,
        gbit_s=_gbit(talks, MICROPHONE_BYTES_S, talk),
        gbit_s_g711=_gbit(talks, G711_BYTES_S, talk),
    )


def _gbit(talks: int, bytes_s: float, talk: Talk) -> float:
    """The microphone never stops; sound comes back while an answer is heard."""
    return talks * bytes_s * (1 + talk.hearing) * 8 / 1e9
