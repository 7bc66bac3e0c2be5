"""The eyes on pictures: what is on a photo, the text on a sign, and nothing where there is nothing."""

import resource
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from voice_app.errors import ModelFileError
from voice_app.messages import Embeddings, ImagePatches, Media, TurnId
from voice_app.models.local import assets, pictures
from voice_app.models.local.efficientnet import converted
from voice_app.models.local.image_encoder import ImageEncoder
from voice_app.models.local.labels import Labels
from voice_app.models.local.ocr import Ocr
from voice_app.models.local.onnx_session import onnx_session
from voice_app.schedulers.base import StageInput

pytestmark = pytest.mark.models
PICTURES = Path(__file__).parent.parent / "data" / "pictures"


@pytest.fixture(scope="module")
def labels() -> Labels:
    return Labels(onnx_session(converted(assets.ensure("labels"), assets.silent), 1))


@pytest.fixture(scope="module")
def ocr() -> Ocr:
    return Ocr(assets.ensure("ocr").parent)


def photo(name: str) -> np.ndarray:
    return pictures.decode((PICTURES / name).read_bytes())


def sign(text: str, size: int = 60, degrees: float = 0.0, shape: tuple[int, int] = (640, 480)) -> np.ndarray:
    image = Image.new("RGB", shape, (30, 90, 40))
    font = ImageFont.load_default(size)
    ImageDraw.Draw(image).multiline_text((80, 150), text, font=font, fill="white")
    turned = image.rotate(degrees, Image.Resampling.BICUBIC, fillcolor=(30, 90, 40))
    return np.asarray(turned, np.float32) / 255.0


@pytest.mark.parametrize(("name", "expected"), [("cat.jpg", "cat"), ("coffee.jpg", "espresso")])
def test_photos_are_named(labels: Labels, name: str, expected: str) -> None:
    assert expected in labels.name(photo(name))


def test_the_network_is_the_published_one(labels: Labels) -> None:
    """Its scores on two photos are a probability each, with related classes in the first places."""
    scores = labels.scores(photo("cat.jpg"))
    assert scores.sum() == pytest.approx(1.0, abs=1e-4)
    tabby, tiger_cat, egyptian_cat = 281, 282, 285  # ImageNet's numbers
    assert set(scores.argsort()[-3:].tolist()) == {tabby, tiger_cat, egyptian_cat}
    assert labels.scores(photo("coffee.jpg")).argmax() == 967  # espresso


def test_a_full_disk_is_named_and_nothing_is_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = assets.ensure("labels")
    monkeypatch.setenv("VOICE_APP_HOME", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(ModelFileError, match="cannot be written"):
            converted(weights, assets.silent)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list((tmp_path / "local").iterdir())


def test_a_wider_name_where_no_class_is_sure(labels: Labels) -> None:
    scores = np.zeros(1000, np.float32)
    scores[[281, 282, 283, 284]] = 0.2
    assert labels.choose(scores) == "cat"
    assert labels.choose(scores / 3) == ""


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_a_blank_picture_has_no_name(labels: Labels, ocr: Ocr, value: float) -> None:
    blank = np.full((480, 640, 3), value, np.float32)
    assert labels.name(blank) == ""
    assert ocr.read(blank) == ""


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("OPEN", {}),
        ("FRESH BREAD", {}),
        ("Exit 24", {"size": 90, "degrees": 8}),
        ("TURN LEFT", {"degrees": -30}),
        ("Main Street\nNo parking", {"size": 40}),
        ("fine print", {"size": 18}),
        ("STOP", {"size": 120, "shape": (960, 720)}),
    ],
)
def test_signs_are_read(ocr: Ocr, text: str, how: dict) -> None:
    assert ocr.read(sign(text, **how)) == text.replace("\n", " ")


def test_photos_without_text(ocr: Ocr) -> None:
    assert ocr.read(photo("cat.jpg")) == ""
    assert ocr.read(photo("coffee.jpg")) == ""


class Letters:
    """A vocabulary of code points, two wide."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def embed(self, ids) -> np.ndarray:
        return np.repeat(np.array(ids, np.float32)[:, None], 2, axis=1)


def look(encoder: ImageEncoder, picture: np.ndarray, key: str) -> Embeddings:
    patches = ImagePatches(Media(key, "image"), picture, (1, *picture.shape[:2]))
    [[embeddings]] = encoder.run([StageInput(TurnId("s", "t"), patches, True)])  # pyright: ignore
    assert isinstance(embeddings, Embeddings)
    return embeddings


def test_the_stage_embeds_what_the_prompt_shows(labels: Labels, ocr: Ocr) -> None:
    encoder = ImageEncoder(labels.name, ocr.read, Letters())
    encoder.warm_up()
    seen = look(encoder, photo("coffee.jpg"), "a")
    assert seen.text == "[camera: espresso]\n"
    assert list(seen.ids) == Letters().encode(seen.text)
    assert np.array_equal(seen.rows, Letters().embed(seen.ids))
    assert "text: OPEN]" in look(encoder, sign("OPEN"), "b").text


def test_a_picture_is_looked_at_once(labels: Labels) -> None:
    looked: list[int] = []
    encoder = ImageEncoder(labels.name, lambda picture: looked.append(1) or "", Letters())
    first = look(encoder, photo("cat.jpg"), "a")
    assert look(encoder, photo("cat.jpg"), "a").text == first.text
    assert len(looked) == 1
