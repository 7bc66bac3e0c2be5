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
    "I": "ˈaɪ", "J": "dʒˈeɪ", "K": "kˈeɪ", "L": "ˈɛl", "M": "ˈɛm", "N": "ˈɛn", "O": "ˈoʊ", "P": "pˈiː",
    "Q": "kjˈuː", "R": "ˈɑːɹ", "S": "ˈɛs", "T": "tˈiː", "U": "jˈuː", "V": "vˈiː", "W": "dˈʌbəljˌuː",
    "X": "ˈɛks", "Y": "wˈaɪ", "Z": "zˈiː",
}  # fmt: skip
"""A single capital is the letter's name."""

_HOMOGRAPHS = {
    "live": ("VB", "lˈɪv"),
    "lives": ("VB", "lˈɪvz"),
    "use": ("VB", "jˈuːz"),
    "uses": ("VB", "jˈuːzᵻz"),
    "close": ("VB", "klˈoʊz"),
    "record": ("VB", "ɹᵻkˈoːɹd"),
    "records": ("VB", "ɹᵻkˈoːɹdz"),
    "present": ("VB", "pɹᵻzˈɛnt"),
    "presents": ("VB", "pɹᵻzˈɛnts"),
    "object": ("VB", "əbdʒˈɛkt"),
    "house": ("VB", "hˈaʊz"),
}
"""Words that the lexicon gives one sound: (part of speech, its beginning, and how it sounds then)."""

_VOWELS = frozenset("aeiouæɐɑɔəɚɛɜɪʊʌᵻ")


@dataclass(frozen=True, slots=True)
class Phonemes:
    """`ids`: what the voice reads; `last`: for each word, the index in `ids` of its last id."""

    ids: list[int]
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
        """Ids with Piper's own framing: begin, then each phoneme and a pad, then end."""
        pad = self._ids["_"]
        ids = [*self._ids["^"], *pad]
        last = []
        for position, (word, sound) in enumerate(
            zip(words, self.sounds([w.text for w in words]), strict=True)
        ):
            if position:
                sound = " " + sound
            ids += self._framed(sound)
            last.append(len(ids) - 1)
            ids += self._framed(word.pause)
        ids += self._ids["$"]
        return Phonemes(ids, last)

    def _framed(self, symbols: str) -> list[int]:
        pad = self._ids["_"]
        return [id_ for symbol in symbols if symbol in self._ids for id_ in (*self._ids[symbol], *pad)]

    def sounds(self, words: Sequence[str]) -> list[str]:
        """Each word's phonemes, as they sound in this company."""
        tags: Sequence[str] = ()
        if any(
            word.lower() in _HOMOGRAPHS or "" not in self._lexicon.get(word.lower(), {"": ""})
            for word in words
        ):
            tags = self._tag(list(words))
        sounds = [self._sound(word, tags[i] if tags else "") for i, word in enumerate(words)]
        for i, word in enumerate(words):
            sounds[i] = _in_company(word, sounds[i], sounds[i + 1] if i + 1 < len(words) else "")
        return sounds

    def _sound(self, word: str, tag: str) -> str:
        if word in _LETTERS:
            return _LETTERS[word]
        key = word.lower()
        if key in _HOMOGRAPHS and tag.startswith(_HOMOGRAPHS[key][0]):
            return _HOMOGRAPHS[key][1]
        for form in (key, _plain(key)):
            if form in self._lexicon:
                roles = self._lexicon[form]
                return roles.get(f"gruut:{tag}") or roles.get("") or next(iter(roles.values()))
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
    """Small words change with the sound after them."""
    vowel = following.lstrip("ˈˌ")[:1] in _VOWELS
    match word.lower():
        case "the":
            return "ðɪ" if vowel else "ðə"
        case "to":
            return "tʊ" if vowel else "tə"
        case "at" | "it":
            return sound if vowel else sound.replace("ɾ", "t")
    return sound


def _read_lexicon() -> dict[str, dict[str, str]]:
    """Word → part of speech ("" for any) → phonemes."""
    folder = find_lang_dir("en-us")
    if folder is None:
        raise ModelFileError("gruut-lang-en: is not installed; install gruut[en]")
    database = sqlite3.connect(folder / "espeak" / "lexicon.db")
    lexicon: dict[str, dict[str, str]] = {}
    try:
        rows = database.execute("SELECT word, role, phonemes FROM word_phonemes ORDER BY pron_order DESC")
        for word, role, phonemes in rows:
            lexicon.setdefault(word, {})[role] = phonemes.replace(" ", "")
    finally:
        database.close()
    return lexicon
