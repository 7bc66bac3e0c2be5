"""The stage graph: seven stages, eleven edges, declared here and nowhere else."""

from dataclasses import dataclass
from enum import StrEnum

from voice_app import messages as m
from voice_app.messages import Stage


class SchedulerKind(StrEnum):
    """Which loop a stage runs in, named after the class in `voice_app/schedulers/`."""

    SIMPLE = "SimpleScheduler"
    OMNI = "OmniScheduler"
    TALKER = "QwenTalkerScheduler"
    STREAMING_DETOKENIZE = "StreamingDetokenizeScheduler"
    CODE2WAV = "Code2WavScheduler"


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One stage. `batch`: the most requests in one model call."""

    name: Stage
    scheduler: SchedulerKind
    batch: int
    takes: str
    gives: str


@dataclass(frozen=True, slots=True)
class EdgeSpec:
    """One edge. `payloads`: the message types that cross it. `voice`: carried only if the turn is
    to be spoken. `stream`: many payloads a turn (else one for each input of the turn)."""

    number: int
    source: Stage
    target: Stage
    payloads: tuple[type, ...]
    what: str
    size: str
    often: str
    stream: bool = False
    voice: bool = False


_S = Stage

STAGES: dict[Stage, StageSpec] = {
    s.name: s
    for s in (
        StageSpec(
            _S.PREPROCESSING,
            SchedulerKind.SIMPLE,
            32,
            "audio, image, text",
            "token ids, mel frames, image patches",
        ),
        StageSpec(
            _S.IMAGE_ENCODER,
            SchedulerKind.SIMPLE,
            32,
            "patches",
            "embeddings of the thinker's width",
        ),
        StageSpec(
            _S.AUDIO_ENCODER,
            SchedulerKind.SIMPLE,
            32,
            "mel frames",
            "embeddings of the thinker's width",
        ),
        StageSpec(
            _S.THINKER,
            SchedulerKind.OMNI,
            64,
            "prompt of ids + embeddings",
            "a token id and a vector per step",
        ),
        StageSpec(
            _S.DECODE,
            SchedulerKind.STREAMING_DETOKENIZE,
            64,
            "token ids",
            "text that is safe to show",
        ),
        StageSpec(
            _S.TALKER_AR,
            SchedulerKind.TALKER,
            32,
            "vectors, as they come",
            "frames",
        ),
        StageSpec(_S.CODE2WAV, SchedulerKind.CODE2WAV, 32, "frames", "PCM chunks"),
    )
}

EDGES: tuple[EdgeSpec, ...] = (
    EdgeSpec(
        1,
        _S.PREPROCESSING,
        _S.IMAGE_ENCODER,
        (m.ImagePatches,),
        "the photo as patches",
        "896 x 896 x 3 = 2,408,448 values",
        "once",
    ),
    EdgeSpec(
        2,
        _S.PREPROCESSING,
        _S.AUDIO_ENCODER,
        (m.MelFrames,),
        "the question as mel frames",
        "10 s x 100 = 1,000 frames",
        "once",
    ),
    EdgeSpec(
        3,
        _S.PREPROCESSING,
        _S.THINKER,
        (m.PromptIds,),
        "the prompt's token ids",
        "one number a text position",
        "once",
    ),
    EdgeSpec(
        4,
        _S.IMAGE_ENCODER,
        _S.THINKER,
        (m.Embeddings,),
        "784 embeddings",
        "784 x 4 KB = 3,136 KB",
        "once",
    ),
    EdgeSpec(
        5,
        _S.AUDIO_ENCODER,
        _S.THINKER,
        (m.Embeddings,),
        "130 embeddings",
        "130 x 4 KB = 520 KB",
        "once",
    ),
    EdgeSpec(
        6,
        _S.THINKER,
        _S.DECODE,
        (m.TokenId,),
        "a token id",
        "one number",
        "every token",
        stream=True,
    ),
    EdgeSpec(
        7,
        _S.THINKER,
        _S.TALKER_AR,
        (m.PromptHidden, m.TokenVector),
        "the token's vector",
        "2,048 x 2 B = 4 KB",
        "every token",
        stream=True,
        voice=True,
    ),
    EdgeSpec(
        8,
        _S.TALKER_AR,
        _S.CODE2WAV,
        (m.CodeFrames,),
        "codes",
        "10 frames x 16 = 160 numbers",
        "every 10 frames",
        stream=True,
        voice=True,
    ),
    EdgeSpec(
        9,
        _S.PREPROCESSING,
        _S.TALKER_AR,
        (m.PromptIds,),
        "the prompt's token ids",
        "one number a text position",
        "once",
        voice=True,
    ),
    EdgeSpec(
        10,
        _S.IMAGE_ENCODER,
        _S.TALKER_AR,
        (m.Embeddings,),
        "784 embeddings",
        "784 x 4 KB = 3,136 KB",
        "once",
        voice=True,
    ),
    EdgeSpec(
        11,
        _S.AUDIO_ENCODER,
        _S.TALKER_AR,
        (m.Embeddings,),
        "130 embeddings",
        "130 x 4 KB = 520 KB",
        "once",
        voice=True,
    ),
)

ENTRY = Stage.PREPROCESSING
"""Where a request goes in."""

TEXT_EXIT = Stage.DECODE
"""The stage whose `TextDone` completes a turn's text."""

VOICE_EXIT = Stage.CODE2WAV
"""The stage whose `AudioDone` completes a spoken turn's voice."""


def edges_out(stage: Stage) -> tuple[EdgeSpec, ...]:
    """The edges that leave `stage`, by number."""
    return tuple(e for e in EDGES if e.source is stage)


def edges_in(stage: Stage) -> tuple[EdgeSpec, ...]:
    """The edges that enter `stage`, by number."""
    return tuple(e for e in EDGES if e.target is stage)


def targets(source: Stage, payload: type, *, speech: bool) -> tuple[Stage, ...]:
    """Where a payload of type `payload` emitted by `source` goes in a turn that is spoken or not."""
    return tuple(
        e.target for e in EDGES if e.source is source and payload in e.payloads and (speech or not e.voice)
    )
