"""Service times of Qwen3-Omni-30B-A3B on an H200 from the bytes that each call has to read.

No call can be faster than its bytes; how near real ones come is a figure of the GPU check
(`load/gpu_check.py`), by part, where that has been run, else assumed. Sizes are those of the published
configuration, in bfloat16.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from load.simulation.shapes import Hearing, Pack, Shape, spoken
from voice_app.errors import ConfigError

BANDWIDTH = 4.8e12
"""Bytes a second."""
ARITHMETIC = 990e12
"""Operations a second in bfloat16, dense."""
ASSUMED_SHARE = 0.5
"""Of bandwidth and arithmetic, that real calls reach."""
FRAME_S = 0.08
_KV_BYTES = 48 * 2 * 4 * 128 * 2
"""Of a position of the thinker: layers, keys and values, heads, width of a head, bytes."""
_MEMORY = 141e9
_PAGE = 16


@dataclass(frozen=True, slots=True)
class Experts:
    """A network of which each row reads some experts. Bytes in all experts and in all the rest."""

    experts: float
    rest: float
    count: int
    chosen: int

    def bytes(self, rows: int) -> float:
        """What a pass over `rows` reads, if rows choose independently."""
        return self.rest + self.experts * (1 - (1 - self.chosen / self.count) ** rows)

    def operations(self, rows: int) -> float:
        """Two for each weight that a row meets."""
        return rows * (self.rest + self.experts * self.chosen / self.count)


THINKER = Experts(
    experts=48 * 128 * 3 * 2048 * 768 * 2.0,
    rest=48 * 2 * 2048 * (4096 + 512) * 2.0 + 2048 * 151_936 * 2.0,
    count=128,
    chosen=8,
)
TALKER = Experts(experts=20 * 128 * 3 * 1024 * 384 * 2.0, rest=0.29e9, count=128, chosen=6)
PREDICTOR_BYTES = 2.42e9
"""Fifteen passes of the code predictor, for any number of rows."""
WINDOW_S = 0.32e-3
"""code2wav: a window of 25 frames with 25 before it."""
ENCODER_BYTES = 1.3e9
_CPU_S = 2e-3
"""Preprocessing of a question, on one core; and as much again to put its prompt together."""


@dataclass(frozen=True, slots=True)
class ByteLimits:
    """`Costs`. `shares`: of the limit that each part reaches."""

    thinker_share: float = ASSUMED_SHARE
    talker_share: float = ASSUMED_SHARE
    window_share: float = ASSUMED_SHARE
    measured: str = ""

    @property
    def source(self) -> str:
        if self.measured:
            return f"byte limits of an H200, times what {self.measured} was measured to need more"
        return (
            f"not measured: byte limits of an H200, of which calls are assumed to reach {ASSUMED_SHARE:.0%}"
        )

    def preprocessing(self, inputs: int, speech_s: float) -> float:
        return _CPU_S * inputs

    def audio_encoder(self, step: Hearing) -> float:
        return (ENCODER_BYTES / BANDWIDTH + 2e-4 * step.encoded_s) / self.thinker_share

    def assemble(self) -> float:
        return _CPU_S

    def thinker(self, passes: int, decodes: int, ahead: int, prefilled: int, judged: int) -> float:
        return _limit(THINKER, decodes + ahead + prefilled) / self.thinker_share

    def talker(self, states: int, begun: int, whole: int, frames: int) -> float:
        return (_limit(TALKER, states) + PREDICTOR_BYTES / BANDWIDTH) / self.talker_share

    def code2wav(self, windows: int, frames: int) -> float:
        return frames / 50 * WINDOW_S / self.window_share


def _limit(network: Experts, rows: int) -> float:
    return max(network.bytes(rows) / BANDWIDTH, network.operations(rows) / ARITHMETIC)


def from_report(path: Path) -> ByteLimits:
    """What `load/gpu_check.py --json` found. Raises ConfigError."""
    try:
        told = json.loads(path.read_text())
        figures = told["figures"]
        return ByteLimits(
            thinker_share=_share(_limit(THINKER, 1), figures["thinker step, batch 1"]),
            talker_share=_share(
                ByteLimits(talker_share=1.0).talker(1, 0, 0, 1), figures["talker frame, batch 1"]
            ),
            window_share=_share(WINDOW_S / 2, figures["code2wav window of 25 frames"]),
            measured=told["device"],
        )
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{path}: no report of the GPU check ({error!r})", param="gpu_report") from error


def _share(limit_s: float, measured_ms: float) -> float:
    return min(1.0, limit_s * 1000 / measured_ms)


def pack() -> Pack:
    """Spoken questions of 2 to 8 s and answers of 4 to 16 s, three tokens of text a second."""
    turns: tuple[Shape, ...] = tuple(
        spoken(3.0, tokens, FRAME_S, speech_s, asked=round(13 * speech_s) + 12)
        for speech_s, tokens in ((2.0, 12), (3.0, 24), (4.0, 18), (5.0, 36), (6.0, 30), (8.0, 48))
    )
    free = 0.9 * _MEMORY - THINKER.experts - THINKER.rest
    return Pack(
        name="qwen3-omni",
        shared=64,
        frame_s=FRAME_S,
        pages=int(free / _KV_BYTES / _PAGE),
        page_size=_PAGE,
        max_positions=32_768,
        left_context=25,
        right_context=0,
        first_window=1,
        max_window=25,
        states=32,
        codes=True,
        shapes=turns,
    )
