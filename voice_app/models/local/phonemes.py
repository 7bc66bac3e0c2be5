"""Spoken words → the phoneme ids of a Piper voice.

gruut's English lexicon and its letter-to-sound model in their espeak form, since Piper voices are trained on
espeak's phonemes. Of gruut's pipeline only these are used: the words come from `spoken_form`, which keeps
their place in the text. The lexicon lies in memory: gruut's database has no index, and a look-up in it takes
4 to 16 ms.
"""

import sqlite3
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from gruut.lang import get_settings
from gruut.utils import find_lang_dir

from voice_app.errors import ModelFileError
from voice_app.models.local.spoken_form import SpokenWord

_LETTERS = {
    "A": "ˈeɪ", "B": "bˈiː", "C": "sˈiː", "D": "dˈiː", "E": "ˈiː", "F": "ˈɛf", "G": "dʒˈiː", "H": "ˈeɪtʃ",
    "J": "dʒˈeɪ", "K": "kˈeɪ", "L": "ˈɛl", "M": "ˈɛm", "N": "ˈɛn", "O": "ˈoʊ", "P": "pˈiː",
    "Q": "kjˈuː", "R": "ˈɑːɹ", "S": "ˈɛs", "T": "tˈiː", "U": "jˈuː", "V": "vˈiː", "W": "dˈʌbəljˌuː",
    "X": "ˈɛks", "Y": "wˈaɪ", "Z": "zˈiː",
}  # fmt: skip
"""A single capital is the letter's name; I is in the lexicon."""

_VERBS = {
    "live": "lˈɪv", "lives": "lˈɪvz", "use": "jˈuːz", "uses": "jˈuːzᵻz", "close": "klˈoʊz",
    "record": "ɹᵻkˈoːɹd", "records": "ɹᵻkˈoːɹdz", "present": "pɹᵻzˈɛnt", "presents": "pɹᵻzˈɛnts",
    "object": "əbdʒˈɛkt", "project": "pɹədʒˈɛkt", "contract": "kəntɹˈækt", "conduct": "kəndˈʌkt",
    "increase": "ɪŋkɹˈiːs", "permit": "pɚmˈɪt", "suspect": "səspˈɛkt", "rebel": "ɹᵻbˈɛl",
    "separate": "sˈɛpɚɹˌeɪt", "estimate": "ˈɛstᵻmˌeɪt", "graduate": "ɡɹˈædʒuːˌeɪt", "excuse": "ɛkskjˈuːz",
    "house": "hˈaʊz", "tear": "tˈɛɹ", "tears": "tˈɛɹz",
}  # fmt: skip
"""Words that the lexicon gives the sound of the noun or adjective."""

_PAST_VERBS = {"read": "ɹˈɛd", "wound": "wˈaʊnd"}

_VOWELS = frozenset("aeiouæɐɑɔəɚɛɜɪʊʌᵻ")


@dataclass(frozen=True, slots=True)
class Phonemes:
    """`ids`: what the voice reads. `lead`: how many come before the first sound. `last`: for each word, the
    index in `ids` of its last id; after the last word's come its punctuation and the end."""

    ids: list[int]
    lead: int
    last: list[int]


class Phonemizer:
    """For one voice. Not for two threads at once."""

    def __init__(self, id_map: dict[str, list[int]]) -> None:
        self._ids = id_map
        self._lexicon = _read_lexicon()
        settings = get_settings("en_US", model_prefix="espeak", load_phoneme_lexicon=False)
        if settings.guess_phonemes is None or settings.get_parts_of_speech is None:
            raise ModelFileError("gruut-lang-en: its models are missing; install gruut[en] again")
        self._guess = settings.guess_phonemes
        self._tag = settings.get_parts_of_speech

    def __call__(self, words: Sequence[SpokenWord]) -> Phonemes:
        """Ids with Piper's own framing (begin, then each phoneme and a pad, then end), and a space before the
        first word too: the voice swallows a consonant right at the beginning (heard back, 5.2 % of the words
        are wrong without that space and 2.1 % with it)."""
        ids = [*self._ids["^"], *self._ids["_"]]
        lead = len(ids) + len(self._framed(" "))
        last = []
        for word, sound in zip(words, self.sounds([word.text for word in words]), strict=True):
            ids += self._framed(" " + sound)
            last.append(len(ids) - 1)
            ids += self._framed(word.pause)
        return Phonemes([*ids, *self._ids["$"]], lead, last)

    def _framed(self, symbols: str) -> list[int]:
        pad = self._ids["_"]
        return [id_ for symbol in symbols if symbol in self._ids for id_ in (*self._ids[symbol], *pad)]

    def sounds(self, words: Sequence[str]) -> list[str]:
        """Each word's phonemes, as they sound in this company."""
        tags: Sequence[str] = ()
        if any(word.lower() in _VERBS or word.lower() in _PAST_VERBS for word in words):
            tags = self._tag(list(words))
        sounds = [self._sound(word, tags[i] if tags else "") for i, word in enumerate(words)]
        for i, word in enumerate(words):
            sounds[i] = _in_company(word, sounds[i], sounds[i + 1] if i + 1 < len(words) else "")
        return sounds

    def _sound(self, word: str, tag: str) -> str:
        if word in _LETTERS:
            return _LETTERS[word]
        key = word.lower()
        if tag in ("VBD", "VBN") and key in _PAST_VERBS:
            return _PAST_VERBS[key]
        if tag.startswith("VB") and key in _VERBS:
            return _VERBS[key]
        for form in (key, _plain(key)):
            if form in self._lexicon:
                return self._lexicon[form]
        if key.endswith("'s") and len(key) > 2:
            return _with_s(self._sound(word[:-2], tag))
        return "".join(self._guess(_plain(key)) or ())


def _with_s(sound: str) -> str:
    """The sound with a possessive or plural s."""
    if sound.endswith(("s", "z", "ʃ", "ʒ")):
        return sound + "ᵻz"
    return sound + ("s" if sound.endswith(("p", "t", "k", "f", "θ")) else "z")


def _plain(word: str) -> str:
    """Without accents: the lexicon and the guesser know plain letters only."""
    return "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))


def _in_company(word: str, sound: str, following: str) -> str:
    """A word may change with the sound after it."""
    vowel = following.lstrip("ˈˌ")[:1] in _VOWELS
    match word.lower():
        case "the":
            return "ðɪ" if vowel else "ðə"
        case "to":
            return "tʊ" if vowel else "tə"
        case "at" | "it":
            return sound.replace("t", "ɾ") if vowel else sound
    return sound + "ɹ" if vowel and sound.endswith("ɚ") else sound


def _read_lexicon() -> dict[str, str]:
    """Word → phonemes."""
    folder = find_lang_dir("en-us")
    if folder is None:
        raise ModelFileError("gruut-lang-en: is not installed; install gruut[en]")
    database = sqlite3.connect(folder / "espeak" / "lexicon.db")
    try:
        rows = database.execute(
            "SELECT word, phonemes FROM word_phonemes WHERE role = '' ORDER BY pron_order DESC"
        )
        return {word: _alone(word, phonemes.replace(" ", "")) for word, phonemes in rows}
    finally:
        database.close()


def _alone(word: str, sound: str) -> str:
    """The sound without what the next word of an alphabetical list did to it. The lexicon was made by reading
    such a list aloud: there "can" ends in ng (before "canaan"), "after" in a linking r, "it" in a flap."""
    if sound.endswith("ŋ") and "ng" not in word[-4:]:
        return sound[:-1] + "n"
    if sound.endswith("ɚɹ"):
        return sound[:-1]
    return sound[:-1] + "t" if sound.endswith("ɾ") else sound
