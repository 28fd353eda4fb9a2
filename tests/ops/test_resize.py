"""Resizing against PyTorch and ONNX's reference; sizes known late; errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, AxisError, DTypeError, ShapeError
from tests.support.peers import check_like_torch, torch

interpolate = torch.nn.functional.interpolate
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}

many = pytest.mark.parametrize("case", range(6))


@many
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_nearest_like_torch(rank: int, case: int, rng: np.random.Generator) -> None:
    sizes, new = rng.integers(1, 7, (2, rank)).tolist()
    x = rng.normal(size=(case % 2 + 1, 2, *sizes))
    how: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    check_like_torch(
        lambda x: gf.resize(x, new, nearest_mode="floor", **how),
        lambda x: interpolate(x, new, mode="nearest"),
        x,
    )
    check_like_torch(
        lambda x: gf.resize(x, new, mode="nearest", nearest_mode="round_prefer_ceil"),
        lambda x: interpolate(x, new, mode="nearest-exact"),
        x,
    )


@pytest.mark.exhaustive
@many
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize(
    ("mode", "rank"), [("linear", 1), ("linear", 2), ("linear", 3), ("cubic", 2)]
)
def test_weights_like_torch(
    mode: str, rank: int, corners: bool, case: int, rng: np.random.Generator
) -> None:
    sizes, new = rng.integers(1, 7, (2, rank)).tolist()
    where = "align_corners" if corners else "half_pixel"
    theirs = LINEAR[rank] if mode == "linear" else "bicubic"
    check_like_torch(
        lambda x: gf.resize(x, new, mode=mode, coordinate_transformation_mode=where),
        lambda x: interpolate(x, new, mode=theirs, align_corners=corners),
        rng.normal(size=(case % 2 + 1, 2, *sizes)),
    )


@many
@pytest.mark.parametrize(("mode", "a"), [("linear", 0.0), ("cubic", -0.5)])
def test_antialias(mode: str, a: float, case: int, rng: np.random.Generator) -> None:
    sizes, new = rng.integers(2, 12, (2, 2)).tolist()
    check_like_torch(
        lambda x: gf.resize(
            x, new, mode=mode, antialias=True, exclude_outside=True, cubic_coeff_a=a
        ),
        lambda x: interpolate(x, new, mode=f"bi{mode}", antialias=True),
        rng.normal(size=(1, 2, *sizes)),
    )


@pytest.mark.parametrize("scale", [0.5, 0.7, 1.2, 2.0, 3.3])
def test_scales(scale: float, rng: np.random.Generator) -> None:
    x = rng.normal(size=(1, 2, 7))
    check_like_torch(
        lambda x: gf.resize(x, scales=scale),
        lambda x: interpolate(x, scale_factor=scale, mode="linear"),
        x,
    )


MODES = ("nearest", "linear", "cubic")
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)


@pytest.mark.exhaustive
@many
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", MODES)
def test_like_onnx(mode: str, coordinates: str, case: int, rng: np.random.Generator) -> None:
    onnx = pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    helper = onnx.helper
    sizes, new = rng.integers(1, 7, 2).tolist(), rng.integers(2, 9, 2).tolist()
    scales = rng.choice([0.5, 1.0, 1.5, 2.0], 2).tolist()
    x = rng.normal(size=(1, *sizes)).astype(np.float32)
    roi = [(float(a), float(b)) for a, b in rng.uniform((-0.2, 0.6), (0.4, 1.3), (2, 2))]
    # There sizes of scaled dims aren't whole, and for one element other formulas are used.
    exact = [float(s * k).is_integer() and s * k > 1 for s, k in zip(sizes, scales, strict=True)]
    scaled = case % 2 == 1 and all(exact)
    how: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": coordinates,
        "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")[case % 4],
        "exclude_outside": mode != "nearest" and case % 3 == 0,
        "antialias": mode != "nearest" and case % 3 == 1,
        "cubic_coeff_a": -0.6,
        "extrapolation_value": 7.0,
        "axes": [1, 2],
    }
    if coordinates == "half_pixel_symmetric":
        how["nearest_mode"] = "round_prefer_floor"  # elsewhere roundings decide there
    names = ["x", "roi", "scales"] + ([] if scaled else ["sizes"])
    node = helper.make_node(
        "Resize", names, ["y"], **{k: int(v) if v is True else v for k, v in how.items()}
    )
    kinds = {"x": 1, "roi": 1, "scales": 1, "sizes": 7}
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info(name, kinds[name], None) for name in names],
        [helper.make_tensor_value_info("y", 1, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    crops = coordinates == "tf_crop_and_resize"
    feeds = {
        "x": x,
        "roi": np.array(roi if crops else [], np.float32).T.reshape(-1),
        "scales": np.array(scales if scaled else [], np.float32),
    }
    feeds |= {} if scaled else {"sizes": np.array(new)}
    (expected,) = reference.ReferenceEvaluator(model).run(None, feeds)
    y = gf.resize(
        x,
        None if scaled else new,
        scales=scales if scaled else None,
        roi=roi if crops else None,
        **how,
    )
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("mode", "coordinates"),
    [
        *[("linear", coordinates) for coordinates in COORDINATES],
        ("nearest", "asymmetric"),
        ("cubic", "half_pixel"),
    ],
)
def test_sizes_known_late(mode: str, coordinates: str, rng: np.random.Generator) -> None:
    how: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    with gf.Graph() as graph:
        x = gf.placeholder(("n", 1, "h", "w"), name="x")
        doubled = gf.resize(x, scales=(2, 1.5), roi=[(0, 0.7), (0.1, 1.2)], **how)
        fixed = gf.resize(x, (4, 5), **how)
        assert str(doubled.shape) == "(n, 1, 2*h, w + w//2)"
        slope = gf.grad(gf.sum(fixed * fixed), x)
    with gf.Session(graph) as session:
        for sizes in ((3, 4), (1, 2)):
            array = rng.normal(size=(2, 1, *sizes)).astype(np.float32)
            values = session.run([doubled, fixed, slope], {x: array})
            leaf = gf.asarray(array)
            known = gf.resize(leaf, (4, 5), **how)
            expected = [
                gf.resize(leaf, scales=(2, 1.5), roi=[(0, 0.7), (0.1, 1.2)], **how),
                known,
                gf.grad(gf.sum(known * known), leaf),
            ]
            for value, wanted in zip(values, expected, strict=True):
                np.testing.assert_allclose(value, wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_what_stays_is_not_computed() -> None:
    x = gf.asarray([[[1.0, 2.0]]])
    assert gf.resize(x, 2) is x
    assert gf.resize(x, scales=1.0, mode="cubic") is x


def test_dtypes(rng: np.random.Generator) -> None:
    numbers = rng.integers(0, 9, (1, 1, 4)).astype(np.uint8)
    assert gf.resize(numbers, 8, mode="nearest").dtype is gf.uint8
    assert gf.resize(numbers > 4, 8, mode="nearest").dtype is gf.bool
    assert gf.resize(numbers, 8).dtype is gf.float32
    small = gf.astype(rng.normal(size=(1, 1, 9)), gf.bfloat16)
    y = gf.resize(small, 20, mode="cubic")
    exact = gf.astype(gf.resize(gf.astype(small, gf.float32), 20, mode="cubic"), gf.bfloat16)
    assert y.dtype is gf.bfloat16
    np.testing.assert_array_equal(y.numpy(), exact.numpy())


def test_vmap(rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 1, 2, 4))
    together = gf.vmap(lambda x: gf.resize(x, 7, mode="cubic"))(x).numpy()
    np.testing.assert_allclose(together[1], gf.resize(x[1], 7, mode="cubic").numpy(), rtol=1e-12)


X = np.ones((1, 1, 4, 4))


@pytest.mark.parametrize(
    ("call", "error", "text", "fix"),
    [
        (lambda: gf.resize(X), ArgumentError, "neither sizes nor scales are given", "one of them"),
        (lambda: gf.resize(X[0, 0], 3), ShapeError, "x has 2 dims", "[N, C, *S]"),
        (lambda: gf.resize(X, (3, 4), axes=1), ArgumentError, "2 sizes for 1 axis", "each axis"),
        (lambda: gf.resize(X, 3, axes=7), AxisError, "axis 7 is out of range", "-4 to 3"),
        (lambda: gf.resize(X, 0), ShapeError, "dim 2 has 4 elements and is to have 0", "1 or more"),
        (lambda: gf.resize(X[:, :, :0], 2), ShapeError, "dim 2 has 0 elements", "1 or more"),
        (lambda: gf.resize(X, scales=-1.0), ArgumentError, "-1.0 must be a number above 0", "1.0"),
        (lambda: gf.resize(X, scales=np.inf), ArgumentError, "scale inf must be a number", "1.0"),
        (lambda: gf.resize(X, scales=["2"]), ArgumentError, "scale '2' must be a number", "1.0"),
        (
            lambda: gf.resize(X, 3, mode="area"),
            ArgumentError,
            "mode='area' is none of \"near",
            "use one of",
        ),
        (
            lambda: gf.resize(X, 3, mode="bicubic"),
            ArgumentError,
            "mode='bicubic' is none of",
            'use mode="cubic"',
        ),
        (lambda: gf.resize(X, 3, mode=["linear"]), ArgumentError, "mode=['linear']", '"linear"'),
        (lambda: gf.resize(X + 1j, 3), DTypeError, "resize: wants floating-point", "gf.abs"),
        (
            lambda: gf.resize(X, 3, coordinate_transformation_mode="corners"),
            ArgumentError,
            "coordinate_transformation_mode='corners' is none of",
            "align_corners",
        ),
    ],
)
def test_errors(call: Any, error: type[Exception], text: str, fix: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
    assert fix in caught.value.fix  # type: ignore[attr-defined]  # of a graphfw error


def test_antialias_of_sizes_known_late() -> None:
    with gf.Graph():
        x = gf.placeholder(("n", 1, "w"), name="x")
        assert str(gf.resize(x, scales=0.5, antialias=True).shape) == "(n, 1, w//2)"
        with pytest.raises(ShapeError, match="how far antialias reaches in dim 2") as caught:
            gf.resize(x, 4, antialias=True)
        assert "give scales" in caught.value.fix
