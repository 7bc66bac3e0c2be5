"""What the runners need to know of a checkpoint, read from its config.json and generation_config.json.

Nothing is assumed: the published model's numbers differ from transformers' defaults, and the tiny
checkpoint's differ from both.
"""

from dataclasses import dataclass

from voice_app.errors import InputError, ModelFileError
from voice_app.messages import Sampling
from voice_app.models.qwen3_omni.checkpoint import Checkpoint

DEFAULT_SPEAKER = "ethan"
"""transformers' generate() speaks with this one unless told otherwise."""
SUPPRESSED_TOP = 1024
"""generate() suppresses the topmost ids of the talker's vocabulary, all but the codec's EOS."""


@dataclass(frozen=True, slots=True)
class DecoderFacts:
    """A decoder's shape, as far as its KV cache depends on it."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    max_positions: int

    @staticmethod
    def of(checkpoint: Checkpoint, path: str) -> "DecoderFacts":
        """From the text config at `path`."""
        heads = checkpoint.integer(f"{path}.num_attention_heads")
        hidden = checkpoint.integer(f"{path}.hidden_size")
        config = checkpoint.field(path)
        own_head_dim = isinstance(config, dict) and "head_dim" in config
        return DecoderFacts(
            layers=checkpoint.integer(f"{path}.num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=checkpoint.integer(f"{path}.num_key_value_heads"),
            head_dim=checkpoint.integer(f"{path}.head_dim") if own_head_dim else hidden // heads,
            max_positions=checkpoint.integer(f"{path}.max_position_embeddings"),
        )


@dataclass(frozen=True, slots=True)
class Tokens:
    """Ids of the text vocabulary that have a meaning of their own."""

    im_start: int
    user: int
    assistant: int
    audio: int
    image: int
    tts_pad: int
    tts_bos: int
    tts_eos: int

    @staticmethod
    def of(checkpoint: Checkpoint) -> "Tokens":
        return Tokens(
            im_start=checkpoint.integer("im_start_token_id"),
            user=checkpoint.integer("user_token_id"),
            assistant=checkpoint.integer("assistant_token_id"),
            audio=checkpoint.integer("thinker_config.audio_token_id"),
            image=checkpoint.integer("thinker_config.image_token_id"),
            tts_pad=checkpoint.integer("tts_pad_token_id"),
            tts_bos=checkpoint.integer("tts_bos_token_id"),
            tts_eos=checkpoint.integer("tts_eos_token_id"),
        )


@dataclass(frozen=True, slots=True)
class ThinkerFacts:
    decoder: DecoderFacts
    tokens: Tokens
    accept_layer: int
    """The talker listens to the output of this many layers."""
    merge: int
    """Patches per side that become one position."""
    eos: frozenset[int]
    sampling: Sampling
    """Defaults, every field of which is set but `seed` and `stop`."""
    max_tokens: int

    @staticmethod
    def of(checkpoint: Checkpoint) -> "ThinkerFacts":
        decoder = DecoderFacts.of(checkpoint, "thinker_config.text_config")
        accept = checkpoint.integer("talker_config.accept_hidden_layer")
        if not 0 < accept <= decoder.layers:
            raise ModelFileError(
                f"{checkpoint.folder / 'config.json'}: talker_config.accept_hidden_layer is {accept}, but "
                f"the thinker has {decoder.layers} layers; take config.json from the published checkpoint",
                param="model",
            )
        given = _Generation(checkpoint, "thinker_")
        temperature = given.number("temperature", 1.0) if given.flag("do_sample", False) else 0.0
        return ThinkerFacts(
            decoder=decoder,
            tokens=Tokens.of(checkpoint),
            accept_layer=accept,
            merge=checkpoint.integer("thinker_config.vision_config.spatial_merge_size"),
            eos=given.ids("eos_token_id", checkpoint.integer("im_end_token_id")),
            sampling=Sampling(
                temperature=temperature,
                top_k=int(given.number("top_k", 50)),
                top_p=given.number("top_p", 1.0),
                min_p=given.number("min_p", 0.0),
                repetition_penalty=given.number("repetition_penalty", 1.0),
            ),
            max_tokens=int(given.number("max_new_tokens", 1024)),
        )


@dataclass(frozen=True, slots=True)
class TalkerFacts:
    decoder: DecoderFacts
    tokens: Tokens
    merge: int
    groups: int
    """Codes of one frame."""
    codebook: int
    vocab: int
    speakers: dict[str, int]
    nothink: int
    think_bos: int
    think_eos: int
    codec_pad: int
    codec_bos: int
    codec_eos: int
    sampling: Sampling
    """Of a frame's first code."""
    predictor_sampling: Sampling
    """Of the others: what transformers' talker asks of its predictor (top_k 50, top_p 0.8)."""
    max_frames: int

    @staticmethod
    def of(checkpoint: Checkpoint) -> "TalkerFacts":
        given = _Generation(checkpoint, "talker_")
        temperature = given.number("temperature", 0.9) if given.flag("do_sample", True) else 0.0
        speakers = checkpoint.field("talker_config.speaker_id")
        if not isinstance(speakers, dict) or not speakers:
            raise ModelFileError(
                f"{checkpoint.folder / 'config.json'}: field talker_config.speaker_id names no speaker; "
                "take config.json from the published checkpoint",
                param="model",
            )
        return TalkerFacts(
            decoder=DecoderFacts.of(checkpoint, "talker_config.text_config"),
            tokens=Tokens.of(checkpoint),
            merge=checkpoint.integer("thinker_config.vision_config.spatial_merge_size"),
            groups=checkpoint.integer("talker_config.num_code_groups"),
            codebook=checkpoint.integer("talker_config.code_predictor_config.vocab_size"),
            vocab=checkpoint.integer("talker_config.text_config.vocab_size"),
            speakers={str(name).lower(): int(speaker) for name, speaker in speakers.items()},
            nothink=checkpoint.integer("talker_config.codec_nothink_id"),
            think_bos=checkpoint.integer("talker_config.codec_think_bos_id"),
            think_eos=checkpoint.integer("talker_config.codec_think_eos_id"),
            codec_pad=checkpoint.integer("talker_config.codec_pad_id"),
            codec_bos=checkpoint.integer("talker_config.codec_bos_id"),
            codec_eos=checkpoint.integer("talker_config.codec_eos_token_id"),
            sampling=Sampling(
                temperature=temperature,
                top_k=int(given.number("top_k", 50)),
                top_p=given.number("top_p", 1.0),
                min_p=0.0,
                repetition_penalty=given.number("repetition_penalty", 1.05),
            ),
            predictor_sampling=Sampling(
                temperature=1.0 if temperature else 0.0,
                top_k=50,
                top_p=0.8,
                min_p=0.0,
                repetition_penalty=1.0,
            ),
            # The last sampled first code never gets its other codes: one frame less than tokens.
            max_frames=int(given.number("max_new_tokens", 4096)) - 1,
        )

    def speaker(self, name: str | None) -> int:
        """The id of speaker `name` (any case; None: the default). Raises InputError with the valid names."""
        if name is None:
            return self.speakers.get(DEFAULT_SPEAKER, next(iter(self.speakers.values())))
        if name.lower() not in self.speakers:
            raise InputError(
                f"voice {name}: this model's speakers are {', '.join(sorted(self.speakers))}", param="voice"
            )
        return self.speakers[name.lower()]


class _Generation:
    """generation_config.json's fields for one part of the model; names carry the part's prefix."""

    def __init__(self, checkpoint: Checkpoint, prefix: str) -> None:
        self._values = checkpoint.generation
        self._prefix = prefix
        self._file = checkpoint.folder / "generation_config.json"

    def number(self, name: str, default: float) -> float:
        value = self._values.get(self._prefix + name, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise ModelFileError(
                f"{self._file}: field {self._prefix + name} is {value!r}, not a number", param="model"
            )
        return value

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._values.get(self._prefix + name, default))

    def ids(self, name: str, default: int) -> frozenset[int]:
        value = self._values.get(self._prefix + name, default)
        ids = value if isinstance(value, list) else [value]
        return frozenset(i for i in ids if isinstance(i, int))
