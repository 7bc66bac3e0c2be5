"""The eyes without models: decoding pictures, regions of text, reading order."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import ExifTags, Image

from voice_app.errors import InputError
from voice_app.models.local import pictures
from voice_app.models.local.ocr import reading_order
from voice_app.models.local.text_regions import TextBox, regions, text_boxes


def encoded(image: Image.Image, format: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def halves(width: int = 80, height: int = 40) -> Image.Image:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", (width, height), (255, 0, 0))
    image.paste((0, 0, 255), (width // 2, 0, width, height))
    return image


@pytest.mark.parametrize(("format", "error"), [("PNG", 0), ("WEBP", 0.1), ("JPEG", 0.1)])
def test_decodes_each_format(format: str, error: float) -> None:
    picture = pictures.decode(encoded(halves(), format))
    assert picture.shape == (40, 80, 3)
    assert picture.dtype == np.float32
    assert np.abs(picture[20, 10] - [1, 0, 0]).max() <= error
    assert np.abs(picture[20, 70] - [0, 0, 1]).max() <= error


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA", "CMYK", "I;16"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    image = (
        Image.new("I;16", (32, 32), 65535)
        if mode == "I;16"
        else Image.new("RGB", (32, 32), "white").convert(mode)
    )
    picture = pictures.decode(encoded(image, "JPEG" if mode == "CMYK" else "PNG"))
    assert picture.shape == (32, 32, 3)
    assert picture.min() > 0.95


def test_what_is_transparent_is_white() -> None:
    picture = pictures.decode(encoded(Image.new("RGBA", (32, 32), (0, 0, 0, 0))))
    assert picture.min() == 1.0


def test_a_turned_photo_is_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held a quarter turn clockwise
    picture = pictures.decode(encoded(halves(), "JPEG", exif=exif))
    assert picture.shape == (80, 40, 3)
    assert picture[10, 20, 0] > 0.9, "what was left is up"


def damaged_exif(format: str, seed: int) -> bytes:
    """A good picture whose EXIF block has a few wrong bytes in its directory."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    exif[ExifTags.Base.Make] = "camera"
    exif[ExifTags.Base.XResolution] = 72.0
    block = bytearray(exif.tobytes())
    random = np.random.default_rng(seed)
    for place in random.integers(8, len(block), random.integers(1, 6)):
        block[place] = random.integers(256)
    return encoded(halves(), format, exif=bytes(block))


@pytest.mark.parametrize("format", ["JPEG", "WEBP", "PNG"])
@pytest.mark.filterwarnings("ignore")
def test_damaged_exif_data_is_no_reason_to_refuse_a_picture(format: str) -> None:
    shapes = {pictures.decode(damaged_exif(format, seed)).shape for seed in range(300)}
    assert shapes <= {(40, 80, 3), (80, 40, 3)}


def test_a_large_picture_is_made_smaller() -> None:
    for format in ("JPEG", "PNG"):
        assert pictures.decode(encoded(halves(3000, 1500), format)).shape == (480, 960, 3)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no picture",
        encoded(halves())[:60],
        encoded(halves(800, 800), "JPEG", quality=100)[:2000],
        encoded(halves(), "GIF"),
    ],
    ids=["nothing", "text", "half a header", "half a picture", "another format"],
)
def test_what_is_no_picture(data: bytes) -> None:
    with pytest.raises(InputError, match=r"image: not a readable JPEG, PNG or WebP .*save it again") as error:
        pictures.decode(data)
    assert "\n" not in error.value.message
    assert error.value.param == "image"


def test_pictures_too_large_to_open_are_refused_unopened() -> None:
    with pytest.raises(InputError, match="10000 x 10000 pixels; make it smaller"):
        pictures.decode(encoded(Image.new("1", (10_000, 10_000))))
    with pytest.raises(InputError, match="30 MB; at most 20 MB"):
        pictures.decode(bytes(30_000_000))


def flood(mask: np.ndarray) -> list[set[tuple[int, int]]]:
    """8-connected regions the slow way."""
    left = {(int(y), int(x)) for y, x in zip(*np.nonzero(mask), strict=True)}
    found = []
    while left:
        region, edge = set(), [next(iter(left))]
        while edge:
            y, x = edge.pop()
            if (y, x) in left:
                left.remove((y, x))
                region.add((y, x))
                edge += [(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
        found.append(region)
    return found


@given(arrays.arrays(bool, st.tuples(st.integers(1, 12), st.integers(1, 12))))
@settings(max_examples=200)
def test_regions_are_those_of_a_flood_fill(mask: np.ndarray) -> None:
    labels, count = regions(mask)
    found = [
        {(int(y), int(x)) for y, x in zip(*np.nonzero(labels == n), strict=True)} for n in range(1, count + 1)
    ]
    assert sorted(map(sorted, found)) == sorted(map(sorted, flood(mask)))


def test_a_box_surrounds_its_line_by_the_published_margin() -> None:
    probability = np.zeros((100, 200), np.float32)
    probability[40:60, 50:150] = 0.9
    [box] = text_boxes(probability, threshold=0.3, sure=0.5, grow=1.6)
    margin = 100 * 20 * 1.6 / (2 * (100 + 20))
    assert (box.x, box.y) == pytest.approx((100, 50))
    assert (box.width, box.height) == pytest.approx((100 + 2 * margin, 20 + 2 * margin))
    assert box.angle == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("degrees", [-40, -15, 15, 40])
def test_a_slanted_line_keeps_its_direction(degrees: float) -> None:
    image = Image.new("F", (300, 300))
    image.paste(0.9, (60, 140, 240, 160))
    # PIL turns against the clock.
    probability = np.asarray(image.rotate(-degrees, Image.Resampling.BILINEAR))
    [box] = text_boxes(probability, threshold=0.3, sure=0.5, grow=0.0)
    assert np.degrees(box.angle) == pytest.approx(degrees, abs=1)
    assert (box.width, box.height) == pytest.approx((180, 20), abs=3)


def test_specks_and_doubtful_regions_are_no_text() -> None:
    probability = np.zeros((50, 50), np.float32)
    probability[10, 10] = 1.0
    probability[30:40, 10:40] = 0.4
    assert text_boxes(probability, threshold=0.3, sure=0.5, grow=1.6) == []


def test_lines_are_read_from_the_top_words_from_the_left() -> None:
    boxes = {
        "second": TextBox(300, 52, 100, 30, 0),
        "first": TextBox(100, 48, 100, 30, 0),
        "third": TextBox(100, 100, 100, 30, 0),
    }
    assert [name for box in reading_order(list(boxes.values())) for name, b in boxes.items() if b is box] == [
        "first",
        "second",
        "third",
    ]
