"""The public issues that are posed here: repository, number and topic of each.

A topic is a file, ``test_<topic>.py``; the case of an issue is the function there that has its
name, such as ``pytorch_39565``. The bug is described in the case's docstring.
"""

import pytest

REPOSITORIES = {
    "jax": "jax-ml/jax",
    "pytorch": "pytorch/pytorch",
    "tensorflow": "tensorflow/tensorflow",
    "tinygrad": "tinygrad/tinygrad",
    "xla": "pytorch/xla",
}

ISSUES = {
    "indexing": {
        "pytorch": (
            *(39565, 131321, 169779, 121251, 183769, 138908, 37996, 107540, 198102, 108963),
            571,
        ),
        "jax": (10129, 16655, 26888, 3326, 37822),
        "tensorflow": (27526, 64081, 5847),
    },
    "reductions": {
        "pytorch": (
            *(5863, 3304, 756, 132107, 172062, 41998, 93630, 17914, 183082, 40022, 193751),
            *(118266, 180956, 162410, 44350, 91597, 2391, 59489),
        ),
        "jax": (6431,),
        "tensorflow": (102043, 125978),
        "tinygrad": (4999,),
    },
    "dtypes": {
        "pytorch": (
            *(198081, 191308, 105264, 187018, 197091, 156788, 44858, 1164, 47779, 86074),
            *(40118, 4419, 4877, 195675, 76795, 73504, 175966, 193811),
        ),
        "jax": (28603, 18507, 145),
        "tensorflow": (60656,),
        "tinygrad": (3133, 10321),
    },
    "layouts": {
        "pytorch": (
            *(18948, 15297, 195320, 198280, 177839, 33467, 42418, 35737, 99803, 139789),
            *(198101, 94773, 146416, 179568, 96064, 168177, 71085),
        ),
        "jax": (37830, 3412, 19123),
        "tinygrad": (14689, 6803),
    },
    "changes": {
        "pytorch": (
            *(108898, 197859, 98928, 197811, 124357, 176851, 178365, 139476, 93782, 185382),
            197085,
        ),
    },
    "control": {
        "pytorch": (91403, 91404),
        "jax": (5900, 1534, 4173, 6452, 34228),
        "tensorflow": (1093, 16504, 16333),
    },
    "gradients": {
        "pytorch": (
            *(136662, 100794, 76185, 106789, 773, 181581, 186256, 175754, 18619, 2421, 4320),
            *(65599, 3264, 46144, 80928, 96543, 98276, 59477, 190758, 47870, 159750),
        ),
        "jax": (764, 8128, 13600, 939, 2863, 10877, 8732, 3058),
        "tensorflow": (20116,),
        "tinygrad": (12296,),
    },
    "layers": {
        "pytorch": (
            *(40302, 51102, 54293, 162489, 103963, 101967, 109517, 103749, 160064, 19912),
            *(21597, 141221, 100987, 36977, 88144, 93262, 198201, 175154, 73205, 91383, 12670),
            *(3662, 95118),
        ),
        "tensorflow": (117803, 118467, 34491, 59934, 61885, 118314),
    },
    "random": {
        "pytorch": (118735, 197101, 158643, 136656, 5059, 3880, 7882),
        "jax": (27702, 25498, 5061),
        "xla": (8636,),
    },
    "optimizers": {
        "pytorch": (196083, 121186, 74424),
        "tensorflow": (53064,),
    },
    "saving": {
        "pytorch": (315, 78442, 99424, 91357, 110557, 32696),
        "tensorflow": (78610, 34158),
    },
}


def names():
    """(topic, repository's short name, number) of each issue."""
    return [
        (topic, short, number)
        for topic, repositories in ISSUES.items()
        for short, numbers in repositories.items()
        for number in numbers
    ]


def cases(topic, functions):
    """A decorator's argument list: the topic's cases, with ids such as ``pytorch-39565``."""
    found = [
        pytest.param(functions[f"{short}_{number}"], id=f"{short}-{number}")
        for name, short, number in names()
        if name == topic
    ]
    return pytest.mark.parametrize("case", found)
