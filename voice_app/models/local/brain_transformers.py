"""`--brain`: any causal chat model that transformers loads, from a folder, the hub or a GGUF file."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from voice_app.config import PackConfig
from voice_app.errors import ConfigError
from voice_app.messages import Stage
from voice_app.models import functions
from voice_app.models.base import Report
from voice_app.models.local.decode import VocabularyTokens
from voice_app.models.local.engine_torch import TorchEngine
from voice_app.models.local.prompt import Room, expected_length
from voice_app.models.local.template_frame import TemplateFrame
from voice_app.models.local.thinker import AnswerStyle, Thinker

MAX_POSITIONS = 4096
HISTORY = 2048
_LEAST_ROOM = 128
"""Positions that the context must leave for a talk after the examples: a long question."""
DEFAULT_KV_BYTES = 1 << 30
STYLE = AnswerStyle(max_tokens=120, repetition_penalty=1.0, functions=functions.EXACT, doubts=False)
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>")
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_LOAD_ERRORS = (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError)


class TransformersBrain:
    """The model that `config.brain` names. Its weights are loaded when they are first needed, once."""

    def __init__(self, config: PackConfig, report: Report) -> None:
        """Raises ConfigError: not to be found, no chat template, a tokenizer of an unknown kind, too short a
        context."""
        assert config.brain is not None
        self._name = config.brain
        self._config = config
        self._report = report
        if self._device.type == "cuda" and (self._device.index or 0) >= torch.cuda.device_count():
            raise ConfigError(
                f"device {self._device}: torch sees {torch.cuda.device_count()} CUDA devices here; choose "
                "another layout, such as cpu",
                param="layout",
            )
        tokenizer = self._loaded(AutoTokenizer)
        if not tokenizer.chat_template:
            raise self._error("it has no chat template; choose a chat (instruct) model")
        self._tokenizer = tokenizer
        self.tokens = self._known_tokens(tokenizer)
        self.encode = self.tokens.encode
        self._positions = _positions(self._loaded(AutoConfig).get_text_config().to_dict())
        room = Room(self._positions - STYLE.max_tokens, HISTORY)
        self.frame = TemplateFrame(self._render, self.tokens, self.tokens.encode_frame, room)
        self._check_room(room)

    def embed(self, ids: Sequence[int]) -> np.ndarray:
        with torch.inference_mode():
            rows = self._model.get_input_embeddings()(torch.tensor(ids, device=self._model.device))
            return rows.float().cpu().numpy()

    def thinker(self) -> Thinker:
        torch.set_num_threads(self._config.threads)
        engine = TorchEngine(self._model, self._config.kv_bytes or DEFAULT_KV_BYTES, self._positions)
        return Thinker(engine, self.tokens, self._ends(), STYLE, self.frame.spans(()))

    @cached_property
    def _model(self) -> Any:
        self._report(f"loading the thinker: {self._name}")
        dtype = _DTYPES.get(self._config.dtype or "") or self._best_dtype()
        model = self._loaded(AutoModelForCausalLM, dtype=dtype)
        if model.config.get_text_config().to_dict().get("attn_logit_softcapping"):
            raise self._error("its attention caps its scores, which is not built here; choose another")
        return model.eval().to(self._device)

    @property
    def _device(self) -> torch.device:
        """The thinker's; other stages of its worker embed there too, those of other workers on the CPU."""
        return torch.device(self._config.devices.get(Stage.THINKER, "cpu"))

    def _loaded(self, kind: Any, **options: Any) -> Any:
        path = Path(self._name)
        source: dict[str, Any] = {"pretrained_model_name_or_path": self._name}
        if path.suffix == ".gguf":
            source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
        try:
            return kind.from_pretrained(**source, **options)
        except _LOAD_ERRORS as error:
            reason = str(error).strip().partition("\n")[0]
            raise self._error(f"transformers can't load it: {reason}") from error

    def _check_room(self, room: Room) -> None:
        missing = expected_length(self.frame.spans(())) + _LEAST_ROOM - room.prompt
        if missing > 0:
            raise self._error(
                f"its context of {self._positions} positions is {missing} too short for the examples, "
                "a question and an answer; choose another"
            )

    def _known_tokens(self, tokenizer: Any) -> VocabularyTokens:
        if not isinstance(tokenizer, PreTrainedTokenizerFast):
            raise self._error("its tokenizer has no fast form; choose another")
        return VocabularyTokens(tokenizer.backend_tokenizer)

    def _render(self, messages: list[dict[str, str]]) -> str:
        # The switch of models that else think aloud first; templates without it ignore it.
        return self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )

    def _best_dtype(self) -> torch.dtype:
        """bfloat16 where the processor multiplies it at full speed, else float32. GGUF's packed weights are
        multiplied in float32 anyway."""
        fast = self._device.type == "cuda" or torch.ops.mkldnn._is_mkldnn_bf16_supported()
        return torch.bfloat16 if fast and not self._name.endswith(".gguf") else torch.float32

    def _ends(self) -> frozenset[int]:
        settings = self._model.generation_config
        listed = settings.eos_token_id if settings else None
        ends = [*(listed if isinstance(listed, list) else [listed]), self._tokenizer.eos_token_id]
        vocabulary = self._tokenizer.get_vocab()
        ends += [vocabulary.get(name) for name in _TURN_ENDS]
        return frozenset(end for end in ends if end is not None)

    def _error(self, reason: str) -> ConfigError:
        return ConfigError(f"--brain {self._name}: {reason}", param="brain")


def _positions(text: Mapping[str, Any]) -> int:
    """Longest prompt and answer of a model with this configuration. Within the window that some layers look
    back over, all attention is plain."""
    limits = [MAX_POSITIONS, text.get("max_position_embeddings"), text.get("sliding_window")]
    return min(limit for limit in limits if limit)
