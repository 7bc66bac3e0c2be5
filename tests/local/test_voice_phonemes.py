"""Words → phonemes, as they sound in each other's company, and the ids that a Piper voice reads."""

import pytest

from voice_app.models.local.phonemes import Phonemizer
from voice_app.models.local.spoken_form import SpokenWord, spoken_form

SYMBOLS = "_^$ !',.:;?abcdefhijklmnopqrstuvwxyzæçðŋɐɑɔəɚɛɜɡɪɬɹɾʃʊʌʒʔʲˈˌːθᵻ\u0303\u0329"
IDS = {symbol: [number] for number, symbol in enumerate(SYMBOLS)}


@pytest.fixture(scope="module")
def phonemizer() -> Phonemizer:
    return Phonemizer(IDS)


def sounds(phonemizer: Phonemizer, text: str) -> list[str]:
    return [sound.replace("ˈ", "").replace("ˌ", "") for sound in phonemizer.sounds(text.split())]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the end", ["ðɪ", "ɛnd"]),
        ("the start", ["ðə", "stɑːɹt"]),
        ("to eat", ["tʊ", "iːt"]),
        ("at home", ["æt", "hoʊm"]),
        ("at all", ["æɾ", "ɔːl"]),
        ("after all", ["æftɚɹ", "ɔːl"]),
        ("after that", ["æftɚ", "ðæt"]),
        ("question", ["kwɛstʃən"]),
        ("can", ["kæn"]),
        ("king", ["kɪŋ"]),
        ("F B I", ["ɛf", "biː", "aɪ"]),
        ("F B I's", ["ɛf", "biː", "aɪz"]),
        ("A U S", ["eɪ", "juː", "ɛs"]),
    ],
)
def test_sounds(phonemizer: Phonemizer, text: str, expected: list[str]) -> None:
    assert sounds(phonemizer, text) == expected


@pytest.mark.parametrize(
    ("text", "place", "sound"),
    [
        ("They live in town", 1, "lɪv"),
        ("It was a live show", 3, "laɪv"),
        ("He read the book yesterday", 1, "ɹɛd"),
        ("You should read the book", 2, "ɹiːd"),
        ("They use it daily", 1, "juːz"),
        ("It is of no use", 4, "juːs"),
        ("Please close the door", 1, "kloʊz"),
        ("It is quite close", 3, "kloʊs"),
    ],
)
def test_words_of_two_sounds(phonemizer: Phonemizer, text: str, place: int, sound: str) -> None:
    assert sounds(phonemizer, text)[place] == sound


@pytest.mark.parametrize(
    ("word", "ending"),
    [("Zorbalon's", "z"), ("Brixlat's", "s"), ("Tolvish's", "ᵻz"), ("café", "eɪ"), ("Brzeziński", "i")],
)
def test_words_that_no_lexicon_has(phonemizer: Phonemizer, word: str, ending: str) -> None:
    (sound,) = sounds(phonemizer, word)
    assert sound.endswith(ending)
    assert len(sound) >= 3


def test_ids_are_framed_as_piper_frames_them(phonemizer: Phonemizer) -> None:
    # begin, pad, then each symbol with a pad, then end: piper's phoneme_ids.cpp. The first space is ours.
    framed = phonemizer([SpokenWord("he", 0, 2, ","), SpokenWord("is", 3, 5, ".")])
    symbols = "".join(SYMBOLS[number] for number in framed.ids)
    assert symbols == "^_ _h_i_ː_,_ _ɪ_z_._$"
    assert [symbols[: place + 1] for place in framed.last] == ["^_ _h_i_ː_", "^_ _h_i_ː_,_ _ɪ_z_"]
    assert symbols[: framed.lead] == "^_ _"


def test_every_letter_has_a_name(phonemizer: Phonemizer) -> None:
    assert all(sounds(phonemizer, letter)[0] for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def test_no_word_is_silent(phonemizer: Phonemizer) -> None:
    words = spoken_form("xkcd qwrt Ωmega привет 你好 'n' o' a e zzz b2b")
    assert all(phonemizer.sounds([word.text for word in words]))
