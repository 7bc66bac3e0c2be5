"""What an answer may say next, guessed from the prompt: short answers say the question's words again, or turn
as the answers before turned. No model is asked, so a guess costs nothing but the row that checks it."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from voice_app.models.local.prompt import Tokens

ROWS = 2
"""Most guesses at once; with an answer's beginning one more."""
GIVE_UP = 5
"""Guesses wrong in a row after which an answer gets no more. A forward pass of two rows takes up to 1.17
times as long as of one, so guesses pay that are right more often than once in six; after n wrong ones the
next is right in one of n + 2 cases (Laplace's rule)."""


@dataclass(frozen=True, slots=True)
class Words:
    """What is to be known of a vocabulary. `form`: the same for a token with and without a space before it or
    a capital. `never`: is not guessed, since nothing follows it. An answer may `begin` with "The". Where the
    question ends in a `mark`, its answer goes on with the `verb`, or has its `stop` after that."""

    form: Callable[[int], Hashable]
    never: frozenset[int]
    begin: int
    mark: int
    verb: int
    stop: int

    @classmethod
    def of(cls, tokens: Tokens, never: frozenset[int]) -> "Words":
        some = (tokens.encode(text)[0] for text in ("The", "?", " is", "."))
        return cls(cache(lambda token: tokens.token_bytes(token).strip().lower() or token), never, *some)


class Drafts:
    """Guesses for the answer to one prompt."""

    def __init__(self, ids: Sequence[int], asked: Sequence[int], words: Words) -> None:
        """`asked`: the positions in the prompt's `ids` of the question's own words."""
        question = [ids[place] for place in asked]
        self._words = words
        self._start = ids[-1]
        self._word = {words.form(a): b for a, b in pairwise(question)}
        self._pair = self._pairs(question)
        self._earlier = self._pairs(ids[: asked[0]] if asked else ids)

    def after(self, said: Sequence[int], most: int) -> list[int]:
        """Up to `most` tokens that may follow on the answer's tokens `said`. With none said yet: on what a
        question after "the" something is answered with, "The" something; no other beginning is guessed."""
        found: list[int] = []
        if not said:
            if self._words.form(self._words.begin) not in self._word:
                return []
            found.append(self._words.begin)
        text = [self._start, *said, *found]
        while len(found) < most:
            last = self._words.form(text[-1])
            pair = self._words.form(text[-2]), last
            token = self._pair.get(pair, self._word.get(last))
            if token is None and not found:
                # These are right less often: worth one row, not two.
                token = self._earlier.get(pair)
            if token == self._words.mark:
                token = self._words.stop if self._words.verb in text else self._words.verb
            if token is None:
                break
            found.append(token)
            text.append(token)
        return found

    def _pairs(self, ids: Sequence[int]) -> Mapping[tuple[Hashable, Hashable], int]:
        """What followed last on each two tokens."""
        forms = [self._words.form(token) for token in ids]
        triples = zip(forms, forms[1:], ids[2:], strict=False)
        return {(a, b): c for a, b, c in triples if c not in self._words.never}
