"""Read the text on a photograph, with three models in ONNX's format, through graphfw alone.

    pip install -e ".[examples,onnx]" rapidocr-onnxruntime
    python examples/ocr.py photograph.jpg --picture boxes.png

The models are PaddleOCR's, as the package `rapidocr-onnxruntime` ships them; of that package only
the files are used. One finds lines of text, one says which of them stand on their heads, one reads
them. Without a photograph the example draws a page for itself.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage
from scipy.spatial import ConvexHull

import graphfw as gf

Array = np.ndarray[Any, np.dtype[Any]]

LINES = (
    ("Describe first, run later.", (40, 40), 0),
    ("Wrong shapes are errors", (40, 110), 0),
    ("on your own line.", (60, 165), 4),
    ("Invoice No. 2026-1121", (330, 270), -6),
    ("This one stands on its head", (40, 330), 180),
)
"""The texts of the drawn page: their places, how far they are turned, in degrees."""


@dataclass(frozen=True)
class Line:
    """A line of text that was found.

    Attributes:
        text: What it says.
        score: How sure the reader is, from 0 to 1.
        corners: [4, 2]: x and y, from the top left clockwise, as the text is read.
    """

    text: str
    score: float
    corners: Array


class Reader:
    """The three models, each with a session."""

    def __init__(self, folder: Path) -> None:
        self.detect = Model(folder / "ch_PP-OCRv4_det_infer.onnx")
        self.direct = Model(folder / "ch_ppocr_mobile_v2.0_cls_infer.onnx")
        self.recognise = Model(folder / "ch_PP-OCRv4_rec_infer.onnx")
        letters = self.recognise.graph.metadata["character"].splitlines()
        self.letters = ["", *letters, " "]  # the first stands for no letter

    def read(self, image: Image.Image) -> list[Line]:
        """Return the lines of text on a picture, from top to bottom."""
        found = []
        for corners in self._lines(image):
            crop = _cut_out(image, corners)
            if self._is_upside_down(crop):
                crop, corners = crop.rotate(180), np.roll(corners, 2, axis=0)
            text, score = self._text(crop)
            if score > 0.5:
                found.append(Line(text, score, corners))
        return sorted(found, key=lambda line: float(line.corners[:, 1].min()))

    def _lines(self, image: Image.Image) -> list[Array]:
        """Return the corners of what the first model takes for lines of text."""
        scale = max(736 / min(image.size), 1.0)
        width, height = (max(round(side * scale / 32), 1) * 32 for side in image.size)
        (maps,) = self.detect(_pixels(image.resize((width, height))))
        chance = maps[0, 0]
        regions, count = ndimage.label(ndimage.binary_dilation(chance > 0.3, np.ones((2, 2))))
        back = np.array(image.size) / (width, height)
        found = []
        for number in range(1, count + 1):
            inside = regions == number
            if inside.sum() > 20 and chance[inside].mean() > 0.5:
                points = np.argwhere(inside)[:, ::-1].astype(float)
                found.append(_widened(_smallest_rectangle(points)) * back)
        return found

    def _is_upside_down(self, crop: Image.Image) -> bool:
        (scores,) = self.direct(_pixels(_fitted(crop, 48, 192)))
        return bool(scores[0, 1] > 0.9)

    def _text(self, crop: Image.Image) -> tuple[str, float]:
        width = max(320, round(48 * crop.width / crop.height / 8) * 8)
        (chances,) = self.recognise(_pixels(_fitted(crop, 48, width)))
        best = chances[0].argmax(axis=-1)
        # The same letter in neighbouring places is one; twice the letter has none in between.
        kept = (best != 0) & (best != np.concatenate([[0], best[:-1]]))
        scores = chances[0].max(axis=-1)[kept]
        text = "".join(self.letters[i] for i in best[kept])
        return text, float(scores.mean()) if len(scores) else 0.0


class Model:
    """A model's graph, and a session that computes its outputs for images of any size."""

    def __init__(self, path: Path) -> None:
        self.graph = gf.onnx.load(path)
        self._session = gf.Session(self.graph)

    def __call__(self, pixels: Array) -> list[Array]:
        outputs: list[Array] = self._session.run(list(self.graph.outputs), {"x": pixels})
        return outputs


def _pixels(image: Image.Image) -> Array:
    """Return a picture as the models want it: [1, 3, height, width], from -1 to 1."""
    colours = np.asarray(image.convert("RGB"), np.float32)[..., ::-1]  # blue comes first
    scaled: Array = np.ascontiguousarray(colours.transpose(2, 0, 1)[None] / 127.5 - 1)
    return scaled


def _fitted(crop: Image.Image, height: int, width: int) -> Image.Image:
    """Return a line at the given height, with grey behind its end."""
    own = min(max(round(crop.width * height / crop.height), 1), width)
    made = Image.new("RGB", (width, height), (128, 128, 128))
    made.paste(crop.resize((own, height), Image.Resampling.BICUBIC))
    return made


def _smallest_rectangle(points: Array) -> Array:
    """Return the corners of the smallest rectangle around points; it shares a side with their hull.

    H. Freeman and R. Shapira, "Determining the minimum-area encasing rectangle for an arbitrary
    closed curve", 1975.
    """
    points = np.concatenate([points, points + 0.5, points - 0.5])  # a pixel is no point
    hull = points[ConvexHull(points).vertices]
    sides = np.roll(hull, -1, axis=0) - hull
    best: tuple[float, Array] | None = None
    for angle in np.unique(np.round(np.arctan2(sides[:, 1], sides[:, 0]) % (np.pi / 2), 6)):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        rotated = hull @ turn
        low, high = rotated.min(axis=0), rotated.max(axis=0)
        area = float(np.prod(high - low))
        if best is None or area < best[0]:
            box = np.array([low, (high[0], low[1]), high, (low[0], high[1])])
            best = area, box @ turn.T
    assert best is not None
    return _from_top_left(best[1])


def _from_top_left(corners: Array) -> Array:
    """Return corners clockwise from the top left, the longer sides being above and below."""
    middle = corners.mean(axis=0)
    order = np.argsort(np.arctan2(*(corners - middle).T[::-1]))
    corners = corners[order]
    sides = np.linalg.norm(np.roll(corners, -1, axis=0) - corners, axis=1)
    if sides[0] < sides[1]:
        corners = np.roll(corners, -1, axis=0)
    start = int(corners[0, 0] > corners[2, 0]) * 2
    return np.roll(corners, -start, axis=0)


def _widened(corners: Array) -> Array:
    """Move the sides outwards: the model marks the kernel of a line, not all of it."""
    width, height = (np.linalg.norm(corners[i + 1] - corners[i]) for i in (0, 1))
    distance = 1.6 * width * height / (2 * (width + height))
    along = (corners[1] - corners[0]) / width * distance
    down = (corners[3] - corners[0]) / height * distance
    return corners + np.array([-along - down, along - down, along + down, down - along])


def _cut_out(image: Image.Image, corners: Array) -> Image.Image:
    """Return what is inside of four corners, laid straight."""
    width = max(round(float(np.linalg.norm(corners[1] - corners[0]))), 1)
    height = max(round(float(np.linalg.norm(corners[3] - corners[0]))), 1)
    quad = corners[[0, 3, 2, 1]].ravel().tolist()  # counterclockwise, as Pillow wants them
    return image.transform((width, height), Image.Transform.QUAD, quad, Image.Resampling.BICUBIC)


def drawn_page() -> Image.Image:
    """Return a page with the texts of `LINES`."""
    page = Image.new("RGB", (760, 420), (246, 243, 235))
    font = ImageFont.load_default(34)
    for text, corner, angle in LINES:
        left, top, right, bottom = font.getbbox(text)
        layer = Image.new("L", (int(right - left) + 20, int(bottom - top) + 20))
        ImageDraw.Draw(layer).text((10 - left, 10 - top), text, 255, font)
        layer = layer.rotate(angle, Image.Resampling.BICUBIC, expand=True)
        page.paste((40, 44, 60), corner, layer)
    return page


def with_boxes(image: Image.Image, lines: list[Line]) -> Image.Image:
    """Return the picture with a frame around each line, and beside it what was read."""
    made = Image.new("RGB", (2 * image.width, image.height), "white")
    made.paste(image)
    draw, font = ImageDraw.Draw(made), ImageFont.load_default(max(image.height // 24, 12))
    for line in lines:
        draw.polygon([tuple(c) for c in line.corners.tolist()], outline=(200, 60, 40), width=2)
        x, y = line.corners.min(axis=0).tolist()
        draw.text((image.width + x, y), f"{line.text}  {line.score:.2f}", "black", font)
    return made


def models() -> Path:
    """Return the folder of the models, in the package that ships them."""
    found = importlib.util.find_spec("rapidocr_onnxruntime")
    if found is None or not found.submodule_search_locations:
        sys.exit("the models are missing: pip install rapidocr-onnxruntime")
    return Path(found.submodule_search_locations[0]) / "models"


def main() -> None:
    """Read a picture and print its lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("image", nargs="?", type=Path, help="a photograph; else a page is drawn")
    parser.add_argument("--picture", type=Path, help="where to save the picture with boxes")
    options = parser.parse_args()
    image = Image.open(options.image).convert("RGB") if options.image else drawn_page()
    begin = time.perf_counter()
    reader = Reader(models())
    loaded = time.perf_counter()
    lines = reader.read(image)
    done = time.perf_counter()
    for line in lines:
        print(f"{line.score:.2f}  {line.text}")
    print(f"loaded in {loaded - begin:.2f} s, read in {done - loaded:.2f} s")
    if options.picture:
        with_boxes(image, lines).save(options.picture)


if __name__ == "__main__":
    main()
