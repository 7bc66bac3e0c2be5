"""The pack `qwen3-omni`: a published checkpoint, each stage loading its own part of it.

A worker's stages share the tokenizer. Memory of a GPU is shared out like this: each stage loads its
weights, and the thinker's KV cache takes `KV_SHARE` of what is free then, unless a budget is given.
"""

from functools import cached_property

import torch

from voice_app.config import PackConfig
from voice_app.errors import ConfigError
from voice_app.messages import Stage
from voice_app.models.base import Report
from voice_app.models.paged_attention import KVPool
from voice_app.models.qwen3_omni.adapter import Loader
from voice_app.models.qwen3_omni.audio_encoder import AudioEncoder
from voice_app.models.qwen3_omni.checkpoint import Checkpoint
from voice_app.models.qwen3_omni.code2wav import Code2Wav
from voice_app.models.qwen3_omni.decode import Decode
from voice_app.models.qwen3_omni.facts import DecoderFacts, TalkerFacts, ThinkerFacts
from voice_app.models.qwen3_omni.image_encoder import ImageEncoder
from voice_app.models.qwen3_omni.preprocessing import Preprocessing
from voice_app.models.qwen3_omni.processors import AudioProcessor, ImageProcessor, TextProcessor
from voice_app.models.qwen3_omni.talker_ar import Talker
from voice_app.models.qwen3_omni.thinker import Thinker
from voice_app.models.varlen import usable
from voice_app.schedulers.base import AnyRunner

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
PAGE_SIZES = (16, 64, 256)
"""The smallest is used unless the device's attention kernel wants a larger one."""
CPU_KV_BYTES = 256 * 2**20
KV_SHARE = 0.5
TALKER_STATES = 32
TALKER_POSITIONS = 6144
"""Positions set aside for each talker state: the longest reply (4,096) and a long user's part."""


def create(config: PackConfig, report: Report) -> "Qwen3OmniPack":
    """A `PackFactory`."""
    return Qwen3OmniPack(config, Checkpoint(config.model), report)


class Qwen3OmniPack:
    """A `Pack`."""

    def __init__(self, config: PackConfig, checkpoint: Checkpoint, report: Report) -> None:
        torch.set_num_threads(config.threads)
        self._config = config
        self._report = report
        self._checkpoint = checkpoint
        self._dtype = _dtype(config.dtype or self._stored_dtype())
        self._thinker = ThinkerFacts.of(self._checkpoint)
        self._talker = TalkerFacts.of(self._checkpoint)
        if config.voice is not None and config.voice.lower() not in self._talker.speakers:
            names = ", ".join(sorted(self._talker.speakers))
            raise ConfigError(f"--voice {config.voice}: this model's speakers are {names}", param="voice")

    def build(self, stage: Stage) -> AnyRunner:
        self._report(f"qwen3-omni: loading {stage} from {self._checkpoint.name}")
        match stage:
            case Stage.PREPROCESSING:
                return self._preprocessing()
            case Stage.IMAGE_ENCODER:
                return ImageEncoder(self._loader(stage).vision_encoder())
            case Stage.AUDIO_ENCODER:
                return AudioEncoder(self._loader(stage).audio_encoder())
            case Stage.THINKER:
                return self._build_thinker(self._loader(stage))
            case Stage.DECODE:
                return Decode(self._text)
            case Stage.TALKER_AR:
                return self._build_talker(self._loader(stage))
            case Stage.CODE2WAV:
                return Code2Wav(self._loader(stage).code2wav())

    @cached_property
    def _text(self) -> TextProcessor:
        return TextProcessor(self._checkpoint)

    def _preprocessing(self) -> Preprocessing:
        return Preprocessing(
            self._text,
            AudioProcessor(self._checkpoint),
            ImageProcessor(self._checkpoint),
            self._thinker,
            self._talker,
            self._config.voice,
        )

    def _build_thinker(self, loader: Loader) -> Thinker:
        decoder, head = loader.thinker()
        shape = self._thinker.decoder
        page_size = _page_size(shape, loader)
        page_bytes = Thinker.page_bytes(self._thinker, page_size, loader.dtype)
        budget = self._config.kv_bytes or _free_bytes(loader.device)
        pages = budget // page_bytes
        if pages < 1:
            raise ConfigError(
                f"--kv-bytes {budget}: one page of {page_size} positions takes {page_bytes} bytes; give more",
                param="kv_bytes",
            )
        # Beyond this every turn that may run has its longest prompt and answer.
        pages = min(pages, 64 * -(-shape.max_positions // page_size))
        return Thinker(
            decoder, head, self._thinker, _pool(shape, pages, page_size, loader), self._text.token_bytes
        )

    def _build_talker(self, loader: Loader) -> Talker:
        shape = self._talker.decoder
        page_size = _page_size(shape, loader)
        pages = TALKER_STATES * -(-min(shape.max_positions, TALKER_POSITIONS) // page_size)
        return Talker(
            loader.talker(),
            loader.text_embedding(),
            self._talker,
            _pool(shape, pages, page_size, loader),
            TALKER_STATES,
            self._config.voice,
        )

    def _loader(self, stage: Stage) -> Loader:
        return Loader(self._checkpoint, self._dtype, _device(self._config.devices.get(stage, "cpu")))

    def _stored_dtype(self) -> str:
        """What the checkpoint says its weights are; older files call the field torch_dtype."""
        for holder in (self._checkpoint.config, self._checkpoint.config.get("thinker_config")):
            if isinstance(holder, dict):
                found = holder.get("dtype") or holder.get("torch_dtype")
                if isinstance(found, str):
                    return found
        return "bfloat16"


def _dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise ConfigError(f"--dtype {name}: choose one of {', '.join(DTYPES)}", param="dtype")
    return DTYPES[name]


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device {name}: choose cpu or cuda:N in the layout", param="layout") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device {name}: choose cpu or cuda:N in the layout", param="layout")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise ConfigError(
                f"device {name}: this machine has {count} CUDA devices; choose another layout, such as cpu",
                param="layout",
            )
    return device


def _page_size(shape: DecoderFacts, loader: Loader) -> int:
    """The smallest page size that the attention kernel takes; the smallest of all where it takes none."""
    for size in PAGE_SIZES:
        if usable(shape.heads, shape.kv_heads, shape.head_dim, size, loader.dtype, loader.device):
            return size
    return PAGE_SIZES[0]


def _pool(shape: DecoderFacts, pages: int, page_size: int, loader: Loader) -> KVPool:
    return KVPool(
        shape.layers,
        pages,
        page_size,
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        loader.dtype,
        loader.device,
    )


def _free_bytes(device: torch.device) -> int:
    if device.type == "cpu":
        return CPU_KV_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return int(free * KV_SHARE)
