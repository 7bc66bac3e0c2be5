"""What the server is told at its start."""

from dataclasses import dataclass, field

DEFAULT_INSTRUCTIONS = (
    "You are a friendly voice assistant. Answer in one or two short sentences that are easy to speak."
)
"""For a model that has not been told by its pack what it is."""
TALK_TTL_S = 1800
"""Half an hour, after which a person who calls again has begun something new."""


@dataclass(frozen=True, slots=True)
class TalkSettings:
    """How talks are led; what of it a client may change is in the session's configuration.

    `lead_s`: audio is sent at most so far ahead of the listener's ear. `speculate_ms`: silence after which
    the work on a turn starts (None: when the turn is over). `early_ms`: after less of it, in whole frames
    of 20 ms, or once the speech is hushed, while no turn of another talk is in the pipeline (None: no sooner
    then either).
    `onset_ms`: sound of this length is speech. `interrupt_ms`: speech of this length interrupts a reply (0:
    any); shorter speech is judged by its words where the pack tells them (`transcribes`), else passed over.
    Both are counted in what the detector calls speech, which is 60 to 140 ms more than any sound is: a click
    of 20 ms counts 80 to 120. `resumes`: a reply that a sound without words interrupted is taken up again,
    where the pack tells words. `semantic_vad`: a model says whether a turn sounds complete. `audio_kept_s`:
    seconds of the user's recordings that a talk keeps. `prompt_tokens`: about so many of the conversation are
    in a prompt at most. `stand_in_voices`: names (in lower case) of voices elsewhere, which stand for the
    pack's own.
    `voices`, `languages`: what the pack offers (`voice_app.models.base.Offer`)."""

    model: str = "local"
    instructions: str = ""
    lead_s: float = 1.0
    speculate_ms: int | None = 160
    early_ms: int | None = 80
    onset_ms: int = 140
    interrupt_ms: int = 400
    transcribes: bool = True
    resumes: bool = True
    semantic_vad: bool = False
    audio_kept_s: float = 120.0
    session_s: float = 3600.0
    pictures_per_prompt: int = 4
    prompt_tokens: int = 24_576
    stand_in_voices: frozenset[str] = frozenset()
    voices: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    image_bytes_per_minute: int = 64 << 20
    responses_per_minute: int | None = None


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """`send_timeout_s`: a client that takes nothing for so long is given up. `outbox_bytes`: what may wait
    for a slow client before its connection is closed. `max_talks` at once; `queue_size` clients more wait
    `queue_wait_s` at most."""

    host: str = "127.0.0.1"
    port: int = 8000
    talk: TalkSettings = field(default_factory=TalkSettings)
    max_talks: int = 64
    queue_size: int = 16
    queue_wait_s: float = 5.0
    origins: tuple[str, ...] = ()
    """Pages that may connect; empty: those of this very host."""
    store_audio: bool = False
    talk_ttl_s: int = TALK_TTL_S
    """How long a talk whose client is gone can be taken up again."""
    max_message_bytes: int = 24 << 20
    """15 MiB of audio in one append are 20 MiB of base64."""
    outbox_bytes: int = 4 << 20
    send_timeout_s: float = 30.0
    stop_timeout_s: float = 20.0
