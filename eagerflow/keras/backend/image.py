"""``keras.ops.image`` on eagerflow: colours, sizes, warps and filters of images."""

from keras.src.backend import standardize_data_format
from keras.src.backend.common import is_float_dtype
from keras.src.random.seed_generator import draw_seed

import eagerflow as ef
from eagerflow.keras.backend import random
from eagerflow.keras.backend.operands import joined
from eagerflow.keras.backend.tensors import cast, convert_to_tensor

__all__ = [
    "affine_transform",
    "compute_homography_matrix",
    "elastic_transform",
    "gaussian_blur",
    "hsv_to_rgb",
    "map_coordinates",
    "perspective_transform",
    "resize",
    "rgb_to_grayscale",
    "rgb_to_hsv",
    "scale_and_translate",
    "sobel_edges",
]

RESIZE_INTERPOLATIONS = ("bilinear", "nearest", "lanczos3", "lanczos5", "bicubic")
AFFINE_TRANSFORM_INTERPOLATIONS = {"nearest": 0, "bilinear": 1}
AFFINE_TRANSFORM_FILL_MODES = {"constant", "nearest", "wrap", "mirror", "reflect"}
MAP_COORDINATES_FILL_MODES = AFFINE_TRANSFORM_FILL_MODES
SCALE_AND_TRANSLATE_METHODS = {
    "linear",
    "bilinear",
    "trilinear",
    "cubic",
    "bicubic",
    "tricubic",
    "lanczos3",
    "lanczos5",
}


def _check_rank(images):
    if images.ndim not in (3, 4):
        raise ValueError(
            "Invalid images rank: expected rank 3 (single image) or rank 4 (batch of images). "
            f"Received input with shape: images.shape={images.shape}"
        )


def _check_choice(name, value, choices):
    if value not in choices:
        raise ValueError(
            f"Invalid value for argument `{name}`. Expected of one {choices}. "
            f"Received: {name}={value}"
        )


def _batched(function, images, data_format):
    """``function`` applied to a channels-last batch of images, whatever their format."""
    x = convert_to_tensor(images)
    _check_rank(x)
    is_first = standardize_data_format(data_format) == "channels_first"
    x = ef.moveaxis(x, -3, -1) if is_first else x
    found = function(ef.expand_dims(x, axis=0) if x.ndim == 3 else x)
    found = ef.squeeze(found, axis=0) if x.ndim == 3 else found
    return ef.moveaxis(found, -1, -3) if is_first else found


# Colours ------------------------------------------------------------------------------------------


def rgb_to_grayscale(images, data_format=None):
    x = convert_to_tensor(images)
    _check_rank(x)
    channels = x.shape[-1 if standardize_data_format(data_format) == "channels_last" else -3]
    if channels not in (1, 3):
        raise ValueError(
            "Invalid channel size: expected 3 (RGB) or 1 (Grayscale). "
            f"Received input with shape: images.shape={x.shape}"
        )
    gray = _batched(ef.rgb_to_grayscale, cast(x, joined(x.dtype.name, float)), data_format)
    return cast(gray, x.dtype)


def rgb_to_hsv(images, data_format=None):
    return _batched(ef.rgb_to_hsv, _floats(images), data_format)


def hsv_to_rgb(images, data_format=None):
    return _batched(ef.hsv_to_rgb, _floats(images), data_format)


def _floats(images):
    x = convert_to_tensor(images)
    _check_rank(x)
    if not is_float_dtype(x.dtype):
        raise ValueError(
            f"Invalid images dtype: expected float dtype. Received: images.dtype={x.dtype.name}"
        )
    return x


# Sizes --------------------------------------------------------------------------------------------


def resize(
    images,
    size,
    interpolation="bilinear",
    antialias=False,
    crop_to_aspect_ratio=False,
    pad_to_aspect_ratio=False,
    fill_mode="constant",
    fill_value=0.0,
    data_format=None,
):
    _check_choice("interpolation", interpolation, RESIZE_INTERPOLATIONS)
    if fill_mode != "constant":
        raise ValueError(
            "Invalid value for argument `fill_mode`. Only `'constant'` is supported. "
            f"Received: fill_mode={fill_mode}"
        )
    if pad_to_aspect_ratio and crop_to_aspect_ratio:
        raise ValueError(
            "Only one of `pad_to_aspect_ratio` & `crop_to_aspect_ratio` can be `True`."
        )
    if len(size) != 2:
        raise ValueError(
            "Argument `size` must be a tuple of two elements (height, width). "
            f"Received: size={size}"
        )
    size = tuple(int(n) for n in size)

    def resized(x):
        if crop_to_aspect_ratio:
            x = _cropped(x, size)
        elif pad_to_aspect_ratio:
            x = _widened(x, size, fill_value)
        wide = cast(x, joined(x.dtype.name, float))
        found = ef.resize(wide, size, method=interpolation, antialias=antialias)
        whole = "int" in x.dtype.name
        return cast(_rounded(found, x.dtype) if whole else found, x.dtype)

    return _batched(resized, images, data_format)


def _rounded(x, dtype):
    limits = ef.iinfo(dtype)
    return ef.clip(ef.round(x), limits.min, limits.max)


def _cropped(x, size):
    """The center of the images, cropped to the ratio of the sizes."""
    height, width = x.shape[1:3]
    rows = max(min(height, int(float(width * size[0]) / size[1])), 1)
    columns = max(min(width, int(float(height * size[1]) / size[0])), 1)
    top, left = int(float(height - rows) / 2), int(float(width - columns) / 2)
    return x[:, top : top + rows, left : left + columns]


def _widened(x, size, fill_value):
    """The images in the center of a background with the ratio of the sizes."""
    height, width = x.shape[1:3]
    rows = max(height, int(float(width * size[0]) / size[1]))
    columns = max(width, int(float(height * size[1]) / size[0]))
    top, left = int(float(rows - height) / 2), int(float(columns - width) / 2)
    if top > 0:
        around = [(0, 0), (top, top), (0, 0), (0, 0)]
    else:
        around = [(0, 0), (0, 0), (left, left), (0, 0)]
    return ef.pad(x, around, constant_values=fill_value)


def scale_and_translate(
    images,
    output_shape,
    scale,
    translation,
    spatial_dims,
    method,
    antialias=True,
):
    _check_choice("method", method, SCALE_AND_TRANSLATE_METHODS)
    return ef.scale_and_translate(
        convert_to_tensor(images),
        cast(scale, "float32"),
        cast(translation, "float32"),
        tuple(output_shape),
        tuple(spatial_dims),
        method=method,
        antialias=antialias,
    )


# Warps --------------------------------------------------------------------------------------------

_MODES = {"constant": "grid-constant", "wrap": "grid-wrap"}


def map_coordinates(inputs, coordinates, order, fill_mode="constant", fill_value=0.0):
    x, places = convert_to_tensor(inputs), convert_to_tensor(coordinates)
    if places.shape[0] != x.ndim:
        raise ValueError(
            "First dim of `coordinates` must be the same as the rank of `inputs`. "
            f"Received inputs with shape: {x.shape} and coordinate leading dim of "
            f"{places.shape[0]}"
        )
    if places.ndim < 2:
        raise ValueError(
            "Invalid coordinates rank: expected at least rank 2. "
            f"Received input with shape: {places.shape}"
        )
    if fill_mode not in MAP_COORDINATES_FILL_MODES:
        raise ValueError(
            "Invalid value for argument `fill_mode`. Expected one of "
            f"{set(MAP_COORDINATES_FILL_MODES)}. Received: fill_mode={fill_mode}"
        )
    if order not in range(2):
        raise ValueError(
            f"Invalid value for argument `order`. Expected one of [0, 1]. Received: order={order}"
        )
    return _sampled(x, places, order, fill_mode, fill_value)


def _sampled(x, places, order, fill_mode, fill_value):
    wide = cast(x, joined(x.dtype.name, float))
    places = cast(places, joined(places.dtype.name, "float32"))
    mode = _MODES.get(fill_mode, fill_mode)
    found = ef.map_coordinates(wide, places, order=order, mode=mode, cval=fill_value)
    return cast(ef.round(found) if "int" in x.dtype.name else found, x.dtype)


def _warped(images, places, interpolation, fill_mode, fill_value):
    """Images (batch, height, width, channels) sampled at positions (batch, 2, height, width)."""
    order = AFFINE_TRANSFORM_INTERPOLATIONS[interpolation]

    def one(image, where):
        planes = ef.moveaxis(image, -1, 0)
        found = ef.vmap(lambda x: _sampled(x, where, order, fill_mode, fill_value))(planes)
        return ef.moveaxis(found, 0, -1)

    return ef.vmap(one)(images, places)


def _grid(height, width, dtype="float32"):
    """The row and the column of each point, as (height, 1) and (1, width)."""
    rows, columns = ef.arange(height, dtype=dtype), ef.arange(width, dtype=dtype)
    return ef.expand_dims(rows, axis=1), ef.expand_dims(columns, axis=0)


def affine_transform(
    images,
    transform,
    interpolation="bilinear",
    fill_mode="constant",
    fill_value=0,
    data_format=None,
):
    _check_choice("interpolation", interpolation, set(AFFINE_TRANSFORM_INTERPOLATIONS))
    _check_choice("fill_mode", fill_mode, AFFINE_TRANSFORM_FILL_MODES)
    images, transform = convert_to_tensor(images), convert_to_tensor(transform)
    _check_rank(images)
    if transform.ndim not in (1, 2):
        raise ValueError(
            "Invalid transform rank: expected rank 1 (single transform) or rank 2 (batch of "
            f"transforms). Received input with shape: transform.shape={transform.shape}"
        )

    return _batched(
        lambda x: ef.affine_transform(
            x,
            cast(transform, joined(transform.dtype.name, "float32")),
            order=AFFINE_TRANSFORM_INTERPOLATIONS[interpolation],
            mode=_MODES.get(fill_mode, fill_mode),
            cval=fill_value,
        ),
        images,
        data_format,
    )


def perspective_transform(
    images,
    start_points,
    end_points,
    interpolation="bilinear",
    fill_value=0,
    data_format=None,
):
    _check_choice("interpolation", interpolation, set(AFFINE_TRANSFORM_INTERPOLATIONS))
    images = convert_to_tensor(images)
    _check_rank(images)
    points = [convert_to_tensor(p, "float32") for p in (start_points, end_points)]
    for name, p in zip(("start_points", "end_points"), points, strict=True):
        if p.shape[-2:] != (4, 2) or p.ndim not in (2, 3):
            raise ValueError(
                f"Invalid {name} shape: expected (4,2) for a single image or (N,4,2) for a "
                f"batch. Received shape: {p.shape}"
            )
    if points[0].shape != points[1].shape:
        raise ValueError(
            "start_points and end_points must have the same shape. Received "
            f"start_points.shape={points[0].shape}, end_points.shape={points[1].shape}"
        )
    order = AFFINE_TRANSFORM_INTERPOLATIONS[interpolation]
    return _batched(
        lambda x: ef.perspective_transform(x, *points, order=order, cval=fill_value),  # type: ignore[misc]
        images,
        data_format,
    )


def compute_homography_matrix(start_points, end_points):
    return ef.homography(convert_to_tensor(start_points), convert_to_tensor(end_points))


def elastic_transform(
    images,
    alpha=20.0,
    sigma=5.0,
    interpolation="bilinear",
    fill_mode="reflect",
    fill_value=0.0,
    seed=None,
    data_format=None,
):
    _check_choice("interpolation", interpolation, set(AFFINE_TRANSFORM_INTERPOLATIONS))
    _check_choice("fill_mode", fill_mode, AFFINE_TRANSFORM_FILL_MODES)
    size = int(6 * float(sigma)) | 1
    seed = draw_seed(seed)

    def warped(x):
        count, height, width = x.shape[:3]
        dtype = joined(x.dtype.name, float)
        noise = random.normal((2, count, height, width, 1), stddev=sigma, dtype=dtype, seed=seed)
        down, across = (
            gaussian_blur(part, (size, size), (sigma, sigma), "channels_last")[..., 0]
            for part in noise
        )
        rows, columns = _grid(height, width, dtype)
        scale = convert_to_tensor(alpha, dtype)
        places = ef.stack([rows + scale * down, columns + scale * across], axis=1)
        return _warped(x, places, interpolation, fill_mode, fill_value)

    return _batched(warped, images, data_format)


# Filters ------------------------------------------------------------------------------------------


def gaussian_blur(images, kernel_size=(3, 3), sigma=(1.0, 1.0), data_format=None):
    # Keras has the column's coordinate first, as (x, y).
    def blurred(x):
        sigmas = ef.flip(convert_to_tensor(sigma, x.dtype), axis=0)
        return ef.gaussian_blur(x, sigmas, kernel_size=tuple(kernel_size)[::-1])

    return _batched(blurred, images, data_format)


def sobel_edges(images, data_format=None):
    x = convert_to_tensor(images)
    if data_format != "channels_first":
        return ef.sobel_edges(x)
    return ef.moveaxis(ef.sobel_edges(ef.moveaxis(x, 1, -1)), -2, 1)
