"""The callers' questions asked of the pack in one thread, and what each of them and its answer consist of."""

import time
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import cast

import msgspec
import numpy as np

from load.mouth import NOISE
from load.real_run import ends_alone
from load.simulation.listening import PACKET_S
from load.simulation.shapes import Clause, Hearing, Pack, Shape, Stretch
from load.stage_calls import Call, Calls
from voice_app import audio
from voice_app import messages as m
from voice_app.bench import callers, questions
from voice_app.bench.one_thread import OneThread, Result
from voice_app.bench.talks import spoken_anew
from voice_app.messages import Stage, TurnId
from voice_app.models.local.clauses import ClauseCutter
from voice_app.models.local.understanding import SORRY
from voice_app.schedulers.base import Code2WavRunner, Prompt, TalkerRunner, ThinkerRunner, TokenDecoder
from voice_app.server.protocol.config import AudioInput
from voice_app.server.session.microphone import Microphone
from voice_app.server.session.vad import WebRtcDetector

KINDS = ("fact", "sum", "chit-chat")
"""Of what is asked: whole questions, without a history or a picture."""
SCENARIO = Path(__file__).parent / "scenarios" / "asks.toml"
"""Callers who ask these very questions."""
SPOKEN = Path(__file__).parents[1] / "tests" / "data" / "spoken"
BEFORE_S, AFTER_S = 0.5, 0.6
"""Quiet around a question for the voice detector; after it more than the detector's memory."""
_PACKET = round(PACKET_S * callers.RATE)
"""Samples."""


@cache
def pool() -> tuple[questions.Question, ...]:
    """What the crowds ask."""
    return tuple(q for q in questions.read() if q.kind in KINDS)


def recording(question: questions.Question) -> str:
    """The name of its sound, as the callers of `python -m load` tell it."""
    return f"{question.id}-1"


class Asking:
    """Asks through `talks`, whose runners note their `calls`, each time with another noise."""

    def __init__(self, talks: OneThread, calls: Calls) -> None:
        self.talks = talks
        self._calls = calls
        self._dice = np.random.default_rng(1)
        self._asked = 0

    def together(self, turns: int, first: int = 0) -> None:
        """So many questions at once, from number `first` of the pool on."""
        self._run([pool()[(first + number) % len(pool())] for number in range(turns)])

    def talk(self, asked: Sequence[questions.Question]) -> list[Shape]:
        """Questions asked one after the other, with their history; what each consists of."""
        history: list[m.Message] = []
        before, shapes = len(_opening(self.talks).keys), []
        for number, question in enumerate(asked):
            calls = self._calls.by_stage
            done = {stage: len(some) for stage, some in calls.items()}
            (result,) = self._run([question], history)
            usage = result.text_done.usage
            made = {stage: some[done[stage] :] for stage, some in calls.items()}
            ruled = result.text == SORRY or not any(call.amounts[-1] for call in made[Stage.THINKER])
            tokens = usage.output_tokens + ends_alone(result.text, ruled=ruled)
            clauses = _clauses(self.talks, result, tokens, made[Stage.TALKER_AR])
            shape = _shape(question, made, clauses, self._calls.words)
            shape = msgspec.structs.replace(
                shape,
                asked=usage.prompt_tokens - before,
                tokens=tokens,
                ruled=ruled,
                later=number > 0,
                guessed=0 if ruled else round(made[Stage.THINKER][-tokens].amounts[2]),
                passed=_passed(made[Stage.THINKER], tokens),
            )
            shapes.append(shape)
            before = usage.prompt_tokens + tokens
            words = next(e.text for e in result.events if isinstance(e, m.Transcript))
            history += [
                m.Message("user", (m.TextPart(words),)),
                m.Message("assistant", (m.TextPart(result.text),)),
            ]
        return shapes

    def _run(self, asked: Sequence[questions.Question], history: Sequence[m.Message] = ()) -> list[Result]:
        results = self.talks.run([self._request(question, history) for question in asked])
        self.talks.results.clear()
        return results

    def _request(self, question: questions.Question, history: Sequence[m.Message]) -> m.TurnRequest:
        self._asked += 1
        parts = spoken_anew(questions.parts(question, 0), int(self._dice.integers(1 << 32)))
        # Somebody else each time: a recogniser may know its last words of them.
        identity = TurnId(f"asking-{self._asked}", "0", time.monotonic_ns())
        return m.TurnRequest(identity, (*history, m.Message("user", parts)), now=question.now)


def pack_of(talks: OneThread, shapes: Sequence[Shape]) -> Pack:
    """The local pack, as the capacity model needs it."""
    thinker = cast(ThinkerRunner, talks.runners[Stage.THINKER])
    spec = cast(Code2WavRunner, talks.runners[Stage.CODE2WAV]).spec
    return Pack(
        name="local",
        shared=len(_opening(talks).keys),
        frame_s=spec.samples_per_frame / spec.sample_rate,
        pages=thinker.num_pages,
        page_size=thinker.page_size,
        max_positions=thinker.max_positions,
        left_context=spec.left_context,
        right_context=spec.right_context,
        first_window=spec.first_window,
        max_window=spec.max_window,
        states=cast(TalkerRunner, talks.runners[Stage.TALKER_AR]).max_states,
        codes=False,
        shapes=tuple(shapes),
    )


def _shape(
    question: questions.Question,
    calls: Mapping[Stage, Sequence[Call]],
    clauses: tuple[Clause, ...],
    words: int,
) -> Shape:
    """`calls`: those of its turn, which was alone. `words`: tokens of the question's."""
    hears = [Hearing(*call.amounts) for call in calls[Stage.AUDIO_ENCODER] if any(call.amounts)]
    return msgspec.structs.replace(heard(question), clauses=clauses, heard=words, hears=tuple(hears))


def _passed(calls: Sequence[Call], tokens: int) -> tuple[int, ...]:
    """As `Shape` has it, of an answer of `tokens` that was alone: before its own steps are its prompt's, of
    which the last gives the first token."""
    rows = [round(sum(call.amounts[1:4])) for call in calls]
    return tuple(rows[len(rows) - tokens + 1 :])


def heard(question: questions.Question) -> Shape:
    """What is known of a question before it is answered."""
    sound = callers.speech(SPOKEN / f"{recording(question)}.flac")
    return Shape(packets(sound) * PACKET_S, 0, 0, (), question=recording(question), listened=frames_of(sound))


def packets(sound: np.ndarray) -> int:
    """Of 20 ms, that it takes to send [n] float32 at 24 kHz."""
    return -(-len(sound) // _PACKET)


def frames_of(sound: np.ndarray) -> tuple[Stretch, ...]:
    """What the server's voice detector says of [n] float32 at 24 kHz, with the callers' noise, as each packet
    comes: from its first on to well beyond its last."""
    before, after = (callers.silence(seconds) for seconds in (BEFORE_S, AFTER_S))
    whole = np.concatenate([before, sound, np.zeros(-len(sound) % _PACKET, np.float32), after])
    noise = np.random.default_rng(0).normal(0, NOISE, len(whole))
    pcm = audio.to_pcm16((whole + noise).astype(np.float32))
    microphone = Microphone(AudioInput(), WebRtcDetector)
    # Each packet completes its own frame.
    said = [list(microphone.hear(pcm[at : at + 2 * _PACKET])) for at in range(0, len(pcm), 2 * _PACKET)]
    frames = ((some[0].silent_ms, some[0].hushed) for some in said[packets(before) :])
    return tuple(Stretch(len(list(some)), *what) for what, some in groupby(frames))


def _clauses(talks: OneThread, result: Result, last: int, calls: Sequence[Call]) -> tuple[Clause, ...]:
    """The answer's opening, if it has one, and its clauses. `last`: tokens after which the text is over;
    `calls`: the talker's, which had no other turn."""
    opens, ends = _ends(talks, result, last)
    clauses: list[Clause] = []
    # What is not spoken comes last: a space.
    for tokens, (frames, given) in zip(ends, _utterances(calls), strict=False):
        first = opens and not clauses
        clauses.append(Clause(tokens, frames, end=given) if first else Clause(tokens, frames, frames - given))
    return tuple(clauses)


def _utterances(calls: Sequence[Call]) -> list[tuple[int, int]]:
    """Of each that the talker has begun, one after the other: (its frames, how many of them it gave)."""
    found: list[tuple[int, int]] = []
    for call in calls:
        begun, frames, made = map(round, call.amounts)
        if begun:
            found.append((frames, made))
        elif made:
            frames, given = found[-1]
            found[-1] = (frames, given + made)
    return found


def _ends(talks: OneThread, result: Result, last: int) -> tuple[bool, list[int]]:
    """(Whether the answer has an opening, the tokens after which that is there and each clause is whole)."""
    tokens, cutter = cast(TokenDecoder, talks.runners[Stage.DECODE]), ClauseCutter()
    opening: list[int] = []
    ends: list[int] = []
    for number, token in enumerate(result.token_ids, 1):
        cutter.push(tokens.token_bytes(token).decode(errors="replace"))
        if not opening and cutter.opening() is not None:
            opening.append(number)
        ends += [number] * _taken(cutter)
    cutter.finish()
    return bool(opening), [*opening, *ends, *[last] * _taken(cutter)]


def _taken(cutter: ClauseCutter) -> int:
    """How many clauses are whole by now."""
    count = 0
    while cutter.peek() is not None:
        cutter.take()
        count += 1
    return count


def _opening(talks: OneThread) -> Prompt:
    (opening,) = cast(ThinkerRunner, talks.runners[Stage.THINKER]).openings()
    return opening
