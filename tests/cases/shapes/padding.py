"""Cases of eagerflow/ops/shapes/padding.py."""

import numpy as np

from eagerflow.errors import AxisError, DTypeError, ShapeError
from eagerflow.ops.shapes.padding import pad_widths
from tests.cases.samples import Cases, ErrorSample, Sample, shaped, values

_pad_samples = shaped(
    "pad_width mode",
    ((3,), 2, "constant"),
    ((3,), (1, 2), "constant"),
    ((2, 3), ((0, 1), (2, 0)), "constant"),
    ((0, 2), 1, "constant"),
    ((), 0, "constant"),
    ((2, 3), 0, "constant"),
    ((3,), 2, "reflect"),
    ((2, 3), ((1, 0), (2, 5)), "reflect"),
    ((1, 2), 1, "reflect"),
    ((2, 3), ((1, 0), (2, 5)), "edge"),
    ((3,), (0, 4), "symmetric"),
    ((3,), (4, 1), "wrap"),
    turned={"pad_width": 1, "constant_values": 1},
    repeated={"pad_width": 1, "mode": "edge"},
)


def _crop_reference(x, crop_width):
    for axis, (before, behind) in enumerate(pad_widths(crop_width, x.ndim)):
        x = np.delete(x, [*range(before), *range(x.shape[axis] - behind, x.shape[axis])], axis)
    return x


_roll_samples = shaped(
    "shift axis",
    ((5,), 2, None),
    ((5,), -7, 0),
    ((), 1, None),
    ((0,), 1, 0),
    ((2, 3), 1, None),
    ((2, 3), 1, 1),
    ((2, 3), (1, -1), (0, 1)),
    ((2, 3), 2, (0, -1)),
    ((2, 0), 1, 0),
    ((2, 3), (1, 1), (1, 1)),
    turned={"shift": 1, "axis": 0},
    repeated={"shift": -2, "axis": -1},
)


CASES = {
    "pad": Cases(
        samples=_pad_samples,
        errors=lambda rng: [
            ErrorSample((np.ones(3), -1), {}, ShapeError, "negative"),
            ErrorSample((np.ones(3), ((1, 1), (1, 1))), {}, ShapeError, "how to pad 1 axis"),
            ErrorSample((np.ones(3), 1, "mirror"), {}, ShapeError, "is not a way to pad"),
            ErrorSample((np.ones(0), 1, "edge"), {}, ShapeError, "no elements to pad with"),
            ErrorSample((np.ones(3), 2**62), {}, ShapeError, "too large"),
            ErrorSample((np.ones(3, int), 1, "constant", 0.5), {}, DTypeError, "not a value of"),
        ],
        reference=lambda x, pad_width, mode, constant_values: (
            np.pad(
                x,
                pad_width,
                mode,
                **({"constant_values": constant_values} if mode == "constant" else {}),
            )
            if x.ndim
            else x
        ),
    ),
    "crop": Cases(
        samples=shaped(
            "crop_width",
            ((5,), 1),
            ((5,), (1, 2)),
            ((4,), (4, 0)),
            ((3, 4), ((0, 1), (2, 0))),
            ((2, 3), ((0, 0), (0, 0))),
            ((0, 3), ((0, 0), (1, 1))),
            ((2, 3, 4), 1),
            ((2, 3, 4), ((0, 0), (1, 1), (0, 3))),
            ((1, 5), ((0, 0), (2, 0))),
            ((), ()),
            turned={"crop_width": ((0, 1), (1, 0))},
            repeated={"crop_width": ((1, 0), (2, 2))},
        ),
        errors=lambda rng: [
            ErrorSample((np.ones(3), -1), {}, ShapeError, "negative"),
            ErrorSample((np.ones(3), ((1, 1), (1, 1))), {}, ShapeError, "how to crop 1 axis"),
            ErrorSample((np.ones(3), 2), {}, ShapeError, "more than axis 0 has"),
        ],
        reference=_crop_reference,
    ),
    "flip": Cases(
        samples=lambda rng, dtype: [
            *(Sample((x,), {"axis": None}) for x in values(rng, dtype)[:8]),
            *(
                Sample((x,), {"axis": axis})
                for x in values(rng, dtype)[6:]
                for axis in (0, -1, (0, -1), ())
            ),
        ],
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)), 2), {}, AxisError, "axis 2 does not exist"),
            ErrorSample((np.ones((2, 3)), (0, 0)), {}, ShapeError, "repeat"),
        ],
        reference=lambda x, axis: np.flip(x, axis),
    ),
    "roll": Cases(
        samples=_roll_samples,
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)), 1, 2), {}, AxisError, "axis 2 does not exist"),
            ErrorSample((np.ones((2, 3)), 0.5, 0), {}, ShapeError, "is not a shift"),
            ErrorSample((np.ones((2, 3)), (1, 2), 0), {}, ShapeError, "2 shifts for 1 axes"),
        ],
        reference=lambda x, shift, axis: np.roll(x, shift, axis),
    ),
}
