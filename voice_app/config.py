"""Configuration: frozen, layered, self-checking. Environment variables are all in `ENVIRONMENT`.

`PackConfig` says which models; `PipelineConfig` adds where they run. Both cross to workers as JSON.
"""

import math
import os
import re
from pathlib import Path

import msgspec

from voice_app.errors import ConfigError

ENVIRONMENT: dict[str, str] = {
    "VOICE_APP_HOME": "where pulled models and converted weights are kept (default ~/.cache/voice-app)",
    "VOICE_APP_RUN_DIR": "where sockets of running pipelines are (default: a private folder in TMPDIR)",
    "VOICE_APP_LOG": "log level: debug, info, warning, error, critical (default info; a command's: critical)",
    "VOICE_APP_LOG_FORMAT": "text or json (default text)",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "where traces of turns go (needs the extra otel; default: nowhere)",
}
"""Every environment variable that the app reads, with its meaning."""

PACKS = ("local", "qwen3-omni")
DTYPES = ("float32", "bfloat16", "float16")
MAX_THREADS = max(64, 4 * (os.cpu_count() or 1))
"""Of one model call: a runtime that is told to start millions of them does so."""
DEVICE = re.compile(r"cpu|cuda:\d+")
"""The names of devices."""


def home() -> Path:
    """The folder of pulled models."""
    return Path(os.environ.get("VOICE_APP_HOME") or Path.home() / ".cache" / "voice-app")


class PackConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which models run. Paths are absolute once the config is checked."""

    pack: str = "local"
    """One of `PACKS`, or a pack of your own as MODULE:FACTORY, importable in the workers (installed, or
    on PYTHONPATH); the factory is a `voice_app.models.base.PackFactory`."""
    model: str | None = None
    """qwen3-omni: checkpoint folder or hub id."""
    brain: str | None = None
    """local: a causal chat model instead of the packaged one: folder, hub id, or GGUF file."""
    voice: str | None = None
    """local: a Piper voice (.onnx with its .onnx.json beside it); qwen3-omni: default speaker."""
    recogniser: str | None = None
    """local: "moonshine", "whisper", or a CTranslate2 Whisper folder."""
    dtype: str | None = None
    """One of `DTYPES`; None: the pack's own choice. local: only with a `brain`."""
    kv_bytes: int | None = None
    """Budget of the thinker's KV cache in bytes; None: the pack's own choice."""
    threads: int = 1
    """Threads of one model call."""
    devices: dict[str, str] = {}
    """Stage name → "cpu" or "cuda:N"; filled in from the layout, for the stages of one worker."""

    def __post_init__(self) -> None:
        if self.pack not in PACKS and ":" not in self.pack:
            raise ConfigError(
                f"--pack {self.pack}: choose one of {', '.join(PACKS)}, or MODULE:FACTORY of your own",
                param="pack",
            )
        if not 1 <= self.threads <= MAX_THREADS:
            raise ConfigError(
                f"--threads {self.threads}: must be between 1 and {MAX_THREADS}", param="threads"
            )
        self._check_dtype()
        for stage, device in self.devices.items():
            if not DEVICE.fullmatch(device):
                raise ConfigError(
                    f'stage {stage}: device {device!r} must be "cpu" or "cuda:N"', param="devices"
                )
        if self.kv_bytes is not None and self.kv_bytes < 1:
            raise ConfigError(f"--kv-bytes {self.kv_bytes}: must be positive", param="kv_bytes")

    def _check_dtype(self) -> None:
        if self.dtype is None:
            return
        if self.dtype not in DTYPES:
            raise ConfigError(f"--dtype {self.dtype}: choose one of {', '.join(DTYPES)}", param="dtype")
        if self.pack == "local" and self.brain is None:
            raise ConfigError(
                f"--dtype {self.dtype}: the packaged brain has 8 bits; leave it out, or choose a --brain",
                param="dtype",
            )


class PipelineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What runs, where, and within which bounds."""

    pack: PackConfig = PackConfig()
    layout: str = "cpu"
    """A layout's name or a layout file's path (`pipeline/layout.py`)."""
    ray: str | None = None
    """Address of the Ray cluster that starts the workers on other hosts."""
    curve_keys: str | None = None
    """Folder of the keys that secure control between hosts (`pipeline/curve.py`)."""
    max_turns: int = 64
    """Most turns in the pipeline at once; one more is refused with `Overloaded`."""
    start_timeout_s: float = 300.0
    """A worker that is not ready, and has told of no progress for so long, is given up."""
    turn_timeout_s: float = 120.0
    """A turn that has not ended by then is failed."""

    def __post_init__(self) -> None:
        if not 0 < self.start_timeout_s < math.inf:
            raise ConfigError(
                f"--start-timeout {self.start_timeout_s:g}: must be positive, in seconds",
                param="start_timeout_s",
            )
