"""What moves through the pipeline: a turn's identity, its request, what crosses each edge, what comes back.

All are msgspec structs: typed, immutable where they are keys, and encoded without pickle. Arrays are
`numpy.ndarray`; between processes small ones travel within the message and large ones in shared memory
(`pipeline/transport/`), within a process the object itself is handed on, so **nobody writes
into an array after it was emitted.** Field docs give shape and dtype. What a stage on a GPU emits is a
tensor there instead, complete when it is emitted; `arrays.on_host` makes the array of it.

Control messages between processes (DataReady, DataAck, …) are in `pipeline/control.py`.
"""

from enum import StrEnum
from typing import Literal

import msgspec

from voice_app.arrays import Array
from voice_app.errors import InputError


class Stage(StrEnum):
    """The seven stages; the names are the model's own."""

    PREPROCESSING = "preprocessing"
    IMAGE_ENCODER = "image_encoder"
    AUDIO_ENCODER = "audio_encoder"
    THINKER = "thinker"
    DECODE = "decode"
    TALKER_AR = "talker_ar"
    CODE2WAV = "code2wav"

    # Enum's own is Python code, and a stage is looked up several times for every token.
    __hash__ = str.__hash__


class TurnId(msgspec.Struct, frozen=True):
    """Who a piece of work is for. Work whose generation is below the turn's fence is stale and is
    dropped wherever it is met; raising the generation is how a turn is cancelled."""

    session: str
    turn: str
    generation: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """What stays the same over generations."""
        return (self.session, self.turn)


# ---------------------------------------------------------------------------------- the request


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    text: str


class AudioPart(msgspec.Struct, frozen=True, tag="audio"):
    """Speech. `samples`: [n] float32 in [-1, 1], mono, at `sample_rate` Hz."""

    samples: Array
    sample_rate: int
    transcript: str | None = None
    """Known words (an earlier turn): a pack that works on transcripts then skips recognition."""


class ImagePart(msgspec.Struct, frozen=True, tag="image"):
    """A still picture or camera frame as it came: an encoded JPEG, PNG or WebP file."""

    data: bytes


class ToolCallPart(msgspec.Struct, frozen=True, tag="tool_call"):
    call_id: str
    name: str
    arguments: str
    """JSON text."""


class ToolResultPart(msgspec.Struct, frozen=True, tag="tool_result"):
    call_id: str
    output: str


Part = TextPart | AudioPart | ImagePart | ToolCallPart | ToolResultPart
Role = Literal["system", "user", "assistant"]


class Message(msgspec.Struct, frozen=True):
    """One entry of the conversation. Tool calls stand in assistant messages, results in user ones."""

    role: Role
    parts: tuple[Part, ...]


class ToolSpec(msgspec.Struct, frozen=True):
    """A function the model may call; `parameters` is its JSON Schema as JSON text."""

    name: str
    description: str
    parameters: str


_LARGEST = 1 << 31


def _in_range(field: str, value: float | None, least: float, most: float) -> None:
    if value is None or least <= value <= most:
        return
    bound = f"at least {least:g}" if most == _LARGEST else f"between {least:g} and {most:g}"
    raise InputError(f"{field} {value:g}: must be {bound}", param=field)


class Sampling(msgspec.Struct, frozen=True):
    """How the thinker picks tokens. `None` leaves the pack's own default.

    `temperature` 0 is greedy. `seed` makes the output a function of the request alone, whatever else
    is in the batch. `logit_bias` maps token id to an added logit."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        """Raises InputError that names the field."""
        _in_range("temperature", self.temperature, 0, _LARGEST)
        _in_range("top_k", self.top_k, 0, _LARGEST)
        _in_range("top_p", self.top_p, 0, 1)
        _in_range("min_p", self.min_p, 0, 1)
        _in_range("repetition_penalty", self.repetition_penalty, 0.01, 100)
        _in_range("max_tokens", self.max_tokens, 1, _LARGEST)


class TurnRequest(msgspec.Struct, frozen=True, tag="turn_request"):
    """One turn to be answered: the conversation so far, its last message being the user's."""

    turn: TurnId
    messages: tuple[Message, ...]
    speech: bool = True
    """False: text only; the voice side is not entered."""
    voice: str | None = None
    speed: float = 1.0
    sampling: Sampling = Sampling()
    greedy: bool = False
    """True turns all sampling off, in every stage."""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    """One of auto, none, required, or a function's name."""
    max_frames: int | None = None
    """Bound on the talker's frames."""
    now: str | None = None
    """The user's local date and time, ISO 8601; None: the server's clock."""
    unsaid: str = ""
    """The rest of the answer that the user's sound cut off: it is said if the sound turns out to hold no
    words. For packs that tell the user's words."""

    def __post_init__(self) -> None:
        """Raises InputError that names the field."""
        _in_range("speed", self.speed, 0.01, 100)
        _in_range("max_frames", self.max_frames, 1, _LARGEST)


# ------------------------------------------------------------------- what crosses the edges 1 … 11


class Media(msgspec.Struct, frozen=True):
    """A place in the prompt that an encoder fills. `key` is a hash of the content and of all that
    shapes its encoding, so equal keys may share cache and unequal ones never do."""

    key: str
    kind: Literal["audio", "image"]


class Span(msgspec.Struct, frozen=True):
    """A run of the prompt: either `ids` or one `media`, whose length may be known only later."""

    ids: tuple[int, ...] = ()
    media: Media | None = None


class ImagePatches(msgspec.Struct, frozen=True, tag="image_patches"):
    """Edge 1. `patches`: float32, the pack's own layout; `grid`: (frames, rows, columns) of patches."""

    media: Media
    patches: Array
    grid: tuple[int, int, int]


class MelFrames(msgspec.Struct, frozen=True, tag="mel_frames"):
    """Edge 2. `frames`: float32 features, the pack's own layout; `seconds`: how much sound they are."""

    media: Media
    frames: Array
    seconds: float


class PromptIds(msgspec.Struct, frozen=True, tag="prompt_ids"):
    """Edges 3 and 9. The prompt in order, with places left for media, and the request's parameters.

    A prompt may come in parts: all but the last say that there is `more`, the parameters are the first's,
    and each part's media are sent for that part, whether or not an earlier one had them too."""

    spans: tuple[Span, ...]
    request: "PromptParams"
    more: bool = False


class PromptParams(msgspec.Struct, frozen=True):
    """Those parts of a request that later stages need."""

    sampling: Sampling = Sampling()
    greedy: bool = False
    voice: str | None = None
    speed: float = 1.0
    max_frames: int | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    results: tuple[str, ...] = ()
    """What functions gave, where it is their results that are to be answered."""
    now: str | None = None
    unsaid: str = ""
    begins: tuple[int, ...] = ()
    """Token ids that the answer begins with, whatever the model would say: the opening of a demanded call."""

    @staticmethod
    def of(request: TurnRequest) -> "PromptParams":
        """What `request` itself says. `results` and `begins` are the pack's to fill in."""
        return PromptParams(
            sampling=request.sampling,
            greedy=request.greedy,
            voice=request.voice,
            speed=request.speed,
            max_frames=request.max_frames,
            tools=request.tools,
            tool_choice=request.tool_choice,
            now=request.now,
            unsaid=request.unsaid,
        )


class Embeddings(msgspec.Struct, frozen=True, tag="embeddings"):
    """Edges 4, 5, 10 and 11. `rows`: [n, width] float, one per prompt position of `media`.

    `ids`: the token id at each position where there is one (a transcript's tokens), else empty.
    `deepstack`: [layers, n, width] for models that add vision features in later layers, else None.
    `text`: what was understood (a transcript, a label), where the encoder knows words; else "".
    `grid`: as in `ImagePatches`, for models whose positions depend on it."""

    media: Media
    rows: Array
    ids: tuple[int, ...] = ()
    deepstack: Array | None = None
    text: str = ""
    grid: tuple[int, int, int] | None = None


class Usage(msgspec.Struct, frozen=True):
    """Token counts of one turn. `cached_tokens` of the `prompt_tokens` were not computed again."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class TokenId(msgspec.Struct, frozen=True, tag="token_id"):
    """Edge 6. One token of the answer; the last has `finish_reason`, may carry no id (None), and
    counts the turn's tokens. A token that only ends the answer (EOS, a stop token) carries no id."""

    id: int | None
    finish_reason: str | None = None
    usage: Usage = Usage()
    text_bytes: int | None = None
    """Only so many bytes of the token's text belong to the answer: a stop string or a call begins there."""
    call: "ToolCall | None" = None
    """Behind this text the model asks for a function, in tokens that are no text."""


class TokenVector(msgspec.Struct, frozen=True, tag="token_vector"):
    """Edge 7. One token of the answer with its `vector` [width] float; the last as in `TokenId`."""

    id: int | None
    vector: Array | None
    finish_reason: str | None = None


class PromptHidden(msgspec.Struct, frozen=True, tag="prompt_hidden"):
    """Edge 7, before the first token, for talkers that listen to the thinker's inner state:
    `rows` [n, width] at the prompt positions `positions` [n] int64."""

    rows: Array
    positions: Array


class FrameMark(msgspec.Struct, frozen=True):
    """The reply's text up to `chars` characters is spoken once `frame` frames (from the turn's
    first, counted over all segments) have been heard."""

    chars: int
    frame: int


class CodeFrames(msgspec.Struct, frozen=True, tag="code_frames"):
    """Edge 8. `frames`: [n, groups] int codes, or [n, channels] float latents, 0 ≤ n.

    A segment is a stretch that is decoded by itself (a clause; a whole turn for models without
    clauses): `segment_end` closes it after these frames, `last` closes the turn."""

    frames: Array
    segment_end: bool = False
    last: bool = False
    marks: tuple[FrameMark, ...] = ()


EdgePayload = (
    ImagePatches | MelFrames | PromptIds | Embeddings | TokenId | TokenVector | PromptHidden | CodeFrames
)


# --------------------------------------------------------------------- what comes back to the client


class Transcript(msgspec.Struct, frozen=True, tag="transcript"):
    """What the user was heard to say, for packs that know words."""

    text: str


class TextDelta(msgspec.Struct, frozen=True, tag="text_delta"):
    """More of the answer: whole characters only."""

    text: str
    token_ids: tuple[int, ...] = ()


class TextDone(msgspec.Struct, frozen=True, tag="text_done"):
    """The answer's text is complete. `finish_reason`: "stop", "length", "tool_call" or "silence"."""

    finish_reason: str
    usage: Usage = Usage()


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call_event"):
    """The model asks for a function; the turn ends with finish_reason "tool_call"."""

    name: str
    arguments: str


class TextMark(msgspec.Struct, frozen=True):
    """The reply's text up to `chars` characters is spoken by sample `sample` of the reply."""

    chars: int
    sample: int


class AudioChunk(msgspec.Struct, frozen=True, tag="audio_chunk"):
    """More of the voice. `samples`: [n] float32 mono; `start`: index of the first in the reply."""

    samples: Array
    sample_rate: int
    start: int
    marks: tuple[TextMark, ...] = ()
    codes: Array | None = None
    """[frames, groups] int: the codes that were decoded for this chunk; None where frames are latents."""


class AudioDone(msgspec.Struct, frozen=True, tag="audio_done"):
    """The voice is complete: `samples` in all."""

    samples: int


class StageTiming(msgspec.Struct, frozen=True):
    """One stage's share of a turn, in milliseconds since the request was submitted (`busy_ms`: sum
    of the time in model calls that this turn was part of)."""

    first_in_ms: float
    first_out_ms: float
    last_out_ms: float
    busy_ms: float


class TurnDone(msgspec.Struct, frozen=True, tag="turn_done"):
    """Always the last event of a turn that did not fail."""

    stages: dict[str, StageTiming]


StageEvent = Transcript | TextDelta | TextDone | ToolCall | AudioChunk | AudioDone
"""What a stage may send to the client."""
StagePayload = TurnRequest | EdgePayload
"""What a stage may receive: the request itself for the first stage, else what crossed an edge."""
TurnEvent = StageEvent | TurnDone
"""What the client reads. A failed turn raises its typed error instead of `TurnDone`."""
