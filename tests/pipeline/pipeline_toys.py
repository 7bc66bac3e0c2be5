"""A pack of toy models for all seven stages: pure numpy, exact, and told by the prompt what to break.

The answer to a text is the text itself, a byte a token; to a sound, "heard N samples, sum S"; to a
picture, "seen N values, sum S". A token's frame is [token] * 4, and a frame's sound is eight samples of
token / 256, so that any lost, doubled or swapped payload changes what comes out.

A text of the form "!ORDER [ARGUMENT]" gives an order instead:
    !raise STAGE    that stage's model raises         !die STAGE    that stage's process is killed
    !repeat N       an answer of N tokens             !kill VICTIM STAGE
                                                      the worker VICTIM is killed, by STAGE's model as it
                                                      reads what stage VICTIM sent
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil

from voice_app import messages as m
from voice_app.config import PackConfig
from voice_app.errors import ModelFileError, TransferFailed
from voice_app.messages import Stage
from voice_app.models.base import Report
from voice_app.pipeline.control import DataAck, Edge, from_bytes
from voice_app.pipeline.wire import Wire
from voice_app.schedulers.base import (
    AnyRunner,
    NothingToPark,
    Prompt,
    PromptInputs,
    SequenceStep,
    StageInput,
    StepOutput,
    TalkerOutput,
    WaveSpec,
    WaveWindow,
)

WIDTH = 576
GROUPS = 4
SAMPLES_PER_FRAME = 8
SAMPLE_RATE = 8000
BREAK = {stage: 60_000 + n for n, stage in enumerate(Stage)}
"""Tokens and codes that make a later stage obey an order."""
KILL = {stage: 1000 * n for n, stage in enumerate(Stage, 1)}
"""Added to it: kill that stage's worker."""
TELLERS = (Stage.PREPROCESSING, Stage.IMAGE_ENCODER, Stage.AUDIO_ENCODER)
"""What they send holds the turn's text: the talker reads there whether it is to kill them."""


class Broken(Exception):
    """What a toy raises when it is told to."""


def text_of(request: m.TurnRequest) -> str:
    return "".join(p.text for p in request.messages[-1].parts if isinstance(p, m.TextPart))


def obey(text: str, stage: Stage) -> None:
    """Break here if `text` orders it."""
    if text == f"!raise {stage}":
        raise Broken("told to\nwith a second line")
    if text == f"!die {stage}":
        os.kill(os.getpid(), signal.SIGKILL)
    match text.split():
        case ["!kill", victim, reader] if reader == stage:
            kill(Stage(victim))


def kill(victim: Stage) -> None:
    """Kill the worker of this pipeline that is named after `victim`, and wait until it is gone."""
    server = psutil.Process().parent()
    assert server is not None
    (worker,) = (process for process in server.children() if _last_argument(process) == worker_of(victim))
    worker.kill()
    with contextlib.suppress(psutil.NoSuchProcess):
        while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)


def _last_argument(process: psutil.Process) -> str:
    """Empty for one that has ended; the server may not have noticed yet."""
    try:
        return (process.cmdline() or [""])[-1]
    except psutil.NoSuchProcess:
        return ""


def worker_of(stage: Stage) -> str:
    """The worker of `stage` where each has its own."""
    return stage.replace("_", "-")


class Warm:
    def warm_up(self) -> None:
        return None


class Preprocessing(Warm):
    def run(self, batch: Sequence[StageInput]) -> list[list[m.EdgePayload | m.StageEvent]]:
        return [self._one(item.payload) for item in batch]

    def _one(self, request: m.StagePayload) -> list[m.EdgePayload | m.StageEvent]:
        assert isinstance(request, m.TurnRequest)
        text = text_of(request)
        obey(text, Stage.PREPROCESSING)
        spans: list[m.Span] = [m.Span(ids=tuple(text.encode()))]
        out: list[m.EdgePayload | m.StageEvent] = []
        for n, part in enumerate(request.messages[-1].parts):
            if isinstance(part, m.AudioPart):
                media = m.Media(f"{text}|sound {n}", "audio")
                out.append(m.MelFrames(media, part.samples * 2, len(part.samples) / part.sample_rate))
            elif isinstance(part, m.ImagePart):
                media = m.Media(f"{text}|picture {n}", "image")
                pixels = np.frombuffer(part.data, np.uint8).astype(np.float32)
                out.append(m.ImagePatches(media, pixels, (1, 1, len(pixels))))
            else:
                continue
            spans.append(m.Span(media=media))
        params = m.PromptParams(sampling=request.sampling)
        return [m.PromptIds(tuple(spans), params), *out]


class Encoder(Warm):
    def __init__(self, stage: Stage) -> None:
        self.stage: Stage = stage

    def run(self, batch: Sequence[StageInput]) -> list[list[m.EdgePayload | m.StageEvent]]:
        return [self._one(item.payload) for item in batch]

    def _one(self, payload: m.StagePayload) -> list[m.EdgePayload | m.StageEvent]:
        assert isinstance(payload, m.MelFrames | m.ImagePatches)
        obey(payload.media.key.split("|")[0], self.stage)
        if isinstance(payload, m.MelFrames):
            samples = payload.frames / 2
            what = f"heard {len(samples)} samples, sum {float(samples.astype(np.float64).sum()):.3f}"
            rows = samples
        else:
            rows = payload.patches * 1.0
            what = f"seen {rows.size} values, sum {float(rows.astype(np.float64).sum()):.0f}"
        padded = np.zeros((-(-max(1, rows.size) // WIDTH), WIDTH), np.float32)
        padded.reshape(-1)[: rows.size] = rows
        return [m.Embeddings(payload.media, padded, text=what)]


class Thinker(Warm):
    page_size = 16
    num_pages = 512
    max_positions = 4096
    overlaps = False
    grows = False
    least_part = 1

    def openings(self) -> Sequence[Prompt]:
        return ()

    def assemble(self, inputs: PromptInputs) -> Prompt:
        text = bytes(b for span in inputs.prompt.spans for b in span.ids).decode()
        obey(text, Stage.THINKER)
        order, _, argument = text.partition(" ")
        if order == "!repeat":
            tokens = [97 + n % 26 for n in range(int(argument))]
        elif order == "!kill":
            victim, stage = argument.split()
            by_code = stage != Stage.TALKER_AR or Stage(victim) not in TELLERS
            code = [BREAK[Stage(stage)] + KILL[Stage(victim)]] if by_code else []
            # Long, so that the turn is still under way when the death is noticed.
            tokens = [*b"ab", *code, *b"c" * 3000]
        elif order in ("!raise", "!die") and argument in (Stage.DECODE, Stage.TALKER_AR, Stage.CODE2WAV):
            tokens = [*b"ab", BREAK[Stage(argument)] + (100 if order == "!die" else 0)]
        else:
            media_keys = [span.media.key for span in inputs.prompt.spans if span.media]
            heard = [inputs.media[key].text for key in media_keys]
            for media in inputs.media.values():
                # What the encoder summed must be what arrived here, also by another way.
                assert media.text.endswith(
                    f"sum {float(media.rows.astype(np.float64).sum()):.{3 if 'heard' in media.text else 0}f}"
                )
            tokens = list("; ".join([text, *heard] if text else heard).encode())
        params = inputs.prompt.request
        keys = [1, *(b for span in inputs.prompt.spans for b in span.ids)]
        return Prompt(keys, params, params.sampling, len(tokens) + 1, frozenset({0}), state=tokens)

    def step(self, batch: Sequence[SequenceStep]) -> list[StepOutput]:
        time.sleep(0.0002)  # A model's step takes time outside the interpreter's lock.
        return [self._one(step) for step in batch]

    def _one(self, step: SequenceStep) -> StepOutput:
        tokens = step.prompt.state
        assert isinstance(tokens, list)
        if not step.sample:
            return StepOutput()
        at = len(step.outputs)
        token = tokens[at] if at < len(tokens) else 0
        return StepOutput(token, np.full(WIDTH, token, np.float32))

    def close(self, prompt: Prompt) -> None:
        prompt.state = None


class Decode(Warm):
    def token_bytes(self, token: int) -> bytes:
        _obey_code(token, Stage.DECODE)
        return bytes([token]) if token < 256 else b""


class _Voice:
    def __init__(self) -> None:
        self.vectors: list[m.TokenVector] = []
        self.owed = 0
        """Payloads fed beside the vectors, given back with the next step."""


class Talker(NothingToPark, Warm):
    max_states = 8

    def open(self, turn: m.TurnId) -> _Voice:
        return _Voice()

    def feed(self, state: object, payload: m.EdgePayload) -> None:
        assert isinstance(state, _Voice)
        if isinstance(payload, m.TokenVector):
            state.vectors.append(payload)
            return
        state.owed += 1
        for source in TELLERS:
            if _text_of_input(payload, source) == f"!kill {source} {Stage.TALKER_AR}":
                kill(source)

    def ready(self, state: object) -> bool:
        assert isinstance(state, _Voice)
        return bool(state.vectors)

    def step(self, states: Sequence[object]) -> list[TalkerOutput]:
        return [self._one(state) for state in states]

    def _one(self, state: object) -> TalkerOutput:
        assert isinstance(state, _Voice)
        vector = state.vectors.pop(0)
        consumed, state.owed = 1 + state.owed, 0
        done = vector.finish_reason is not None
        if vector.id is None:
            frames = np.empty((0, GROUPS), np.int64)
        else:
            assert vector.vector is not None
            assert (vector.vector == vector.id).all()
            _obey_code(vector.id, Stage.TALKER_AR)
            frames = np.full((1, GROUPS), vector.id, np.int64)
        return TalkerOutput(m.CodeFrames(frames, segment_end=done, last=done), consumed, done)

    def close(self, state: object) -> None:
        return None


class Code2Wav(Warm):
    spec = WaveSpec(SAMPLE_RATE, SAMPLES_PER_FRAME, 0, 0, GROUPS, None, 2, 8)

    def open(self) -> object:
        return object()

    def decode(self, windows: Sequence[WaveWindow]) -> list[np.ndarray]:
        for window in windows:
            for code in window.frames[:, 0].tolist():
                _obey_code(int(code), Stage.CODE2WAV)
        return [np.repeat(w.frames[:, 0] / 256, SAMPLES_PER_FRAME).astype(np.float32) for w in windows]

    def close(self, state: object) -> None:
        return None


def _text_of_input(payload: m.EdgePayload, source: Stage) -> str:
    """The turn's text, if `source` sent this."""
    if isinstance(payload, m.PromptIds) and source is Stage.PREPROCESSING:
        return bytes(b for span in payload.spans for b in span.ids).decode()
    kind = {Stage.IMAGE_ENCODER: "image", Stage.AUDIO_ENCODER: "audio"}.get(source)
    if isinstance(payload, m.Embeddings) and payload.media.kind == kind:
        return payload.media.key.split("|")[0]
    return ""


def _obey_code(code: int, stage: Stage) -> None:
    if code == BREAK[stage]:
        raise Broken("told to")
    if code == BREAK[stage] + 100:
        os.kill(os.getpid(), signal.SIGKILL)
    for victim, order in KILL.items():
        if code == BREAK[stage] + order:
            kill(victim)


class ToyPack:
    def build(self, stage: Stage) -> AnyRunner:
        match stage:
            case Stage.PREPROCESSING:
                return Preprocessing()
            case Stage.IMAGE_ENCODER | Stage.AUDIO_ENCODER:
                return Encoder(stage)
            case Stage.THINKER:
                return Thinker()
            case Stage.DECODE:
                return Decode()
            case Stage.TALKER_AR:
                return Talker()
            case Stage.CODE2WAV:
                return Code2Wav()


def create(config: PackConfig, report: Report) -> ToyPack:
    """`config.model` may say how loading goes: "missing", "dies", "hangs", "slow:SECONDS" (it tells of
    progress), "fetches:FILE" (hangs in a process whose id it writes there), or "wire:FILE", which appends all
    that this worker sends to FILE, or "acks:FATE" (see `spoil_acks`)."""
    report("loading toys")
    if config.model == "missing":
        raise ModelFileError("toy.bin: not there; pull it", param="model")
    if config.model == "dies":
        raise Broken("while loading")
    if config.model == "hangs":
        time.sleep(3600)
    if config.model is not None and config.model.startswith("slow:"):
        end = time.monotonic() + float(config.model.removeprefix("slow:"))
        while time.monotonic() < end:
            time.sleep(0.5)
            report("one step further")
    if config.model is not None and config.model.startswith("fetches:"):
        fetch = subprocess.Popen(["sleep", "3600"])
        Path(config.model.removeprefix("fetches:")).write_text(str(fetch.pid))
        fetch.wait()
    if config.model is not None and config.model.startswith("wire:"):
        record_wire(Path(config.model.removeprefix("wire:")))
    if config.model is not None and config.model.startswith("acks:"):
        spoil_acks(config.model.removeprefix("acks:"))
    return ToyPack()


def record_wire(path: Path) -> None:
    """From now on append all that this process sends to `path`."""
    send = Wire.send_bytes

    def record(self: Wire, node: str, data: bytes) -> None:
        with path.open("ab") as log:
            log.write(len(data).to_bytes(4, "little") + data)
        send(self, node, data)

    Wire.send_bytes = record


LATE_S = 0.3


def spoil_acks(fate: str) -> None:
    """From now on every ack that this process sends is "lost" (but comes when it is asked for), "doubled",
    or "late" by LATE_S."""
    send = Wire.send_bytes
    known: set[tuple[Edge, tuple[int, ...]]] = set()

    def send_late(wire: Wire, node: str, data: bytes) -> None:
        with contextlib.suppress(TransferFailed):  # The pipeline may have stopped meanwhile.
            send(wire, node, data)

    def send_bytes(self: Wire, node: str, data: bytes) -> None:
        message = from_bytes(data)
        first = isinstance(message, DataAck) and (message.edge, message.seqs) not in known
        if not isinstance(message, DataAck) or (fate == "lost" and not first):
            send(self, node, data)
        elif fate == "lost":
            known.add((message.edge, message.seqs))
        elif fate == "doubled":
            send(self, node, data)
            send(self, node, data)
        else:
            threading.Timer(LATE_S, send_late, (self, node, data)).start()

    Wire.send_bytes = send_bytes
