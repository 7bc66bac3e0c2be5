"""smart-turn with features of our own, on human speech."""

from pathlib import Path

import numpy as np
import pytest

from voice_app.bench import speech
from voice_app.config import home
from voice_app.errors import ModelFileError
from voice_app.server.end_of_turn import EndOfTurn

pytestmark = pytest.mark.models

MODEL = home() / "models" / "turn_taking-1.14.0" / "smart-turn-v3.2-cpu.onnx"


@pytest.fixture(scope="module")
def model() -> EndOfTurn:
    return EndOfTurn(MODEL)


def test_features_are_whispers(model: EndOfTurn):
    """Against the extractor that the model was trained with."""
    from transformers import WhisperFeatureExtractor

    samples = np.random.default_rng(0).normal(size=8 * 16_000).astype(np.float32)
    extractor = WhisperFeatureExtractor(chunk_length=8)
    expected = extractor(samples, sampling_rate=16_000, return_tensors="np").input_features[0]
    assert np.abs(model._features(samples) - expected).max() < 1e-3


def test_complete_and_cut_off_prompts(model: EndOfTurn):
    """Human recordings, whole and cut at 70 %: mostly right on both (a cut may fall where one could end)."""
    pause = np.zeros(3_200, np.float32)
    whole: list[float] = []
    cut: list[float] = []
    for name in list(speech.PROMPTS)[:24]:
        samples = np.asarray(speech.asterisk_prompt(name), np.float32)
        loud = np.flatnonzero(np.abs(samples) > 0.02)
        words = samples[loud[0] : loud[-1]]
        whole.append(model.probability(np.concatenate([words, pause])))
        cut.append(model.probability(np.concatenate([words[: int(0.7 * len(words))], pause])))
    assert np.mean(np.array(whole) > 0.5) >= 0.8
    assert np.mean(np.array(cut) < 0.5) >= 0.7


def test_a_foreign_file_is_named(tmp_path: Path):
    (tmp_path / "turn.onnx").write_text("no model")
    with pytest.raises(ModelFileError, match=r"turn\.onnx"):
        EndOfTurn(tmp_path / "turn.onnx")
