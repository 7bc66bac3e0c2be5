"""The session's configuration: its defaults, its checks, and how an update changes it.

An update names only what changes (a deep merge); `null` switches off what can be off and resets the
rest. Keys that ask for what this server does not do, but that harm nothing, are kept and shown.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from voice_app.server.protocol.errors import ProtocolError, from_validation
from voice_app.server.protocol.items import Model, without_nulls

MAX_TOOLS = 128


class _Section(Model):
    """`null` means the default, except where the default is null."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {
            key: value
            for key, value in data.items()
            if value is not None
            or key not in cls.model_fields
            or (cls.model_fields[key].default is None and not cls.model_fields[key].is_required())
        }


class PcmFormat(_Section):
    """16-bit, little-endian. The protocol knows 24 kHz; the other rates are this server's addition."""

    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[8000, 16000, 24000, 48000] = 24000


class PcmuFormat(_Section):
    type: Literal["audio/pcmu"] = "audio/pcmu"


class PcmaFormat(_Section):
    type: Literal["audio/pcma"] = "audio/pcma"


AudioFormat = Annotated[PcmFormat | PcmuFormat | PcmaFormat, Field(discriminator="type")]


class ServerVad(_Section):
    """Times in ms. `idle_timeout_ms` counts from the moment a reply has been heard to its end."""

    type: Literal["server_vad"] = "server_vad"
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    prefix_padding_ms: Annotated[int, Field(ge=0, le=5000)] = 300
    silence_duration_ms: Annotated[int, Field(ge=20, le=10_000)] = 500
    create_response: bool = True
    interrupt_response: bool = True
    idle_timeout_ms: Annotated[int, Field(ge=1, le=600_000)] | None = None


class SemanticVad(_Section):
    type: Literal["semantic_vad"] = "semantic_vad"
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    create_response: bool = True
    interrupt_response: bool = True


TurnDetection = Annotated[ServerVad | SemanticVad, Field(discriminator="type")]


class NoiseReduction(_Section):
    type: Literal["near_field", "far_field"] | None = None
    strength: float | None = None


class Transcription(_Section):
    model: str | None = None
    language: str | None = None
    languages: list[str] | None = None
    prompt: str | None = None
    keywords: list[str] | None = None
    delay: Literal["minimal", "low", "medium", "high", "xhigh"] | None = None


class AudioInput(_Section):
    format: AudioFormat = PcmFormat()
    turn_detection: TurnDetection | None = ServerVad()
    noise_reduction: NoiseReduction | None = None
    transcription: Transcription | None = None

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, data: Any) -> Any:
        """`turn_detection` is on unless it says null, which is off."""
        if isinstance(data, dict) and data.get("format", ...) is None:
            return {key: value for key, value in data.items() if key != "format"}
        return data


class VoiceId(Model):
    id: str


class AudioOutput(_Section):
    """`voice` empty: the model's own. `speed` is a factor."""

    format: AudioFormat = PcmFormat()
    voice: str | VoiceId = ""
    speed: Annotated[float, Field(ge=0.25, le=1.5)] = 1.0

    @property
    def voice_name(self) -> str:
        return self.voice if isinstance(self.voice, str) else self.voice.id


class Audio(_Section):
    input: AudioInput = AudioInput()
    output: AudioOutput = AudioOutput()


class FunctionTool(_Section):
    type: Literal["function"]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)


class NamedTool(Model):
    type: Literal["function"]
    name: str


ToolChoice = Literal["auto", "none", "required"] | NamedTool
MaxTokens = Annotated[int, Field(ge=1, le=4096)] | Literal["inf"]
Modalities = Annotated[list[Literal["text", "audio"]], Field(min_length=1, max_length=1)]
"""One of the two: audio always brings its transcript."""


class Reasoning(_Section):
    effort: Literal["minimal", "low", "medium", "high", "xhigh"] | None = None


class Prompt(_Section):
    """A prompt template of OpenAI's: kept and shown, not used."""

    id: str
    version: str | None = None
    variables: dict[str, str] | None = None


class Tracing(_Section):
    workflow_name: str | None = None
    group_id: str | None = None
    metadata: Annotated[dict[str, Any], BeforeValidator(without_nulls)] | None = None


class TokenLimits(_Section):
    post_instructions: Annotated[int, Field(ge=0)] | None = None


class RetentionRatio(_Section):
    type: Literal["retention_ratio"]
    retention_ratio: Annotated[float, Field(ge=0, le=1)]
    token_limits: TokenLimits | None = None


class SamplingConfig(_Section):
    """How the model picks tokens: this server's addition, shown only where it was set."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None


class Extensions(_Section):
    """What goes beyond the protocol, each only where the client asks for it; see docs/protocol.md."""

    camera: bool = False
    binary_audio: bool = False
    word_times: bool = False
    timing: bool = False
    resume: bool = False


class Config(_Section):
    """The whole effective session, as `session.created` and `session.updated` show it. A session of type
    "transcription" hears and writes down, and answers nothing."""

    type: Literal["realtime", "transcription"] = "realtime"
    model: str = ""
    output_modalities: Modalities = Field(default_factory=lambda: ["audio"])
    instructions: str = ""
    audio: Audio = Audio()
    tools: list[FunctionTool] = Field(default_factory=list, max_length=MAX_TOOLS)
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    max_output_tokens: MaxTokens = "inf"
    truncation: Literal["auto", "disabled"] | RetentionRatio = "auto"
    reasoning: Reasoning | None = None
    prompt: Prompt | None = None
    tracing: Literal["auto"] | Tracing | None = None
    include: list[Literal["item.input_audio_transcription.logprobs"]] | None = None
    sampling: SamplingConfig | None = None
    extensions: Extensions = Extensions()

    @model_validator(mode="after")
    def _tool_names_differ(self) -> Self:
        names = [tool.name for tool in self.tools]
        if len(names) != len(set(names)):
            raise ValueError("two tools have the same name")
        return self

    @property
    def spoken(self) -> bool:
        return self.output_modalities == ["audio"]

    def to_wire(self) -> dict[str, Any]:
        """As JSON; nulls only where null is a value of its own (switched off)."""
        wire = self.model_dump(exclude_none=True, exclude={"extensions"})
        wire["audio"]["input"].setdefault("turn_detection", None)
        wire["audio"]["input"].setdefault("noise_reduction", None)
        wire["audio"]["input"].setdefault("transcription", None)
        if not self.audio.output.voice_name:
            del wire["audio"]["output"]["voice"]
        if isinstance(self.audio.output.voice, VoiceId):
            wire["audio"]["output"]["voice"] = self.audio.output.voice.id
        if self.type == "transcription":
            del wire["audio"]["output"]
            return {key: wire[key] for key in _TRANSCRIPTION_KEYS if key in wire}
        return wire


_TRANSCRIPTION_KEYS = ("type", "audio", "include")
"""What a transcription session consists of."""
_READ_ONLY = ("id", "object", "expires_at", "model")
"""Keys of a session that a client may send back but not change."""


def update(config: Config, patch: dict[str, Any], *, voice_frozen: bool = False) -> Config:
    """`config` with `patch` applied: all of it or, with ProtocolError, none."""
    if patch.get("type") is None:
        raise ProtocolError(
            "missing_required_parameter", "Missing required parameter: 'session.type'.", param="session.type"
        )
    if patch["type"] != config.type:
        raise ProtocolError(
            "invalid_value",
            f"Invalid value for 'session.type': this is a {config.type} session.",
            param="session.type",
        )
    changes = {key: value for key, value in patch.items() if key not in _READ_ONLY}
    if config.type == "transcription":
        _check_transcription(changes)
    merged = _merge(config.model_dump(), changes)
    try:
        updated = Config.model_validate(merged)
    except ValidationError as error:
        raise from_validation(error, merged, "session") from error
    if voice_frozen and updated.audio.output.voice_name != config.audio.output.voice_name:
        raise ProtocolError(
            "cannot_update_voice",
            "Cannot update a conversation's voice if assistant audio is present.",
            param="session.audio.output.voice",
        )
    if config.tracing is not None and updated.tracing != config.tracing:
        # Frozen once set; clients send it again with every update, which is no fault of theirs.
        return updated.model_copy(update={"tracing": config.tracing})
    return updated


def _check_transcription(changes: dict[str, Any]) -> None:
    audio = changes.get("audio")
    unknown = [f"session.{key}" for key in changes if key not in (*_TRANSCRIPTION_KEYS, "extensions")]
    unknown += [f"session.audio.{key}" for key in audio if key != "input"] if isinstance(audio, dict) else []
    if unknown:
        raise ProtocolError("unknown_parameter", f"Unknown parameter: '{unknown[0]}'.", param=unknown[0])


def _merge(current: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Nested objects are merged unless they are of another `type`; lists are replaced."""
    merged = dict(current)
    for key, value in patch.items():
        before = current.get(key)
        if isinstance(value, dict) and isinstance(before, dict) and _same_type(before, value):
            merged[key] = _merge(before, value)
        elif key == "turn_detection" and isinstance(value, dict) and "type" not in value:
            merged[key] = {"type": "server_vad", **value}
        else:
            merged[key] = value
    return merged


def _same_type(before: dict[str, Any], patch: dict[str, Any]) -> bool:
    return "type" not in patch or before.get("type") == patch["type"]
