"""What the stages of the local pack share of the thinker's model: tokenizer, chat frame, embedding table.

`open_brain` is cheap (0.2 s for the packaged brain) and enough for preprocessing, the encoders and decode;
only the thinker's stage calls `thinker`, which loads the layers.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from tokenizers import Tokenizer

from voice_app.config import PackConfig
from voice_app.models import functions
from voice_app.models.base import Report
from voice_app.models.local.assets import ensure
from voice_app.models.local.brain_files import BrainFiles, converted
from voice_app.models.local.catalogue import MODELS
from voice_app.models.local.decode import VocabularyTokens
from voice_app.models.local.engine_onnx import OnnxEngine
from voice_app.models.local.prompt import ChatFrame, ChatMlFrame, Room, Tokens
from voice_app.models.local.thinker import AnswerStyle, Thinker
from voice_app.schedulers.base import ThinkerRunner

MAX_POSITIONS = 2048
"""Longest prompt and answer of the packaged brain. It was trained to 8192; on a CPU a longer prompt than
this takes seconds."""
HISTORY = 1024
"""Positions of the turns that a prompt keeps, where the client's instructions leave them."""
STYLE = AnswerStyle(max_tokens=80, repetition_penalty=1.15, functions=functions.ALL, doubts=True)
DEFAULT_KV_BYTES = 224 << 20
"""5,000 positions of the packaged brain: some thirty talks with their history."""


class Brain(Protocol):
    """One model's shared parts."""

    @property
    def tokens(self) -> Tokens: ...

    @property
    def frame(self) -> ChatFrame: ...

    def encode(self, text: str) -> list[int]:
        """Token ids of `text` alone."""
        ...

    def embed(self, ids: Sequence[int]) -> np.ndarray:
        """float32 [n, width]: the thinker's input embeddings of `ids`."""
        ...

    def thinker(self) -> ThinkerRunner:
        """Load the layers. Raises ModelFileError."""
        ...


def open_brain(config: PackConfig, report: Report) -> Brain:
    """The brain that `config` asks for. Raises ModelFileError or ConfigError in one line."""
    if config.brain is None:
        return PackagedBrain(config, report)
    # transformers takes seconds to import; only those who ask for it wait.
    from voice_app.models.local.brain_transformers import TransformersBrain

    return TransformersBrain(config, report)


class PackagedBrain:
    """SmolLM2-135M-Instruct in 8 bits."""

    def __init__(self, config: PackConfig, report: Report) -> None:
        sha256 = MODELS["smollm2"].files[0].sha256
        self.files: BrainFiles = converted(ensure("smollm2", report), sha256, report)
        self._config = config
        self._report = report
        self.tokens = VocabularyTokens(Tokenizer.from_file(str(self.files.tokenizer)))
        start, self._end = self.tokens.id("<|im_start|>"), self.tokens.id("<|im_end|>")
        room = Room(MAX_POSITIONS - STYLE.max_tokens, HISTORY)
        self.frame = ChatMlFrame(self.tokens, start, self._end, room)
        self.encode = self.tokens.encode
        self._table = self.files.embedding()

    def embed(self, ids: Sequence[int]) -> np.ndarray:
        return self._table[np.asarray(ids, np.int64)].astype(np.float32)

    def thinker(self) -> Thinker:
        self._report("loading the thinker")
        kv_bytes = self._config.kv_bytes or DEFAULT_KV_BYTES
        engine = OnnxEngine(self.files, kv_bytes, MAX_POSITIONS)
        ends = frozenset({self._end, self.tokens.id("<|endoftext|>")})
        return Thinker(engine, self.tokens, ends, STYLE, self.frame.spans(()))
