"""Dropout and noise, which leave their inputs alone outside training."""

from tests.nn.cases import case


def same(weights, x):
    return x


def disturbing(cls, *args, **kwargs):
    return case(cls, *args, _random=True, _reference=same, **kwargs)


CASES = [
    disturbing("Dropout", 0.5),
    disturbing("Dropout", 0.5, noise_shape=(None, 1), seed=3),
    disturbing("AlphaDropout", 0.2),
    disturbing("AlphaDropout", 0.2, seed=3),
    disturbing("GaussianDropout", 0.2),
    disturbing("GaussianDropout", 0.2, 3),
    disturbing("GaussianNoise", 0.2),
    disturbing("GaussianNoise", 0.2, 3),
    disturbing("SpatialDropout1D", 0.5, inputs=[(2, 3, 4)]),
    disturbing("SpatialDropout2D", 0.5, "channels_first", inputs=[(2, 3, 4, 5)]),
    disturbing("SpatialDropout3D", 0.5, seed=3, inputs=[(2, 3, 4, 2, 3)]),
    case("ActivityRegularization", 0.1, l2=0.2, _reference=same),
]
