"""Loading: each stage reads its own part only; whatever is wrong with a checkpoint is one clear line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3OmniMoeForConditionalGeneration

from voice_app.config import PackConfig
from voice_app.errors import ConfigError, ModelFileError
from voice_app.messages import Stage
from voice_app.models import registry
from voice_app.models.qwen3_omni import checkpoint as checkpoint_module
from voice_app.models.qwen3_omni.checkpoint import Checkpoint, TensorReader
from voice_app.models.qwen3_omni.facts import TalkerFacts
from voice_app.models.qwen3_omni.pack import create
from voice_app.models.qwen3_omni.tiny_checkpoint import make_tiny_checkpoint

PARTS = {
    Stage.PREPROCESSING: (),
    Stage.DECODE: (),
    Stage.IMAGE_ENCODER: ("thinker.visual.",),
    Stage.AUDIO_ENCODER: ("thinker.audio_tower.",),
    Stage.THINKER: ("thinker.model.", "thinker.lm_head."),
    Stage.TALKER_AR: ("talker.", "thinker.model.embed_tokens."),
    Stage.CODE2WAV: ("code2wav.",),
}


@pytest.fixture
def folder(checkpoint: Callable[..., Path], tmp_path: Path) -> Path:
    """A checkpoint that a test may damage."""
    return Path(shutil.copytree(checkpoint(0), tmp_path / "model"))


def _build(folder: Path, *stages: Stage, **settings: Any) -> None:
    pack = create(PackConfig("qwen3-omni", str(folder), **settings), lambda _: None)
    for stage in stages or tuple(Stage):
        pack.build(stage)


def _edit(file: Path, change: Callable[[dict], object]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_each_stage_reads_its_own_part_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = TensorReader.read

    def watched(self: TensorReader, tensor: str, *rest: Any) -> torch.Tensor:
        read.append(tensor)
        return original(self, tensor, *rest)

    monkeypatch.setattr(TensorReader, "read", watched)
    everything: set[str] = set()
    for stage, prefixes in PARTS.items():
        read.clear()
        _build(folder, stage)
        assert all(tensor.startswith(prefixes) for tensor in read) if prefixes else not read
        everything |= set(read)
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert everything == set(index), "nothing of the checkpoint is left out"


def test_a_talker_needs_no_shard_of_the_thinkers_experts(folder: Path) -> None:
    """The shards that hold no tensor of a stage need not be there."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    needed = {file for tensor, file in index.items() if tensor.startswith("code2wav.")}
    others = set(index.values()) - needed
    assert others
    for file in others:
        (folder / file).unlink()
    _build(folder, Stage.CODE2WAV)


def test_transformers_loads_it_too(folder: Path) -> None:
    model, report = Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder, output_loading_info=True)  # pyright: ignore[reportGeneralTypeIssues]
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert model.config.talker_config.num_code_groups == 16


def test_same_seed_same_weights(folder: Path, tmp_path: Path) -> None:
    again = make_tiny_checkpoint(tmp_path / "again", 0)
    other = make_tiny_checkpoint(tmp_path / "other", 1)
    for shard in folder.glob("*.safetensors"):
        assert shard.read_bytes() == (again / shard.name).read_bytes()
    assert any(
        shard.read_bytes() != (other / shard.name).read_bytes() for shard in folder.glob("*.safetensors")
    )


def test_a_single_file_checkpoint(folder: Path) -> None:
    tensors = {k: v for shard in folder.glob("*.safetensors") for k, v in load_file(shard).items()}
    for shard in folder.glob("*.safetensors*"):
        shard.unlink()
    save_file(tensors, folder / "model.safetensors")
    _build(folder)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_runs(folder: Path, dtype: str, harness: Callable[..., Any]) -> None:
    from omni_requests import kinds

    stages = harness(folder, dtype=dtype)
    for result in stages.run(kinds()[2:4]):
        assert result.error is None
        assert len(result.token_ids)
        assert len(result.samples)


def test_from_the_hub_only_the_shards_of_a_stage_are_fetched(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub is a folder here; what the pack asks it for is what counts."""
    cache, fetched = tmp_path / "cache", []
    cache.mkdir()

    def snapshot(hub_id: str, allow_patterns: list[str]) -> str:
        assert hub_id == "owner/tiny"
        for pattern in allow_patterns:
            for file in folder.glob(pattern):
                shutil.copy(file, cache)
        return str(cache)

    def one(hub_id: str, name: str) -> str:
        fetched.append(name)
        return str(shutil.copy(folder / name, cache))

    monkeypatch.setattr(checkpoint_module, "snapshot_download", snapshot)
    monkeypatch.setattr(checkpoint_module, "hf_hub_download", one)
    monkeypatch.chdir(tmp_path)
    pack = create(PackConfig("qwen3-omni", "owner/tiny"), lambda _: None)
    assert not list(cache.glob("*.safetensors"))
    pack.build(Stage.CODE2WAV)
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    needed = {file for tensor, file in index.items() if tensor.startswith("code2wav.")}
    assert set(fetched) == needed < set(index.values())


def test_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(hub_id: str, allow_patterns: list[str]) -> str:
        raise OSError("no route to host")

    monkeypatch.setattr(checkpoint_module, "snapshot_download", refuse)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFileError, match="owner/tiny: no such folder, and the hub does not give it"):
        create(PackConfig("qwen3-omni", "owner/tiny"), lambda _: None)


def _says(folder: Path, *words: str, **settings: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        _build(folder, **settings)
    message = caught.value.message
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_no_such_folder(tmp_path: Path) -> None:
    _says(tmp_path / "nowhere", "no such folder", "nowhere")


def test_no_model_given() -> None:
    with pytest.raises(ConfigError, match="--model is missing"):
        create(PackConfig("qwen3-omni"), lambda _: None)


def test_not_a_checkpoint_folder(tmp_path: Path) -> None:
    _says(tmp_path, "config.json: missing")


def test_a_foreign_checkpoint(folder: Path) -> None:
    _edit(folder / "config.json", lambda c: c.update(model_type="llama"))
    _says(folder, "config.json", "'llama'", "Qwen3-Omni")


@pytest.mark.parametrize("name", ["config.json", "chat_template.json", "preprocessor_config.json"])
def test_a_damaged_json_file(folder: Path, name: str) -> None:
    (folder / name).write_text("{ half")
    _says(folder, name)


@pytest.mark.parametrize(
    "path",
    ["talker_config.codec_eos_token_id", "thinker_config.text_config.num_hidden_layers", "tts_bos_token_id"],
)
def test_a_missing_field(folder: Path, path: str) -> None:
    *owners, last = path.split(".")

    def remove(config: dict) -> None:
        for owner in owners:
            config = config[owner]
        del config[last]

    _edit(folder / "config.json", remove)
    _says(folder, "config.json", path)


def test_a_field_of_the_wrong_type(folder: Path) -> None:
    _edit(folder / "config.json", lambda c: c.update(im_start_token_id="one"))
    _says(folder, "config.json", "im_start_token_id", "'one'")


def test_an_accept_layer_that_is_not_there(folder: Path) -> None:
    _edit(folder / "config.json", lambda c: c["talker_config"].update(accept_hidden_layer=99))
    _says(folder, "accept_hidden_layer", "99")


def test_a_missing_shard(folder: Path) -> None:
    shard = next(folder.glob("model-00001*.safetensors"))
    shard.unlink()
    _says(folder, shard.name, "missing", "download")


def test_a_damaged_shard(folder: Path) -> None:
    shard = next(folder.glob("model-00001*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:1000])
    _says(folder, shard.name, "download")


def test_a_missing_tensor(folder: Path) -> None:
    _edit(folder / "model.safetensors.index.json", lambda c: c["weight_map"].pop("talker.codec_head.weight"))
    _says(folder, "talker.codec_head.weight")


def test_config_and_weights_of_different_models(folder: Path) -> None:
    _edit(folder / "config.json", lambda c: c["code2wav_config"].update(hidden_size=64))
    _says(folder, "code2wav", "different models")


def test_no_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()
    _says(folder, "tokenizer.json", "published checkpoint")


def test_no_preprocessor_config(folder: Path) -> None:
    (folder / "preprocessor_config.json").unlink()
    _says(folder, "preprocessor_config.json: missing", "published checkpoint")


def test_unsupported_settings(folder: Path) -> None:
    _says(folder, "int8", "float32, bfloat16, float16", dtype="int8")
    _says(folder, "tpu:0", "cuda:N", devices={"thinker": "tpu:0"})
    _says(folder, "cuda:99", "layout", devices={"thinker": "cuda:99"})
    _says(folder, "--voice Bob", "aiden, chelsie, ethan", voice="Bob")
    _says(folder, "--kv-bytes 100", "one page", kv_bytes=100)


def test_errors_are_model_file_errors(folder: Path) -> None:
    with pytest.raises(ModelFileError) as caught:
        Checkpoint(str(folder / "deeper" / "still"))
    assert caught.value.exit_code == 2
    assert caught.value.param == "model"


def test_the_speakers_of_a_checkpoint_are_offered(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """Those that its talker takes. The workers tell what is wrong with a checkpoint, not the offer."""
    folder = checkpoint(0)
    offered = registry.offer(PackConfig("qwen3-omni", str(folder)))
    talker = TalkerFacts.of(Checkpoint(str(folder)))
    assert {name.lower() for name in offered.voices} == set(talker.speakers)
    assert "en" in offered.languages
    for wrong in (None, "[]", "{", '{"talker_config": {"speaker_id": 1}}'):
        if wrong is not None:
            (tmp_path / "config.json").write_text(wrong)
        assert registry.offer(PackConfig("qwen3-omni", str(tmp_path))).voices == ()
    assert registry.offer(PackConfig("qwen3-omni", "somebody/not-here")).voices == ()
