"""What a session is in effect: its defaults, and what this server makes of what it is asked for."""

from typing import Any, Literal

from voice_app.server.protocol import config as cfg
from voice_app.server.protocol.errors import ProtocolError
from voice_app.server.session import camera
from voice_app.server.settings import TalkSettings


def default_config(
    settings: TalkSettings, kind: Literal["realtime", "transcription"] = "realtime"
) -> cfg.Config:
    """What a session is until its client says otherwise; one of the kind "transcription" transcribes."""
    heard = cfg.AudioInput(transcription=cfg.Transcription() if kind == "transcription" else None)
    audio = cfg.Audio(input=heard)
    return cfg.Config(type=kind, model=settings.model, instructions=settings.instructions, audio=audio)


def valid_voices(settings: TalkSettings) -> frozenset[str]:
    """In lower case; none where the pack does not tell its voices."""
    return settings.stand_in_voices.union(map(str.lower, settings.voices)) if settings.voices else frozenset()


def check_voice(name: str, settings: TalkSettings, param: str = "session.audio.output.voice") -> None:
    """Raises ProtocolError with the valid names for a voice that is not there. Where the pack does not tell
    its voices, the answers do."""
    known = valid_voices(settings)
    if name and known and name.lower() not in known:
        own = ", ".join(f"'{voice}'" for voice in settings.voices)
        others = ", ".join(
            f"'{voice}'" for voice in sorted(known.difference(map(str.lower, settings.voices)))
        )
        raise ProtocolError(
            "invalid_value",
            f"Invalid value: '{name}'. Supported values are: {own}"
            + (f"; and, for the server's own voice, {others}." if others else "."),
            param=param,
        )


def effective(config: cfg.Config, settings: TalkSettings) -> cfg.Config:
    """What is asked for and not to be had here is replaced; `session.updated` shows it."""
    heard = config.audio.input
    changes: dict[str, Any] = {}
    if isinstance(heard.turn_detection, cfg.SemanticVad) and not settings.semantic_vad:
        changes["turn_detection"] = cfg.ServerVad(
            create_response=heard.turn_detection.create_response,
            interrupt_response=heard.turn_detection.interrupt_response,
        )
    if heard.transcription is not None and not settings.transcribes:
        changes["transcription"] = None
    if not changes:
        return config
    heard = heard.model_copy(update=changes)
    return config.model_copy(update={"audio": config.audio.model_copy(update={"input": heard})})


def shown_extensions(
    config: cfg.Config, settings: TalkSettings, resumption: dict[str, Any] | None
) -> dict[str, Any]:
    """The extensions that are on, each with what a client needs to know."""
    asked = config.extensions
    shown: dict[str, Any] = {}
    if asked.camera:
        shown["camera"] = {
            "frames_kept": camera.FRAMES_KEPT,
            "max_frame_bytes": camera.MAX_FRAME_BYTES,
            "bytes_per_minute": settings.image_bytes_per_minute,
        }
    if asked.binary_audio:
        shown["binary_audio"] = {}
    if asked.word_times:
        shown["word_times"] = {}
    if asked.timing:
        shown["timing"] = {}
    if asked.resume and resumption is not None:
        shown["resume"] = resumption
    return shown
