"""Our decoder for Whisper: what CTranslate2's own would write, from any folder in CTranslate2's format."""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ctranslate2
import numpy as np
import pytest
import soundfile
from speech import RATE, with_noise

from voice_app import audio
from voice_app.errors import ModelFileError
from voice_app.models.local import assets
from voice_app.models.local.listening import Listening
from voice_app.models.local.whisper import Whisper
from voice_app.models.local.whisper_decoder import WhisperDecoder, Written
from voice_app.models.local.whisper_weights import WhisperWeights, read_words

pytestmark = pytest.mark.models
SPOKEN = sorted((Path(__file__).parents[1] / "data" / "spoken").glob("*.flac"))
STEPS = 525
"""Positions of speech and silence: 10.5 s."""
TOKENS = 40


@dataclass(frozen=True, slots=True)
class Ears:
    """The packaged model, its encoder, and the decoder of ours that goes with it."""

    folder: Path
    encode: Callable[[np.ndarray], np.ndarray]
    silence: np.ndarray
    decoder: WhisperDecoder

    def written(self, encoded: np.ndarray, draft: list[int] | None = None) -> Written:
        return self.decoder.write(encoded, STEPS, TOKENS, draft or [])


@pytest.fixture(scope="module")
def ears() -> Ears:
    folder = assets.ensure("whisper").parent
    whisper = Whisper(folder, "whisper")
    model = ctranslate2.models.Whisper(str(folder), compute_type="int8", intra_threads=1)

    def encode(features: np.ndarray) -> np.ndarray:
        return np.array(model.encode(ctranslate2.StorageView.from_array(features[None]), to_cpu=True))[0]

    silence = encode(np.full((80, 3000), -0.73, np.float32))
    decoder = WhisperDecoder(folder, multilingual=False, silence=silence, threads=1)
    return Ears(folder, lambda samples: encode(whisper.features(samples)), silence, decoder)


@pytest.fixture(scope="module")
def questions(ears: Ears) -> list[np.ndarray]:
    """Spoken questions, encoded; every second one in noise."""
    listening = Listening(assets.ensure("turn_taking"))
    encoded = []
    for seed, path in enumerate(SPOKEN):
        samples, rate = soundfile.read(path, dtype="float32")
        samples = audio.resample(samples, rate, RATE)
        heard = listening.speech(with_noise(samples, 15, seed) if seed % 2 else samples)
        encoded.append(ears.encode(heard)[:STEPS])
    return encoded


def test_it_writes_what_ctranslate2_writes_in_float(ears: Ears, questions: list[np.ndarray]) -> None:
    """On the same encoded sound. In 8 bits CTranslate2 itself writes otherwise for one question in eight."""
    model = ctranslate2.models.Whisper(str(ears.folder), compute_type="float32", intra_threads=1)
    same = 0
    for encoded in questions:
        window = np.concatenate([encoded, ears.silence[len(encoded) : STEPS]])[None]
        (expected,) = model.generate(
            ctranslate2.StorageView.from_array(window),
            [["<|startoftranscript|>", "<|notimestamps|>"]],
            beam_size=1,
            max_length=2 * TOKENS,  # Of which it gives half to the text.
            return_scores=True,
        )
        written = ears.written(encoded)
        if written.ids == expected.sequences_ids[0]:
            same += 1
            assert written.score == pytest.approx(expected.scores[0], abs=0.05)
            assert ears.decoder.pieces(written.ids) == expected.sequences[0]
    assert same >= 0.9 * len(questions)


def test_it_stops_where_it_must(ears: Ears, questions: list[np.ndarray]) -> None:
    whole = ears.written(questions[0])
    cut = ears.decoder.write(questions[0], STEPS, 3)
    assert cut.ids == whole.ids[:3]
    assert len(whole.ids) < TOKENS


def test_a_draft_changes_nothing(ears: Ears, questions: list[np.ndarray]) -> None:
    """Be it right, right at first, wrong, or longer than what is said. Sums over several rows are added up in
    another order, and what is quantised next to a rounding's edge falls to its other side."""
    for encoded in questions[::6]:
        plain = ears.written(encoded)
        half = len(plain.ids) // 2
        drafts = [plain.ids, plain.ids[:half], [*plain.ids[:half], 1000, 1001], [1000, *plain.ids]]
        for draft in [*drafts, [*plain.ids, 1000, 1001], [1000] * TOKENS]:
            drafted = ears.written(encoded, draft)
            assert drafted.ids == plain.ids
            assert drafted.score == pytest.approx(plain.score, abs=0.01)


def test_a_right_draft_takes_one_pass(ears: Ears, questions: list[np.ndarray]) -> None:
    passes: list[int] = []

    class Counted(WhisperDecoder):
        def _passed(self, ids, start, memory, past, first):
            passes.append(len(ids))
            return super()._passed(ids, start, memory, past, first)

    decoder = Counted(ears.folder, False, ears.silence, 1)
    plain = decoder.write(questions[0], STEPS, TOKENS)
    assert passes == [2] + [1] * len(plain.ids)
    passes.clear()
    decoder.write(questions[0], STEPS, TOKENS, plain.ids)
    assert passes == [2 + len(plain.ids)]


def test_keys_and_values_are_those_of_the_weights(ears: Ears, questions: list[np.ndarray]) -> None:
    weights, encoded = WhisperWeights(ears.folder), questions[0]
    memory = ears.decoder.memory(encoded, STEPS)
    window = np.concatenate([encoded, ears.silence[len(encoded) : STEPS]]).astype(np.float64)
    shape = weights.shape
    for layer in range(shape.layers):
        name = f"layer_{layer}/attention/linear_1"
        both = window @ weights.tensor(f"{name}/weight").T + weights.tensor(f"{name}/bias")
        heads = both.reshape(STEPS, 2, shape.heads, -1)
        for given, exact in (
            (memory[f"memory.key.{layer}"], heads[:, 0].transpose(1, 2, 0)),
            (memory[f"memory.value.{layer}"], heads[:, 1].transpose(1, 0, 2)),
        ):
            np.testing.assert_allclose(given, exact, atol=1e-4 * np.abs(exact).max())


def as_file(variables: dict[str, np.ndarray], aliases: dict[str, str], form: int = 6, kind="WhisperSpec"):
    """A `model.bin`."""
    numbers = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4, "uint16": 5}

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    made = struct.pack("<I", form) + text(kind) + struct.pack("<II", 3, len(variables))
    for name, value in variables.items():
        made += text(name) + struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)
        made += struct.pack("<BI", numbers[value.dtype.name], value.nbytes) + value.tobytes()
    return (
        made
        + struct.pack("<I", len(aliases))
        + b"".join(text(one) for pair in aliases.items() for one in pair)
    )


WIDTH, VOCAB = 128, 96
ALIASES = {"decoder/projection/weight": "decoder/embeddings/weight"}


def small_model() -> dict[str, np.ndarray]:
    """A decoder of one layer and two heads with random weights."""
    rng = np.random.default_rng(0)
    sizes = {
        "self_attention/linear_0": (3, 1),
        "self_attention/linear_1": (1, 1),
        "attention/linear_0": (1, 1),
    }
    sizes |= {"attention/linear_1": (2, 1), "attention/linear_2": (1, 1), "ffn/linear_0": (4, 1)}
    sizes |= {"ffn/linear_1": (1, 4)}
    shapes = {"embeddings/weight": (VOCAB, WIDTH), "position_encodings/encodings": (40, WIDTH)}
    for name, (out, into) in sizes.items():
        shapes |= {
            f"layer_0/{name}/weight": (out * WIDTH, into * WIDTH),
            f"layer_0/{name}/bias": (out * WIDTH,),
        }
    for name in ("", "layer_0/self_attention/", "layer_0/attention/", "layer_0/ffn/"):
        shapes |= {f"{name}layer_norm/{part}": (WIDTH,) for part in ("gamma", "beta")}
    made = {f"decoder/{name}": rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    return made | {"decoder/num_heads": np.array(2, np.int16), "decoder/activation": np.array(3, np.int8)}


def stored(variables: dict[str, np.ndarray], kind: str) -> dict[str, np.ndarray]:
    """`variables` as a converter writes them in `kind`: in 8 and 16 bits the matrices alone."""
    made = {}
    for name, value in variables.items():
        matrix = name.endswith("weight")
        if kind == "int8" and matrix:
            scale = 127 / np.abs(value).max(axis=1)
            made |= {name: np.rint(value * scale[:, None]).astype(np.int8), f"{name}_scale": scale}
        elif kind == "int16" and matrix:
            scale = np.array(1023 / np.abs(value).max(), np.float32)
            made |= {name: np.rint(value * scale).astype(np.int16), f"{name}_scale": scale}
        elif kind == "bfloat16" and value.dtype == np.float32:
            made[name] = (value.view(np.uint32) >> 16).astype(np.uint16)
        else:
            made[name] = (
                value.astype(np.float16) if kind == "float16" and value.dtype == np.float32 else value
            )
    return made


def folder_of(folder: Path, model: bytes, pieces: list[str], as_json: bool = False) -> Path:
    (folder / "model.bin").write_bytes(model)
    (folder / "config.json").write_text(json.dumps({"suppress_ids": [3, 4], "suppress_ids_begin": [5]}))
    if as_json:
        (folder / "vocabulary.json").write_text(json.dumps(pieces))
    else:
        (folder / "vocabulary.txt").write_bytes("".join(f"{piece}\n" for piece in pieces).encode())
    return folder


SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]
PIECES = [f"piece{number}\u0085" for number in range(VOCAB - len(SPECIAL))] + SPECIAL


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "int16", "int8"])
def test_a_file_of_any_precision(tmp_path: Path, kind: str) -> None:
    exact = small_model()
    folder = folder_of(tmp_path, as_file(stored(exact, kind), ALIASES), PIECES, as_json=kind == "int8")
    weights = WhisperWeights(folder)
    for name in ("embeddings/weight", "projection/weight", "layer_0/ffn/linear_1/weight"):
        matrix = exact["decoder/" + name.replace("projection", "embeddings")]
        assert weights.tensor(name).dtype == np.float32
        np.testing.assert_allclose(weights.tensor(name), matrix, atol=0.01 * np.abs(matrix).max())
    silence = np.zeros((1500, WIDTH), np.float32)
    written = WhisperDecoder(folder, True, silence, 1).write(np.ones((9, WIDTH), np.float32), 20, 100)
    assert 0 < len(written.ids) <= 36
    assert not {3, 4} & set(written.ids)
    assert written.ids[0] != 5


@pytest.mark.parametrize("as_json", [False, True])
def test_what_it_is_asked(tmp_path: Path, as_json: bool) -> None:
    folder = folder_of(tmp_path, b"", PIECES, as_json)
    several, english = read_words(folder, multilingual=True), read_words(folder, multilingual=False)
    assert several.pieces == PIECES
    assert [PIECES[token] for token in several.prompt] == SPECIAL[1:]
    assert [PIECES[token] for token in english.prompt] == [SPECIAL[1], SPECIAL[4]]
    assert (several.end, several.never, several.never_first) == (VOCAB - 5, [3, 4], [5])


def damaged() -> dict[str, bytes]:
    model = small_model()
    whole = as_file(model, ALIASES)
    without = {name: value for name, value in model.items() if name != "decoder/num_heads"}
    return {
        "empty": b"",
        "another file": b"GGUF" + bytes(1000),
        "cut off in the header": whole[:20],
        "cut off in a matrix": whole[: len(whole) // 2],
        "cut off in the aliases": whole[:-10],
        "another format": as_file(model, ALIASES, form=5),
        "another model": as_file(model, ALIASES, kind="TransformerSpec"),
        "no heads": as_file(without, ALIASES),
        "none of its heads": as_file(model | {"decoder/num_heads": np.array(0, np.int16)}, ALIASES),
        "no decoder": as_file({}, {}),
        "an output matrix of its own": as_file(model, {}),
        "another activation": as_file(model | {"decoder/activation": np.array(0, np.int8)}, ALIASES),
    }


@pytest.mark.parametrize("what", damaged())
def test_damaged_and_foreign_files(tmp_path: Path, what: str) -> None:
    folder = folder_of(tmp_path, damaged()[what], PIECES)
    with pytest.raises(ModelFileError, match=r"model\.bin: no Whisper model") as error:
        WhisperWeights(folder)
    assert "\n" not in error.value.message


def test_a_layer_without_a_matrix(tmp_path: Path) -> None:
    model = small_model()
    del model["decoder/layer_0/attention/linear_2/weight"]
    folder = folder_of(tmp_path, as_file(model, ALIASES), PIECES)
    with pytest.raises(ModelFileError, match="it has no decoder/layer_0/attention/linear_2/weight"):
        WhisperDecoder(folder, True, np.zeros((1500, WIDTH), np.float32), 1)


def test_words_of_a_larger_model(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, as_file(small_model(), ALIASES), [*PIECES, *map(str, range(1000))])
    with pytest.raises(ModelFileError, match="they are of different models") as error:
        WhisperDecoder(folder, True, np.zeros((1500, WIDTH), np.float32), 1)
    assert error.value.param == "recogniser"


def test_a_folder_without_its_words(tmp_path: Path) -> None:
    folder_of(tmp_path, b"", PIECES[:-1])
    with pytest.raises(ModelFileError, match="vocabulary"):
        read_words(tmp_path, multilingual=False)
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(ModelFileError, match="config"):
        read_words(tmp_path, multilingual=True)
