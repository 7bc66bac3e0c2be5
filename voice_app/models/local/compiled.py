"""What the pack's own loops are compiled with, by numba.

numba keeps what it compiled as long as the file of a function stays as it is, and does not look at what the
function calls in other files. What is called is here, so it is kept by this file's content.
"""

import hashlib
from pathlib import Path

import numpy as np
from numba import config, njit

from voice_app.config import home

_VERSION = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
# The compiled code is kept here, since the package's own folder may be read-only.
config.CACHE_DIR = str(home() / "local" / "numba" / _VERSION)  # pyright: ignore[reportAttributeAccessIssue]

# Sums may be regrouped into vector lanes; infinities and NaN keep their meaning. A division by 0 gives one of
# them: a check for it would keep a loop out of the vector lanes.
fast = njit(fastmath={"reassoc", "contract", "arcp", "nsz"}, error_model="numpy", nogil=True, cache=True)

_ALL_BUT_SIGN = np.int32(0x7FFFFFFF)

_LOG2_E, _LN_2 = np.float32(1 / np.log(2)), np.float32(np.log(2))


@fast
def exp(x):
    """e^x for x ≤ 0 within 3e-6, in operations that the compiler turns into vectors (its own `exp` takes
    four times as long): 2^n by the bits of a float, the rest by Taylor's series of 2^f, |f| ≤ 1/2."""
    t = max(x * _LOG2_E, np.float32(-126))
    n = np.floor(t + np.float32(0.5))
    z = (t - n) * _LN_2
    y = np.float32(1 / 720)
    y = y * z + np.float32(1 / 120)
    y = y * z + np.float32(1 / 24)
    y = y * z + np.float32(1 / 6)
    y = y * z + np.float32(0.5)
    y = y * z + np.float32(1)
    y = y * z + np.float32(1)
    return y * np.int32((np.int32(n) + np.int32(127)) * np.int32(1 << 23)).view(np.float32)


@fast
def highest(x):
    """The highest of `x` [n] float32, not NaN. By the bits, in an order that is theirs as whole numbers: a
    maximum of floats is not made in vector lanes, because of NaN."""
    bits = x.view(np.int32)
    most = np.int32(-0x80000000)
    for i in range(bits.shape[0]):
        most = np.int32(max(most, np.int32(bits[i] ^ ((bits[i] >> np.int32(31)) & _ALL_BUT_SIGN))))
    return np.int32(most ^ ((most >> np.int32(31)) & _ALL_BUT_SIGN)).view(np.float32)


@fast
def loudest(x):
    """The largest magnitude in `x` [n] float32."""
    bits = x.view(np.int32)
    most = np.int32(0)
    for i in range(bits.shape[0]):
        most = np.int32(max(most, bits[i] & _ALL_BUT_SIGN))
    return np.int32(most).view(np.float32)
