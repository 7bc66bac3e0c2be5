"""Is it a back-channel: a sound that says "I am listening" and asks for nothing?"""

import re

_HUMS = {"m", "mm", "mmm", "mhm", "hm", "hmm", "mmhm", "mmhmm", "uh", "um", "uhm", "uhhuh", "uhuh", "huh"}
_HUMS |= {"ah", "aha", "oh", "ooh", "er", "erm", "eh"}
_NODS = {"yeah", "yep", "yes", "ok", "okay", "right", "sure", "cool", "nice", "wow", "really", "great"}
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
MAX_WORDS = 3


def is_back_channel(text: str, *, answerable: bool) -> bool:
    """`text`: what was heard over a reply. `answerable`: the reply is about to end, so that "yes" may answer
    what it asked. No words at all (a noise) is a back-channel too."""
    words = [re.sub(r"[^\w]", "", word.lower()) for word in _WORD.findall(text)]
    if len(words) > MAX_WORDS:
        return False
    return all(word in _HUMS or (not answerable and word in _NODS) for word in words)
