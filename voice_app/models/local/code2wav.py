"""code2wav of the local pack: a Piper voice's decoder over windows of latent frames."""

from collections.abc import Sequence

import numpy as np

from voice_app.config import PackConfig
from voice_app.models.base import Report
from voice_app.models.local.piper import PiperVoice, load_voice, run, voice_path
from voice_app.schedulers.base import WaveSpec, WaveWindow

_FIRST_WINDOW = 16
_MAX_WINDOW = 48


class Code2Wav:
    """`Code2WavRunner`; a window's sound depends on the window alone, so a turn has no state."""

    def __init__(self, voice: PiperVoice, threads: int) -> None:
        self._session = voice.session("decoder", threads)
        self._latent = voice.parts.cuts.latent
        self._latent_channels = voice.parts.channels
        self.spec = WaveSpec(
            sample_rate=voice.settings.audio.sample_rate,
            samples_per_frame=voice.parts.cuts.samples_per_frame,
            left_context=voice.parts.decoder_context,
            right_context=voice.parts.decoder_context,
            channels=voice.channels,
            codebook=None,
            first_window=_FIRST_WINDOW,
            max_window=_MAX_WINDOW,
        )

    def warm_up(self) -> None:
        spec = self.spec
        for frames in (1, spec.first_window + spec.right_context, spec.max_window + 2 * spec.right_context):
            self._decode(np.zeros((frames, spec.channels), np.float32))

    def open(self) -> object:
        return None

    def decode(self, windows: Sequence[WaveWindow]) -> Sequence[np.ndarray]:
        """One call a window: on a CPU a batch takes as long as its windows one by one."""
        hop = self.spec.samples_per_frame
        sounds = []
        for window in windows:
            sound = self._decode(window.frames)
            sounds.append(sound[window.left * hop : len(sound) - window.right * hop])
        return sounds

    def close(self, state: object) -> None:
        pass

    def _decode(self, frames: np.ndarray) -> np.ndarray:
        """[n, channels] float32 → [n · samples_per_frame] float32."""
        latent = np.ascontiguousarray(frames[:, : self._latent_channels].T[np.newaxis])
        feed = {self._latent: latent}
        if self.spec.channels > self._latent_channels:
            feed["sid"] = frames[:1, -1].astype(np.int64)
        return np.ravel(run(self._session, None, feed)[0])


def build(config: PackConfig, report: Report) -> Code2Wav:
    """The runner over the configured voice. Raises ModelFileError."""
    report("loading the voice's decoder")
    return Code2Wav(load_voice(voice_path(config, report), report), config.threads)
