"""Qwen3-Omni's engine against transformers' own generate, on a tiny checkpoint, one thread.

All seven stages run in this thread, through the real schedulers, without processes or transports. Times
are CPU seconds of the process: with one thread they are what a clock shows on an idle machine, and other
work on the machine does not change them.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, Qwen3OmniMoeForConditionalGeneration
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from voice_app import messages as m
from voice_app.bench.engine_steps import StepTimes, prompt_of, step_times
from voice_app.bench.one_thread import OneThread, Result
from voice_app.bench.report import Goal, median, print_goals, print_table, write_json
from voice_app.config import PackConfig
from voice_app.messages import Stage
from voice_app.models.qwen3_omni.checkpoint import Checkpoint
from voice_app.models.qwen3_omni.pack import create
from voice_app.models.qwen3_omni.tiny_checkpoint import TinyShape, make_tiny_checkpoint
from voice_app.schedulers.base import AnyRunner

REQUESTS = 16
TOKENS = 16
FRAMES = 23
"""A short spoken answer: a sentence, two seconds of sound."""
APART_S = 0.01
"""From one request to the next: about a step of all stages, so that they join a running batch one by one."""
TURNS = 20
SPEEDUP_GOAL = 8.0
FIRST_AUDIO_GOAL = 0.1
"""Of the time that generate takes to return."""

clock = time.process_time


def main(json_path: str | None = None) -> int:
    """Measure, print, keep; returns how many goals were missed."""
    torch.set_num_threads(1)
    disable_progress_bar()
    set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        # An EOS that is never picked: every request makes as many tokens and frames as every other.
        model = make_tiny_checkpoint(folder, seed=0, shape=TinyShape(eos_scale=0.0))
        pack = create(PackConfig("qwen3-omni", str(model)), lambda _: None)
        runners = {stage: pack.build(stage) for stage in Stage}
        for runner in runners.values():
            runner.warm_up()
        crowd = _crowd(model, runners)
        steps = step_times(runners, prompt_of(runners, "How long does a step take?"))
        history = _history(runners)
    goals = _print(crowd, steps, history)
    figures = {
        "crowd": crowd,
        "steps": [step.figures() for step in steps],
        "history": history,
    }
    write_json(json_path, figures, goals)
    return print_goals(goals)


def _request(name: str, *messages: m.Message) -> m.TurnRequest:
    return m.TurnRequest(
        m.TurnId("bench", name),
        messages,
        greedy=True,
        sampling=m.Sampling(max_tokens=TOKENS),
        max_frames=FRAMES,
    )


def _user(words: str) -> m.Message:
    return m.Message("user", (m.TextPart(words),))


# ------------------------------------------------------------------------------- sixteen at a time


def _crowd(model: Path, runners: dict[Stage, AnyRunner]) -> dict[str, float]:
    requests = [_request(f"{i}", _user(f"Question number {i}: what is it?")) for i in range(REQUESTS)]
    reference = _Generate(model)
    reference.answer(requests[0])
    expected: list[list[int]] = []
    results: list[Result] = []
    generate: list[float] = []
    ours: list[float] = []
    first_audio: list[float] = []
    alone: list[float] = []
    # Interleaved, so that whatever slows the machine slows both.
    for round_ in range(3):
        start = clock()
        expected = [reference.answer(request) for request in requests]
        generate.append(clock() - start)
        results, seconds, sound_after = _staggered(runners, requests, APART_S)
        ours.append(seconds)
        first_audio += sound_after
        _, _, sound_alone = _staggered(runners, requests[round_ : round_ + 1], 0.0)
        alone += sound_alone
    equal = sum(r.token_ids == tokens for r, tokens in zip(results, expected, strict=True))
    return {
        "generate_s": median(generate),
        "engine_s": median(ours),
        "speedup": median([g / o for g, o in zip(generate, ours, strict=True)]),
        "equal_answers": equal,
        "generate_returns_ms": median(generate) / REQUESTS * 1000,
        "first_audio_alone_ms": median(alone) * 1000,
        "first_audio_crowd_ms": median(first_audio) * 1000,
    }


class _Generate:
    """transformers, one request after another."""

    def __init__(self, folder: Path) -> None:
        self._model: Any = Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._template = Checkpoint(str(folder)).chat_template()

    def answer(self, request: m.TurnRequest) -> list[int]:
        """The answer's token ids; speech is made too."""
        (part,) = request.messages[0].parts
        assert isinstance(part, m.TextPart)
        ids = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": part.text}],
            chat_template=self._template,
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )
        sequences, _ = self._model.generate(
            **ids,
            thinker_max_new_tokens=TOKENS,
            thinker_eos_token_id=self._model.config.im_end_token_id,
            talker_max_new_tokens=FRAMES + 1,
            talker_do_sample=False,
        )
        return sequences[0, ids["input_ids"].shape[1] :].tolist()


def _staggered(
    runners: dict[Stage, AnyRunner], requests: Sequence[m.TurnRequest], apart: float
) -> tuple[list[Result], float, list[float]]:
    """Results, seconds from the first request's arrival to the last one's end, and each one's seconds from
    arrival to its first sound. No request arrives before its time; if nothing runs then, time is skipped."""
    stages = OneThread(runners.__getitem__, clock=clock)
    results: list[Result] = []
    arrived: list[float] = []
    sounded: dict[int, float] = {}
    start, skipped = clock(), 0.0
    while len(results) < len(requests) or not all(result.over for result in results):
        now = clock() - start + skipped
        if len(results) < len(requests) and all(result.over for result in results):
            skipped += max(0.0, len(results) * apart - now)
            now = max(now, len(results) * apart)
        while len(results) < len(requests) and len(results) * apart <= now:
            arrived.append(now)
            results.append(stages.submit(requests[len(results)]))
        stages.step()
        now = clock() - start + skipped
        for number, result in enumerate(results):
            if number not in sounded and any(isinstance(e, m.AudioChunk) for e in result.events):
                sounded[number] = now
    seconds = clock() - start + skipped
    return results, seconds, [sounded[i] - at for i, at in enumerate(arrived)]


# ------------------------------------------------------------------------------ a talk's twenty turns


def _history(runners: dict[Stage, AnyRunner]) -> list[dict[str, float]]:
    """What each turn of one conversation costs."""
    stages = OneThread(runners.__getitem__, clock=clock)
    messages: list[m.Message] = []
    turns: list[dict[str, float]] = []
    for number in range(1, TURNS + 1):
        messages.append(_user(f"This is turn number {number} of our talk. What do you say to that?"))
        request = _request(f"turn {number}", *messages)
        start = clock()
        result = stages.submit(request)
        stages.run_until(lambda r=result: bool(r.events))
        first_text = clock() - start
        stages.run_until(lambda r=result: any(isinstance(e, m.AudioChunk) for e in r.events))
        first_audio = clock() - start
        stages.run_until(lambda r=result: r.over)
        usage = result.text_done.usage
        turns.append(
            {
                "turn": number,
                "prompt_tokens": usage.prompt_tokens,
                "cached_tokens": usage.cached_tokens,
                "first_text_ms": first_text * 1000,
                "first_audio_ms": first_audio * 1000,
                "whole_turn_ms": (clock() - start) * 1000,
            }
        )
        messages.append(m.Message("assistant", (m.TextPart(result.text),)))
    return turns


# -------------------------------------------------------------------------------------------- report


def _print(
    crowd: dict[str, float], steps: Sequence[StepTimes], history: Sequence[dict[str, float]]
) -> list[Goal]:
    print_table(
        f"{REQUESTS} requests, one every {APART_S * 1000:.0f} ms, {TOKENS} tokens and {FRAMES} frames each",
        ("", "generate, one by one", "engine"),
        [
            ("all answered after", f"{crowd['generate_s']:.2f} s", f"{crowd['engine_s']:.2f} s"),
            (
                "first audio, alone",
                f"{crowd['generate_returns_ms']:.0f} ms",
                f"{crowd['first_audio_alone_ms']:.0f} ms",
            ),
            ("first audio, in the crowd", "", f"{crowd['first_audio_crowd_ms']:.0f} ms"),
            ("answers equal", "", f"{crowd['equal_answers']:.0f} of {REQUESTS}"),
        ],
    )
    print(
        "Bound by: dispatch of small operations; code2wav's convolutions, which gain nothing from a batch.\n"
    )
    print_table(
        "one step against the batch",
        ("batch", "thinker step", "tokens/s", "talker frame", "frames/s", "times real time, each"),
        [step.row() for step in steps],
    )
    print("Bound by: dispatch up to about 8 rows, then by the rows' own arithmetic; 15 of a frame's 16 codes")
    print("are the predictor's passes, one after another.\n")
    print_table(
        "a talk of twenty turns",
        ("turn", "prompt tokens", "of them cached", "first text", "first audio", "whole turn"),
        [
            (
                f"{turn['turn']:.0f}",
                f"{turn['prompt_tokens']:.0f}",
                f"{turn['cached_tokens']:.0f}",
                *(f"{turn[name]:.1f} ms" for name in ("first_text_ms", "first_audio_ms", "whole_turn_ms")),
            )
            for turn in history
            if turn["turn"] in (1, 2, 5, 10, 15, 20)
        ],
    )
    print(
        "Bound by: rendering and tokenizing the whole history, the talker's own prompt of all user turns, and"
    )
    print("attention over it; the thinker computes each turn's new tokens only.\n")
    returns = crowd["generate_returns_ms"]
    return [
        Goal("throughput against generate", crowd["speedup"], SPEEDUP_GOAL, "x", at_least=True),
        Goal(
            "first audio against generate's return", crowd["first_audio_alone_ms"] / returns, FIRST_AUDIO_GOAL
        ),
        Goal("answers equal to generate's", crowd["equal_answers"], REQUESTS, at_least=True),
    ]
