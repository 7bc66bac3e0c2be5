"""Preprocessing: what of a request goes to which stage, and what is refused."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from speech import RATE, asterisk_prompt

from voice_app import audio
from voice_app.errors import InputError
from voice_app.messages import (
    AudioPart,
    ImagePart,
    ImagePatches,
    Media,
    MelFrames,
    Message,
    PromptIds,
    Sampling,
    Span,
    TextPart,
    TurnId,
    TurnRequest,
)
from voice_app.models.local import assets
from voice_app.models.local.listening import Listening
from voice_app.models.local.preprocessing import Preprocessing
from voice_app.models.local.prompt import MARK, Turn
from voice_app.models.local.recent import Recent
from voice_app.schedulers.base import StageInput

pytestmark = pytest.mark.models
TURN = TurnId("s", "t")


class Pieces:
    """A chat frame that shows its turns' pieces, and forgets all but the last `keep` turns."""

    def __init__(self, keep: int = 99) -> None:
        self.keep = keep
        self.turns: list[Turn] = []

    def spans(self, turns) -> tuple[Span, ...]:
        self.turns = list(turns)[-self.keep :]
        pieces = [piece for turn in self.turns for piece in turn.pieces]
        return tuple(Span(media=p) if isinstance(p, Media) else Span(ids=(len(p),)) for p in pieces)


class Marked(Pieces):
    """With the marks around user turns."""

    def spans(self, turns) -> tuple[Span, ...]:
        pieces = super().spans
        return tuple(
            span
            for turn in turns
            for span in ((MARK, *pieces([turn]), MARK) if turn.role == "user" else pieces([turn]))
        )


@pytest.fixture(scope="module")
def listening() -> Listening:
    return Listening(assets.ensure("turn_taking"))


@pytest.fixture
def runner(listening: Listening) -> Preprocessing:
    return Preprocessing(Pieces(), listening, "whisper")


@pytest.fixture(scope="module")
def question() -> AudioPart:
    return AudioPart(asterisk_prompt("conf-full"), RATE)


def picture(color: str = "red", format: str = "PNG") -> ImagePart:
    file = io.BytesIO()
    Image.new("RGB", (64, 48), color).save(file, format)
    return ImagePart(file.getvalue())


def user(*parts) -> Message:
    return Message("user", parts)


def run(runner: Preprocessing, *messages: Message, **request):
    return runner.run([StageInput(TURN, TurnRequest(TURN, messages, **request), True)])[0]


def prepared(runner: Preprocessing, *messages: Message, **request) -> list:
    result = run(runner, *messages, **request)
    assert not isinstance(result, Exception)
    return list(result)


def test_media_go_first_and_the_picture_before_the_speech(runner: Preprocessing, question: AudioPart) -> None:
    *media, prompt = prepared(runner, user(question, picture()))
    assert isinstance(prompt, PromptIds)
    assert {type(item) for item in media} == {MelFrames, ImagePatches}
    assert [span.media.kind for span in prompt.spans if span.media] == ["image", "audio"]
    assert {item.media for item in media} == {span.media for span in prompt.spans}


def test_speech_is_resampled_and_only_speech(runner: Preprocessing, question: AudioPart) -> None:
    hush = np.zeros(2 * RATE, np.float32)
    samples = audio.resample(np.concatenate([hush, question.samples, hush]), RATE, 44100)
    mel, _ = prepared(runner, user(AudioPart(samples, 44100)))
    assert mel.seconds == pytest.approx(len(question.samples) / RATE, abs=0.6)
    assert mel.frames.dtype == np.float32
    assert len(mel.frames) == round(mel.seconds * RATE)


def test_silence_is_passed_on_as_nothing_said(runner: Preprocessing) -> None:
    mel, prompt = prepared(runner, user(AudioPart(np.zeros(RATE, np.float32), RATE)))
    assert mel.seconds == 0.0
    assert mel.frames.shape == (0,)
    assert prompt.spans[0].media == mel.media


def test_earlier_speech_with_its_words_is_text(runner: Preprocessing, question: AudioPart) -> None:
    earlier = AudioPart(question.samples, RATE, transcript="That conference is full.")
    unheard = AudioPart(asterisk_prompt("dir-nomatch"), RATE)
    result = prepared(runner, user(earlier), user(unheard), user(TextPart("Why?")))
    assert [type(item) for item in result] == [MelFrames, PromptIds]
    assert len(result[-1].spans) == 3


def test_keys_follow_the_content_and_what_hears_it(listening: Listening, question: AudioPart) -> None:
    def key(part: AudioPart | ImagePart, recogniser: str = "whisper") -> str:
        return prepared(Preprocessing(Pieces(), listening, recogniser), user(part))[0].media.key

    assert key(question) == key(AudioPart(question.samples.copy(), RATE))
    others = [
        key(AudioPart(question.samples, RATE // 2)),
        key(AudioPart(question.samples * np.float32(0.5), RATE)),
        key(question, "moonshine"),
        key(picture("red")),
        key(picture("blue")),
    ]
    assert len({key(question), *others}) == 1 + len(others)


def test_the_same_picture_twice_is_sent_once(runner: Preprocessing) -> None:
    result = prepared(runner, user(picture(), TextPart("And?")), user(picture(), TextPart("Now?")))
    assert [type(item) for item in result] == [ImagePatches, PromptIds]
    assert [bool(span.media) for span in result[-1].spans] == [True, False, True, False]


def test_what_the_prompt_forgets_is_not_sent(listening: Listening, question: AudioPart) -> None:
    result = prepared(Preprocessing(Pieces(keep=1), listening, "x"), user(question), user(TextPart("Hi.")))
    assert [type(item) for item in result] == [PromptIds]


def test_what_stands_before_new_speech_comes_first(listening: Listening, question: AudioPart) -> None:
    runner = Preprocessing(Marked(), listening, "x")
    talk = (user(picture("blue"), TextPart("Hi.")), Message("assistant", (TextPart("Hello!"),)))
    *media, first, second = prepared(runner, *talk, user(question, picture()), voice="joe")
    assert isinstance(first, PromptIds)
    assert isinstance(second, PromptIds)
    assert (first.more, second.more, first.request, first.request.voice) == (
        True,
        False,
        second.request,
        "joe",
    )
    assert [span.media.kind for span in first.spans if span.media] == ["image"]
    assert [span.media.kind for span in second.spans if span.media] == ["image", "audio"]
    assert len({item.media for item in media}) == len(media) == 3
    written = prepared(runner, *talk, user(TextPart("Why?")))
    assert [item.more for item in written if isinstance(item, PromptIds)] == [False]


def test_parameters_are_passed_on(runner: Preprocessing) -> None:
    prompt = prepared(
        runner,
        user(TextPart("Hi.")),
        sampling=Sampling(seed=7),
        greedy=True,
        voice="joe",
        speed=1.25,
        max_frames=9,
        tool_choice="none",
        now="2025-01-01T12:00:00",
    )[-1]
    params = prompt.request
    assert (params.sampling.seed, params.greedy, params.voice, params.speed) == (7, True, "joe", 1.25)
    assert (params.max_frames, params.tool_choice, params.now) == (9, "none", "2025-01-01T12:00:00")


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (user(AudioPart(np.zeros(0, np.float32), RATE)), "audio: holds no samples"),
        (user(AudioPart(np.full(RATE, np.nan, np.float32), RATE)), "audio: holds NaN"),
        (user(AudioPart(np.zeros(RATE, np.float32), 100)), "audio: its sample rate is 100 Hz"),
        (user(AudioPart(np.zeros(4000 * 601, np.float32), 4000)), "audio: longer than 10 minutes"),
        (user(ImagePart(b"no picture")), "image: not a readable JPEG, PNG or WebP"),
        (Message("assistant", (TextPart("Hello!"),)), "messages: the last one must be the user's"),
    ],
)
def test_what_cannot_be_used_ends_that_one_turn(runner: Preprocessing, message: Message, line: str) -> None:
    good = TurnRequest(TURN, (user(TextPart("Hi.")),))
    bad = TurnRequest(TURN, (message,))
    first, second, third = runner.run([StageInput(TURN, request, True) for request in (good, bad, good)])
    assert isinstance(second, InputError)
    assert second.message.startswith(line)
    assert "\n" not in second.message
    assert not isinstance(first, Exception)
    assert not isinstance(third, Exception)


def test_only_the_newest_are_remembered() -> None:
    recent: Recent[int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert recent.get("b") is None
    assert (recent.get("a"), recent.get("c")) == (1, 3)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 12))))
def test_what_is_remembered_is_bounded_by_its_size(puts: list[tuple[str, int]]) -> None:
    recent: Recent[int] = Recent(10, size=lambda value: value)
    for key, value in puts:
        recent.put(key, value)
        held = [found for name in "abcdef" if (found := recent.get(name)) is not None]
        assert sum(held) <= 10
        assert value > 10 or recent.get(key) == value
