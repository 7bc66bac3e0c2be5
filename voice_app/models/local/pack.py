"""The local pack: builds each stage's runner from small models that come inside packages."""

from functools import cached_property

from voice_app.config import PackConfig
from voice_app.errors import ConfigError
from voice_app.messages import Stage
from voice_app.models.base import Pack, Report
from voice_app.models.local import assets, code2wav, talker_ar
from voice_app.models.local.audio_encoder import AudioEncoder
from voice_app.models.local.brain import Brain, open_brain
from voice_app.models.local.efficientnet import converted
from voice_app.models.local.image_encoder import ImageEncoder
from voice_app.models.local.labels import Labels
from voice_app.models.local.listening import Listening
from voice_app.models.local.ocr import Ocr
from voice_app.models.local.onnx_session import onnx_session
from voice_app.models.local.preprocessing import Preprocessing
from voice_app.models.local.recognisers import open_recogniser, recogniser_identity
from voice_app.schedulers.base import AnyRunner


def create(config: PackConfig, report: Report) -> Pack:
    """The pack that `config` asks for; nothing is loaded yet. Raises ConfigError."""
    for stage, device in config.devices.items():
        if device != "cpu" and not (config.brain and stage == Stage.THINKER):
            raise ConfigError(
                f"stage {stage}: device {device}: the local pack runs it on the CPU (on a GPU only a brain's "
                "thinker); choose --layout cpu",
                param="layout",
            )
    return LocalPack(config, report)


class LocalPack:
    """Builds runners; stages of one process share the brain's tokenizer and embedding table."""

    def __init__(self, config: PackConfig, report: Report) -> None:
        self._config = config
        self._report = report

    @cached_property
    def _brain(self) -> Brain:
        return open_brain(self._config, self._report)

    def build(self, stage: Stage) -> AnyRunner:
        match stage:
            case Stage.PREPROCESSING:
                return self._preprocessing()
            case Stage.IMAGE_ENCODER:
                return self._image_encoder()
            case Stage.AUDIO_ENCODER:
                self._report("loading the recogniser")
                return AudioEncoder(open_recogniser(self._config, self._report), self)
            case Stage.THINKER:
                return self._brain.thinker()
            case Stage.DECODE:
                return self._brain.tokens
            case Stage.TALKER_AR:
                return talker_ar.build(self._config, self._brain.tokens, self._report)
            case Stage.CODE2WAV:
                return code2wav.build(self._config, self._report)

    def encode(self, text: str) -> list[int]:
        """`Vocabulary` for the encoders."""
        return self._brain.tokens.encode(text)

    def embed(self, ids):
        """`Vocabulary` for the encoders."""
        return self._brain.embed(ids)

    def _preprocessing(self) -> Preprocessing:
        listening = Listening(assets.ensure("turn_taking", self._report), self._config.threads)
        return Preprocessing(self._brain.frame, listening, recogniser_identity(self._config.recogniser))

    def _image_encoder(self) -> ImageEncoder:
        self._report("loading the image encoder")
        weights = converted(assets.ensure("labels", self._report), self._report)
        labels = Labels(onnx_session(weights, self._config.threads))
        ocr = Ocr(assets.ensure("ocr", self._report).parent, self._config.threads)
        return ImageEncoder(labels.name, ocr.read, self)
