"""G.711 (ITU-T G.711, 1988): 8-bit telephone audio at 8 kHz, by table.

Decoding follows the standard's formulas; encoding picks, for each 16-bit value, the code whose decoded
value is nearest (ties go to the one nearer to zero), which is what the standard's decision values say.
"""

import numpy as np

RATE = 8_000
"""Hz."""


def _mulaw_values() -> np.ndarray:
    """[256] int16: what each µ-law code means (14-bit scale times 4; bias 33 × 4 = 132)."""
    code = ~np.arange(256, dtype=np.uint8)
    exponent = (code >> 4 & 7).astype(np.int32)
    mantissa = (code & 15).astype(np.int32)
    magnitude = ((2 * mantissa + 33) << exponent) * 4 - 132
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.int16)


def _alaw_values() -> np.ndarray:
    """[256] int16: what each A-law code means (13-bit scale times 8; even bits are inverted)."""
    code = np.arange(256, dtype=np.uint8) ^ 0x55
    exponent = (code >> 4 & 7).astype(np.int32)
    mantissa = (code & 15).astype(np.int32)
    low = (2 * mantissa + 1) * 8
    magnitude = np.where(exponent == 0, low, (low + 256) << np.maximum(exponent - 1, 0))
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)


def _nearest(values: np.ndarray) -> np.ndarray:
    """[65536] uint8, indexed by the sample's 16 bits: the code whose value is nearest."""
    order = np.argsort(values, kind="stable")
    levels = values[order].astype(np.int32)
    samples = np.arange(-32768, 32768, dtype=np.int32)
    above = np.clip(np.searchsorted(levels, samples), 1, len(levels) - 1)
    low, high = levels[above - 1], levels[above]
    to_low, to_high = samples - low, high - samples
    take_low = (to_low < to_high) | ((to_low == to_high) & (np.abs(low) <= np.abs(high)))
    codes = order[np.where(take_low, above - 1, above)].astype(np.uint8)
    table = np.empty(65536, np.uint8)
    table[samples.astype(np.int16).view(np.uint16)] = codes
    return table


MULAW_VALUES = _mulaw_values()
ALAW_VALUES = _alaw_values()
_MULAW_CODES = _nearest(MULAW_VALUES)
_ALAW_CODES = _nearest(ALAW_VALUES)


def decode_mulaw(data: bytes) -> np.ndarray:
    """µ-law bytes → [n] int16 at 8 kHz."""
    return MULAW_VALUES[np.frombuffer(data, np.uint8)]


def decode_alaw(data: bytes) -> np.ndarray:
    """A-law bytes → [n] int16 at 8 kHz."""
    return ALAW_VALUES[np.frombuffer(data, np.uint8)]


def encode_mulaw(samples: np.ndarray) -> bytes:
    """[n] int16 at 8 kHz → µ-law bytes."""
    return _MULAW_CODES[samples.view(np.uint16)].tobytes()


def encode_alaw(samples: np.ndarray) -> bytes:
    """[n] int16 at 8 kHz → A-law bytes."""
    return _ALAW_CODES[samples.view(np.uint16)].tobytes()
