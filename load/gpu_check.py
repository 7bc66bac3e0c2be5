"""Qwen3-Omni on a GPU: is it right, and how fast is it at its true size? One table, a few minutes.

    python load/gpu_check.py --json report.json            # on a machine with CUDA (one H200: goals apply)
    python load/gpu_check.py --device cpu --tiny           # no GPU: only shows that this script runs

First a tiny checkpoint's greedy answers are compared with transformers' generate, then the model is made at
its published size with random weights on the device and each stage is timed. Limits from bytes moved: an
H200 reads 4.8 TB/s, so a thinker step takes at least 1.27 ms, a talker frame 0.63 ms, a 50-frame window
0.32 ms.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from true_size import TrueSize

from voice_app import messages as m
from voice_app.bench.engine_steps import step_times
from voice_app.bench.one_thread import OneThread
from voice_app.bench.report import Goal, median, print_goals, print_table, write_json
from voice_app.config import PackConfig
from voice_app.errors import VoiceAppError
from voice_app.messages import Stage
from voice_app.models.qwen3_omni.checkpoint import Checkpoint
from voice_app.models.qwen3_omni.code2wav import Code2Wav
from voice_app.models.qwen3_omni.pack import Qwen3OmniPack
from voice_app.models.qwen3_omni.thinker import Thinker
from voice_app.models.qwen3_omni.tiny_checkpoint import TinyShape, make_tiny_checkpoint
from voice_app.schedulers.base import AnyRunner, PromptInputs, SequenceStep, StageInput, WaveWindow

FRAME_S = 0.08
SECONDS = 10.0
"""Length of the spoken question."""
CROWDS = (1, 4, 16)
REPEATS = 20
GOALS = {
    "thinker step, batch 1": 3.0,
    "talker frame, batch 1": 3.0,
    "code2wav window of 25 frames": 2.0,
    "first audio, 1 at a time": 120.0,
    "talker frame, batch 16": FRAME_S * 1000,
}
"""Milliseconds on one H200; the last is real time for sixteen voices."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument(
        "--tiny", action="store_true", help="time the tiny checkpoint in place of the true size"
    )
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        tiny = make_tiny_checkpoint(folder, 0, TinyShape(eos_scale=0.0))
        equal = _equal_to_generate(tiny, arguments.device)
        checkpoint = Checkpoint(str(tiny)) if arguments.tiny else TrueSize()
        started = time.perf_counter()
        runners = _runners(checkpoint, arguments.device)
        rows.append(("built and warmed up, s", time.perf_counter() - started))
        rows += _steps(runners)
        rows += _windows(cast(Code2Wav, runners[Stage.CODE2WAV]))
        rows.append(("prefill of 1,000 tokens", _prefill(cast(Thinker, runners[Stage.THINKER]))))
        rows += _first_audio(runners)
    print_table(
        f"{checkpoint.name} on {_device_name(arguments.device)}",
        ("", "milliseconds"),
        [(name, f"{value:,.2f}") for name, value in rows],
    )
    figures = dict(rows)
    goals = [Goal("tiny answers equal to generate's", equal, 4, at_least=True)]
    if not arguments.tiny:
        goals += [Goal(name, figures[name], limit, "ms") for name, limit in GOALS.items()]
    write_json(arguments.json, {"device": _device_name(arguments.device), "figures": figures, "equal": equal})
    return min(1, print_goals(goals))


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


# ---------------------------------------------------------------------------------------- is it right


def _equal_to_generate(folder: Path, device: str) -> int:
    """How many of four greedy answers (tokens and codes) equal transformers' on this device, in float32."""
    from transformers import AutoTokenizer, Qwen3OmniMoeForConditionalGeneration

    reference: Any = Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    reference = reference.to(device)
    codes: list[torch.Tensor] = []
    decode = reference.code2wav.chunked_decode

    def keep(given: torch.Tensor, **settings: int) -> torch.Tensor:
        codes.append(given)
        return decode(given, **settings)

    reference.code2wav.chunked_decode = keep
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    pack = Qwen3OmniPack(_config(device, dtype="float32"), Checkpoint(str(folder)), lambda _: None)
    stages = OneThread(pack.build)
    equal = 0
    for number in range(4):
        words = f"Question number {number}?"
        request = m.TurnRequest(
            m.TurnId("gpu", str(number)),
            (m.Message("user", (m.TextPart(words),)),),
            greedy=True,
            sampling=m.Sampling(max_tokens=12),
            max_frames=20,
        )
        (result,) = stages.run([request])
        inputs = tokenizer.apply_chat_template(
            [{"role": "user", "content": words}],
            chat_template=Checkpoint(str(folder)).chat_template(),
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        ).to(device)
        sequence, _ = reference.generate(
            **inputs,
            thinker_max_new_tokens=12,
            thinker_eos_token_id=reference.config.im_end_token_id,
            talker_max_new_tokens=21,
            talker_do_sample=False,
        )
        tokens = sequence[0, inputs["input_ids"].shape[1] :].tolist()
        same_codes = codes[-1][0].T.cpu().tolist() == result.codes.tolist()
        equal += tokens == result.token_ids and same_codes
    return equal


# ----------------------------------------------------------------------------------------- how fast


def _config(device: str, dtype: str | None = None) -> PackConfig:
    on_device = {str(stage): device for stage in Stage if stage not in (Stage.PREPROCESSING, Stage.DECODE)}
    return PackConfig("qwen3-omni", "given", dtype=dtype, devices=on_device)


def _runners(checkpoint: Checkpoint, device: str) -> dict[Stage, AnyRunner]:
    pack = Qwen3OmniPack(_config(device), checkpoint, print)
    runners: dict[Stage, AnyRunner] = {
        Stage.PREPROCESSING: _Preprocessing(checkpoint),
        Stage.DECODE: _Decode(),
    }
    for stage in Stage:
        if stage not in runners:
            runners[stage] = pack.build(stage)
            runners[stage].warm_up()
    return runners


@dataclass
class _Preprocessing:
    """Stands in for the tokenizer, which a model without files has not: a prompt of one recording."""

    checkpoint: Checkpoint
    _rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def run(
        self, batch: Sequence[StageInput]
    ) -> Sequence[Sequence[m.EdgePayload | m.StageEvent] | VoiceAppError]:
        return [self._one(cast(m.TurnRequest, item.payload)) for item in batch]

    def _one(self, request: m.TurnRequest) -> list[m.EdgePayload | m.StageEvent]:
        checkpoint = self.checkpoint
        start, end = checkpoint.integer("im_start_token_id"), checkpoint.integer("im_end_token_id")
        user, answer = checkpoint.integer("user_token_id"), checkpoint.integer("assistant_token_id")
        media = m.Media(request.turn.turn, "audio")
        spans = (m.Span(ids=(start, user, 10)), m.Span(media=media), m.Span(ids=(end, 10, start, answer, 10)))
        params = m.PromptParams(request.sampling, greedy=True, max_frames=request.max_frames)
        frames = self._rng.standard_normal((128, int(SECONDS * 100)), np.float32)
        return [m.PromptIds(spans, params), m.MelFrames(media, frames, SECONDS)]

    def warm_up(self) -> None:
        """Nothing to run."""


class _Decode:
    def token_bytes(self, token: int) -> bytes:
        return b"x"

    def warm_up(self) -> None:
        """Nothing to run."""


def _steps(runners: dict[Stage, AnyRunner]) -> list[tuple[str, float]]:
    rows: list[tuple[str, float]] = []
    prompt_ids = cast(_Preprocessing, runners[Stage.PREPROCESSING])
    (prompt, _) = prompt_ids._one(_request("steps"))
    assert isinstance(prompt, m.PromptIds)
    text_only = m.PromptIds((prompt.spans[0], prompt.spans[2]), prompt.request)
    for times in step_times(runners, text_only, CROWDS, clock=time.perf_counter):
        rows.append((f"thinker step, batch {times.batch}", times.thinker_ms))
        rows.append((f"talker frame, batch {times.batch}", times.talker_ms))
    return rows


def _windows(runner: Code2Wav) -> list[tuple[str, float]]:
    rng = np.random.default_rng(0)
    codebook = runner.spec.codebook
    assert codebook is not None

    def window(frames: int, size: int) -> Callable[[], object]:
        states = [runner.open() for _ in range(size)]
        codes = rng.integers(0, codebook, (frames, runner.spec.channels))
        first = [WaveWindow(s, codes[:1], 0, 0, segment_start=True, segment_end=False) for s in states]
        runner.decode(first)
        later = [WaveWindow(s, codes, 0, 0, segment_start=False, segment_end=False) for s in states]
        return lambda: runner.decode(later)

    return [
        (
            f"code2wav window of {frames} frames" + ("" if size == 1 else f", {size} at a time"),
            _ms(window(frames, size)),
        )
        for frames, size in ((1, 1), (25, 1), (25, 16))
    ]


def _prefill(thinker: Thinker) -> float:
    ids = m.PromptIds((m.Span(ids=tuple(100 + i % 400 for i in range(1000))),), m.PromptParams(greedy=True))
    prompt = thinker.assemble(PromptInputs(m.TurnId("gpu", "prefill"), ids, {}))
    pages = list(range(-(-1000 // thinker.page_size)))
    return _ms(lambda: thinker.step([SequenceStep(prompt, [], 0, 1000, pages, sample=True)]))


def _first_audio(runners: dict[Stage, AnyRunner]) -> list[tuple[str, float]]:
    """From a committed question of `SECONDS` to its first chunk of sound, all stages in this one thread."""
    rows: list[tuple[str, float]] = []
    for crowd in CROWDS:
        waits: list[float] = []
        for repeat in range(3):
            stages = OneThread(runners.__getitem__)
            start = time.perf_counter()
            results = [stages.submit(_request(f"{crowd} {repeat} {i}")) for i in range(crowd)]
            sounded: set[int] = set()
            while len(sounded) < crowd:
                stages.step()
                for number, result in enumerate(results):
                    if number not in sounded and any(isinstance(e, m.AudioChunk) for e in result.events):
                        sounded.add(number)
                        waits.append(time.perf_counter() - start)
            for result in results:
                stages.cancel(result.request.turn)
        rows.append((f"first audio, {crowd} at a time", median(waits) * 1000))
    return rows


def _request(name: str) -> m.TurnRequest:
    sampling = m.Sampling(max_tokens=64)
    return m.TurnRequest(m.TurnId("gpu", name), (), greedy=True, sampling=sampling, max_frames=200)


def _ms(call: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return median(times) * 1000


if __name__ == "__main__":
    raise SystemExit(main())
