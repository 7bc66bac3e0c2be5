"""The contract between a stage's runtime, its scheduler and its model.

    runtime ──receive/cancel/step──▶ scheduler ──run──▶ runner (the model)
       ▲                                │
       └──────── Outbox (emit) ◀────────┘

A scheduler is driven by one thread, its runtime's: it takes what arrived (`receive`), chooses, lets
its runner work, and publishes through the `Outbox`. It holds no lock, reads no clock but the one it
is given, and knows no model. Runners are what a model pack builds; they own every tensor. The runner
protocols are here, next to the schedulers that call them, so that packs import schedulers and never
the other way round.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np

from voice_app.errors import VoiceAppError
from voice_app.messages import (
    CodeFrames,
    EdgePayload,
    Embeddings,
    PromptIds,
    PromptParams,
    Sampling,
    StageEvent,
    StagePayload,
    ToolCall,
    TurnId,
)
from voice_app.schedulers.answer_reader import AnswerReader

# ------------------------------------------------------------------------------- runtime ↔ scheduler


class StageInput(msgspec.Struct, eq=False):
    """One payload that arrived for a turn.

    `release` gives the space that the payload lies in, and its sender's credit, back; the scheduler
    calls it as soon as it holds no view of the payload's arrays any more. Calling it twice is
    harmless; the runtime calls it for whatever is left when the turn ends."""

    turn: TurnId
    payload: StagePayload
    speech: bool
    release: Callable[[], None] = lambda: None


class Outbox(Protocol):
    """Where a scheduler puts what it made. Every call is safe for a turn that is already over or
    stale: the payload is then dropped. None calls back into the scheduler."""

    def emit(self, turn: TurnId, payload: EdgePayload | StageEvent) -> None:
        """Send an edge payload over every edge that carries its type, or an event to the client.
        Never blocks; a scheduler that streams asks `has_room` first."""
        ...

    def has_room(self, turn: TurnId) -> bool:
        """Whether every stream that leaves this stage for `turn` has credit for one more payload.
        False means: step other turns; the runtime wakes the scheduler when credit returns."""
        ...

    def fail(self, turn: TurnId, error: VoiceAppError) -> None:
        """End `turn` with `error`, everywhere. The scheduler must have dropped its own state."""
        ...

    def finish(self, turn: TurnId) -> None:
        """This stage has emitted its last payload for `turn`. An encoder, which cannot know which
        of its inputs is a turn's last, never calls it."""
        ...

    def charge(self, turns: Sequence[TurnId], seconds: float) -> None:
        """Account a model call of `seconds` to the turns that were in it."""
        ...


@dataclass(frozen=True, slots=True)
class SchedulerLoad:
    """A scheduler's fill, for metrics and routing. Pages are 0 where there is no KV cache."""

    waiting: int = 0
    running: int = 0
    pages_used: int = 0
    pages_total: int = 0


class StageScheduler(Protocol):
    """What the runtime drives."""

    def receive(self, item: StageInput) -> None:
        """Take one arrived payload. Must not run the model. Never raises for a bad payload: it
        fails that turn through the outbox.

        The runtime delivers nothing for a turn that was cancelled, or for which this scheduler has
        called `Outbox.finish` or `Outbox.fail`: it drops and releases such payloads itself."""
        ...

    def cancel(self, turn: TurnId) -> None:
        """Forget everything held for `turn.key` whose generation is below `turn.generation` or, if
        equal, that turn itself: pages, states, queued inputs. Unknown turns are ignored."""
        ...

    def step(self) -> bool:
        """Do one round of work. True if another call may find more to do at once; False: nothing to
        do until something arrives, credit returns, a turn is cancelled, or `wake_after` has passed."""
        ...

    def wake_after(self) -> float | None:
        """Seconds after which `step` may find work though nothing arrives; None: never. Read after
        `step` returned False."""
        ...

    def in_flight(self) -> Sequence[TurnId]:
        """The turns in the runner's call that `step` is in, or that it raised from; else none.

        A scheduler catches no runner's exception. When `step` raises, the runtime reads this, fails
        those turns and calls `cancel` for each; the scheduler then goes on with the others. If
        `step` raised and none was in flight, the scheduler itself is broken: end the worker."""
        ...

    def load(self) -> SchedulerLoad:
        """Current fill; called from the scheduler's own thread."""
        ...


# --------------------------------------------------------------------------------- scheduler ↔ model


class Runner(Protocol):
    """What every runner has."""

    def warm_up(self) -> None:
        """Run every shape that serving will need, so that no turn pays for a first time."""
        ...


class OnePassRunner(Runner, Protocol):
    """For `SimpleScheduler`: preprocessing and the encoders."""

    def run(
        self, batch: Sequence[StageInput]
    ) -> Sequence[Sequence[EdgePayload | StageEvent] | VoiceAppError | None]:
        """One model call for the whole batch. For each input, in order: what to emit, or the error
        that ends that one turn; None: a part of it is done, and it is to be given again, after
        whatever came meanwhile. Arrays in the results must not be views of the inputs'."""
        ...


@dataclass(slots=True)
class PromptInputs:
    """What has arrived for one turn at a stage that joins inputs: its whole prompt, or its next part."""

    turn: TurnId
    prompt: PromptIds
    media: dict[str, Embeddings]
    """By `Media.key`; every media span of `prompt` is here."""
    begun: "Prompt | None" = None
    """What was assembled of the parts before; None: this is the first, or the whole."""


@dataclass(slots=True, eq=False)
class Prompt:
    """A prompt that the thinker can prefill.

    `keys`: one int a position. Equal prefixes of keys mean equal KV, so text positions carry their
    token id (≥ 0) and media positions a number drawn from the content's hash (< 0). They grow with a prompt
    that comes in parts.
    `state`: the runner's own; the scheduler never looks inside."""

    keys: list[int]
    params: PromptParams
    sampling: Sampling
    """The request's sampling with the pack's defaults filled in."""
    max_tokens: int
    eos_ids: frozenset[int]
    state: object = None
    reader: AnswerReader | None = None
    """Set where not all tokens are text to be shown: the request has stop strings, or offers functions."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The model is not to answer the prompt (nothing was said, or what follows is known: a `call`); the turn
    ends with this finish reason."""

    finish_reason: str = "silence"
    call: ToolCall | None = None


@dataclass(slots=True)
class SequenceStep:
    """What one request computes in one step: the positions [start, start + count) of its prompt and
    output. Their KV goes to `pages` (page `p // page_size` holds position p); all positions
    before `start` are there already. In a decode step `count` is 1 and its input is `outputs[-1]`."""

    prompt: Prompt
    outputs: list[int]
    """Tokens sampled so far. This list and `pages` are the scheduler's own and go on changing."""
    start: int
    count: int
    pages: list[int]
    """May name other pages (of the same content) in the next step."""
    sample: bool
    """Whether the last position's next token is wanted (False inside a chunked prefill, and as long as more
    of the prompt is to come)."""


@dataclass(slots=True)
class StepOutput:
    """One request's result: the sampled `token` (None where none was wanted), its `vector` [width]
    for the talker, and payloads to send `before` it (only with a token: chunks that are computed
    again after a preemption would send them twice). `finish_reason` ends the answer with this token
    (which is still emitted unless it is an EOS)."""

    token: int | None = None
    vector: np.ndarray | None = None
    before: tuple[EdgePayload, ...] = ()
    finish_reason: str | None = None


class ThinkerRunner(Runner, Protocol):
    """For `OmniScheduler`: an autoregressive model over a paged KV cache that it owns."""

    page_size: int
    num_pages: int
    """Pages that exist: the KV budget."""
    max_positions: int
    """Longest prompt + answer."""
    overlaps: bool
    """Whether a step spends its time outside Python (on a GPU), so that the scheduler should choose the
    next step beside it. It then runs in a thread of its own, and meanwhile `assemble` is called (for the
    step's prompts too, if they grow) and `close` for other prompts."""
    grows: bool
    """Whether a prompt can be computed while parts of it come; if not, the scheduler waits for the last."""
    least_part: int
    """New positions, beside the last, that are worth a forward pass while a prompt grows; fewer wait."""

    def assemble(self, inputs: PromptInputs) -> Prompt | NoAnswer:
        """Build the prompt, or put a further part behind what is `begun` of it and return the same object;
        NoAnswer only if no more is to come. Raises InputError (too long, impossible) to end the turn. The
        arrays in `inputs` are given back to their senders after this call: copy what the prompt keeps."""
        ...

    def openings(self) -> Sequence[Prompt]:
        """Prompts that many turns begin with: the scheduler computes and caches their KV before the
        first turn. Asked for once; their other fields do not matter."""
        ...

    def step(self, batch: Sequence[SequenceStep]) -> Sequence[StepOutput]:
        """One forward pass over all of `batch` (prefills and decodes mixed) and one sampling."""
        ...

    def close(self, prompt: Prompt) -> None:
        """The turn is over; drop what the runner holds for it (not its pages)."""
        ...


@dataclass(slots=True)
class TalkerOutput:
    """One request's result of a talker step: `frames` to emit (None: nothing yet), how many of the
    fed payloads were used up (oldest first), and whether the voice is complete: its frames then
    carry `last`."""

    frames: CodeFrames | None = None
    consumed: int = 0
    done: bool = False


class TalkerRunner(Runner, Protocol):
    """For `QwenTalkerScheduler`. A state is the runner's own, one a turn."""

    max_states: int
    """Most turns that can be open and not parked at once; the scheduler queues the rest."""

    def open(self, turn: TurnId) -> object:
        """A fresh state."""
        ...

    def park(self, state: object) -> None:
        """Others need its place, or the memory that it holds: put it aside. Until `unpark` only `close` is
        called for it."""
        ...

    def unpark(self, state: object) -> None:
        """It has a place again, and goes on as if it always had."""
        ...

    def feed(self, state: object, payload: EdgePayload) -> None:
        """Take one payload of edges 7, 9, 10 or 11, in order of arrival per edge."""
        ...

    def ready(self, state: object) -> bool:
        """Whether a step could be taken with what has been fed: its next text vector is there.

        Fed payloads keep their senders' credit until they are consumed, so a runner that needs many
        of them before it can speak (a clause) takes them up by steps that give no frames."""
        ...

    def lacks_memory(self, state: object) -> bool:
        """Whether it is not ready only because others hold the memory that it needs. Of those, such as stand
        still are then parked. Takes nothing."""
        ...

    def step(self, states: Sequence[object]) -> Sequence[TalkerOutput]:
        """One step for these, all of them ready, as one batch."""
        ...

    def close(self, state: object) -> None:
        """The turn is over."""
        ...


class NothingToPark:
    """That part of a `TalkerRunner` whose states hold nothing that another could need."""

    def park(self, state: object) -> None:
        """Nothing is put aside."""

    def unpark(self, state: object) -> None:
        """Nothing is missing."""

    def lacks_memory(self, state: object) -> bool:
        """Never."""
        return False


@dataclass(frozen=True, slots=True)
class WaveSpec:
    """What `Code2WavScheduler` must know of a decoder.

    Frames [a, b) can be decoded exactly if `left_context` frames before a and `right_context` frames
    after b are given too (fewer only at a segment's own ends). `codebook`: codes must be in
    [0, codebook); None for float latents."""

    sample_rate: int
    samples_per_frame: int
    left_context: int
    right_context: int
    channels: int
    """Second dimension of the frames."""
    codebook: int | None
    first_window: int
    """New frames in a turn's first window: small, for an early start."""
    max_window: int


@dataclass(slots=True)
class WaveWindow:
    """One decoder call of one turn: `frames` [left + new + right, channels]."""

    state: object
    frames: np.ndarray
    left: int
    right: int
    segment_start: bool
    """The window's new frames begin a segment."""
    segment_end: bool
    """They end it: nothing is to follow within the segment."""


class Code2WavRunner(Runner, Protocol):
    """For `Code2WavScheduler`."""

    spec: WaveSpec

    def open(self) -> object:
        """A fresh state for one turn."""
        ...

    def decode(self, windows: Sequence[WaveWindow]) -> Sequence[np.ndarray]:
        """For each window, the samples [n] float32 that follow on what the turn's windows before
        gave: joined, they are the whole segment's decode, no sample lost or doubled."""
        ...

    def close(self, state: object) -> None:
        """The turn is over."""
        ...


class TokenDecoder(Runner, Protocol):
    """For `StreamingDetokenizeScheduler`: token id → bytes, so that the scheduler can hold back
    incomplete characters. Special tokens give b""."""

    def token_bytes(self, token: int) -> bytes: ...


@dataclass(slots=True)
class PageStats:
    """Counters of a page pool, for tests and metrics."""

    total: int = 0
    free: int = 0
    cached: int = 0
    """Not in use by a request, kept for a later prefix hit."""


AnyRunner = OnePassRunner | ThinkerRunner | TalkerRunner | Code2WavRunner | TokenDecoder
