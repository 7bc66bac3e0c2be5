"""A Piper voice is cut into parts that together are the whole, and a foreign file is refused in one line."""

import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
import voices
from onnx import TensorProto, helper

from voice_app.bench.voice import Speaker
from voice_app.config import PackConfig
from voice_app.errors import InputError, ModelFileError
from voice_app.messages import PromptParams
from voice_app.models import registry
from voice_app.models.local.acoustic import AcousticModel, Edges
from voice_app.models.local.onnx_session import onnx_session
from voice_app.models.local.phonemes import Phonemizer
from voice_app.models.local.piper import load_voice
from voice_app.models.local.piper_settings import read_settings, speaker
from voice_app.models.local.spoken_form import spoken_form

AS_IS = Edges(lead=9.0, least=0.0, most=9.0)


def silent(_: str) -> None:
    pass


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own; the packaged voice is linked from the user's."""
    monkeypatch.setenv("VOICE_APP_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.models
def test_the_parts_are_the_whole_voice() -> None:
    path = voices.packaged()
    voice = load_voice(path, silent)
    # Without noise the whole graph is a function of its input.
    voice.settings.inference.noise_scale = voice.settings.inference.noise_w = 0.0
    phonemes = Phonemizer(voice.settings.phoneme_id_map)(spoken_form("The parts are the whole, I hope."))
    ids = phonemes.ids
    speech = AcousticModel(voice, 1).speak(phonemes, AS_IS, 1.0)
    frames = speech.frames(0, len(speech))
    (sound,) = voice.session("decoder", 1).run(None, {voice.parts.cuts.latent: frames.T[np.newaxis]})
    (whole,) = onnx_session(path, 1).run(
        None,
        {
            "input": np.array([ids]),
            "input_lengths": np.array([len(ids)]),
            "scales": np.array([0.0, 1.0, 0.0], np.float32),
        },
    )
    assert np.ravel(np.asarray(whole)).shape == np.ravel(np.asarray(sound)).shape
    assert np.abs(np.ravel(np.asarray(whole)) - np.ravel(np.asarray(sound))).max() < 1e-4


@pytest.mark.models
def test_two_that_cut_at_once_both_get_a_whole_voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = voices.packaged()
    monkeypatch.setenv("VOICE_APP_HOME", str(tmp_path))
    found = []
    threads = [threading.Thread(target=lambda: found.append(load_voice(path, silent))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert len(found) == 2
    assert found[0].parts == found[1].parts
    assert [entry.name for entry in (tmp_path / "voices").iterdir()] == [found[0].folder.name]


@pytest.mark.models
def test_a_voice_of_several_speakers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = voices.of_two_speakers(tmp_path)
    monkeypatch.setenv("VOICE_APP_HOME", str(tmp_path))
    voice = load_voice(path, silent)
    assert voice.channels == voice.parts.channels + 1
    assert voice.speaker("anna") == 0
    assert voice.speaker("bert") == 1
    phonemes = Phonemizer(voice.settings.phoneme_id_map)(spoken_form("Hi."))
    speech = AcousticModel(voice, 1).speak(phonemes, AS_IS, 1.0, 1)
    frames = speech.frames(0, len(speech))
    assert frames.shape == (len(speech), voice.channels)
    assert set(frames[:, -1]) == {1.0}


@pytest.mark.models
def test_each_turn_has_the_speaker_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Speaker(PackConfig(voice=str(voices.packaged()))).say("Good morning.").samples
    path = voices.of_two_speakers(tmp_path)
    monkeypatch.setenv("VOICE_APP_HOME", str(tmp_path))
    speaker = Speaker(PackConfig(voice=str(path)))
    anna, bert = (speaker.say("Good morning.", PromptParams(voice=name)).samples for name in ("anna", "bert"))
    assert np.abs(anna - usual).max() < 1e-4
    assert anna.shape == bert.shape
    assert np.abs(bert - usual).max() > 1e-2


@pytest.mark.models
def test_another_voice_brings_its_own_rate(tmp_path: Path) -> None:
    speaker = Speaker(PackConfig(voice=str(voices.with_settings(tmp_path, audio={"sample_rate": 16000}))))
    assert speaker.decoder.spec.sample_rate == 16000
    assert speaker.talker.voice.name == "en_US-changed-medium"


@pytest.mark.models
def test_an_unknown_voice_is_refused_with_those_there_are() -> None:
    voice = load_voice(voices.packaged(), silent)
    assert voice.speaker(None) == voice.speaker("joe") == voice.speaker("en_US-joe-medium") == 0
    with pytest.raises(InputError, match=r"'marvin'.*en_US-joe-medium, joe") as caught:
        voice.speaker("marvin")
    assert caught.value.param == "voice"


@pytest.mark.models
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"espeak": {"voice": "de"}}, "'de'"),
        ({"phoneme_type": "text"}, "text phonemes"),
        ({"audio": {}}, "sample_rate"),
        ({"phoneme_id_map": 5}, "phoneme_id_map"),
    ],
)
def test_settings_that_cannot_be_spoken(tmp_path: Path, changes: dict, said: str) -> None:
    with pytest.raises(ModelFileError, match=said) as caught:
        load_voice(voices.with_settings(tmp_path, **changes), silent)
    assert "\n" not in caught.value.message


SETTINGS = '{"audio": {"sample_rate": 16000}, "phoneme_id_map": {"_": [0]}}'


def test_a_missing_file(home: Path) -> None:
    with pytest.raises(ModelFileError, match="beside it"):
        load_voice(home / "none.onnx", silent)
    (home / "none.onnx.json").write_text(SETTINGS)
    with pytest.raises(ModelFileError, match="cannot be read"):
        load_voice(home / "none.onnx", silent)


@pytest.mark.parametrize("content", [b"no model at all", b"", b"\x00" * 1000])
def test_a_damaged_file(home: Path, content: bytes) -> None:
    (home / "bad.onnx.json").write_text(SETTINGS)
    (home / "bad.onnx").write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        load_voice(home / "bad.onnx", silent)
    assert "\n" not in caught.value.message
    assert list((home / "voices").iterdir()) == []


def test_a_graph_of_another_kind(home: Path) -> None:
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "other",
        [tensor("x", TensorProto.FLOAT, [1])],
        [tensor("y", TensorProto.FLOAT, [1])],
    )
    onnx.save(helper.make_model(graph), home / "other.onnx")
    (home / "other.onnx.json").write_text(SETTINGS)
    with pytest.raises(ModelFileError, match="Piper"):
        load_voice(home / "other.onnx", silent)


@pytest.mark.models
def test_the_pack_offers_the_names_that_its_voice_takes(tmp_path: Path) -> None:
    path = voices.of_two_speakers(tmp_path)
    offered = registry.offer(PackConfig(voice=str(path)))
    settings = read_settings(path)
    assert offered.languages == ("en",)
    assert {"anna", "bert", "default", path.stem} <= set(offered.voices)
    for name in offered.voices:
        assert speaker(path.stem, settings, name) == speaker(path.stem, settings, name.upper())
    assert speaker(path.stem, settings, "Bert") == 1
    with pytest.raises(InputError, match="anna"):
        speaker(path.stem, settings, "clara")


def test_of_a_voice_that_is_not_there_yet_no_names_are_known() -> None:
    assert registry.offer(PackConfig(voice="/nowhere/voice.onnx")).voices == ()
