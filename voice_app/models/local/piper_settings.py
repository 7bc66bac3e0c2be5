"""What stands beside a Piper voice in its .onnx.json. Imports no runtime: the server reads it too."""

from pathlib import Path

import msgspec

from voice_app.errors import InputError, ModelFileError


class _Audio(msgspec.Struct):
    sample_rate: int


class _Inference(msgspec.Struct):
    """The voice's own scales (`noise_w` is the durations' noise)."""

    noise_scale: float = 0.667
    length_scale: float = 1.0
    noise_w: float = 0.8


class _Espeak(msgspec.Struct):
    voice: str = "en-us"


class VoiceSettings(msgspec.Struct):
    """What is read of a voice's .onnx.json."""

    audio: _Audio
    phoneme_id_map: dict[str, list[int]]
    inference: _Inference = msgspec.field(default_factory=_Inference)
    espeak: _Espeak = msgspec.field(default_factory=_Espeak)
    phoneme_type: str = "espeak"
    num_speakers: int = 1
    speaker_id_map: dict[str, int] = {}


def settings_path(voice: Path) -> Path:
    """Of the voice's .onnx file."""
    return voice.with_name(voice.name + ".json")


def read_settings(voice: Path) -> VoiceSettings:
    """Of the voice's .onnx file. Raises ModelFileError: missing, damaged, not an English Piper voice's."""
    beside = settings_path(voice)
    try:
        settings = msgspec.json.decode(beside.read_bytes(), type=VoiceSettings)
    except OSError as error:
        raise ModelFileError(
            f"{beside}: cannot be read ({error.strerror}); a Piper voice has its .onnx.json beside it",
            param="voice",
        ) from error
    except msgspec.DecodeError as error:
        raise ModelFileError(f"{beside}: is not a Piper voice's settings ({error})", param="voice") from error
    if settings.phoneme_type != "espeak" or not settings.espeak.voice.startswith("en"):
        raise ModelFileError(
            f"{voice.name}: speaks {settings.espeak.voice!r} from {settings.phoneme_type} phonemes; give an "
            "English voice with espeak phonemes",
            param="voice",
        )
    return settings


def speakers(name: str, settings: VoiceSettings) -> dict[str, int]:
    """The names that a request may give, with the speaker's number. `name`: the voice file's, no ending."""
    return {name: 0, _short(name): 0, "default": 0, **settings.speaker_id_map}


def speaker(name: str, settings: VoiceSettings, asked: str | None) -> int:
    """The speaker's number for the voice that a request names (any case; None: the first). Raises InputError
    with the valid names."""
    if asked is None:
        return 0
    known = speakers(name, settings)
    if asked in known:
        return known[asked]
    number = next((number for known_as, number in known.items() if known_as.lower() == asked.lower()), None)
    if number is None:
        raise InputError(
            f"voice {asked!r}: there is no such voice; choose from {', '.join(known)}", param="voice"
        )
    return number


def _short(name: str) -> str:
    """en_US-joe-medium → joe"""
    return name.split("-")[1] if name.count("-") == 2 else name
