"""Shrinking of models: candidates that lack one part."""

import dataclasses
import re

OPTION = r", [a-z_]+=(?:[^,()\[\]]|\([^()]*\))+(?=[,)])"


def smaller(fit):
    """Models that lack one part, or have the simplest variant of it."""
    for n in range(len(fit.statements) - 1, -1, -1):
        yield from without(fit, n)
    simplest = {
        "form": "functional",
        "policy": "float32",
        "options": (),
        "callback": "",
        "predicts": False,
        "optimizer": "nn.optimizers.SGD(0.01)",
        "fit": tuple(x for x in fit.fit if x.startswith(("batch", "epochs"))),
        "outputs": tuple(dataclasses.replace(o, metrics=()) for o in fit.outputs),
    }
    for name, value in simplest.items():
        if getattr(fit, name) != value:
            yield dataclasses.replace(fit, **{name: value})
    for n, s in enumerate(fit.statements):
        for option in re.findall(OPTION, s.constructor):
            changed = dataclasses.replace(s, constructor=s.constructor.replace(option, "", 1))
            statements = (*fit.statements[:n], changed, *fit.statements[n + 1 :])
            yield dataclasses.replace(fit, statements=statements)


def without(fit, n):
    """Models that lack a statement; one of its inputs replaces its results."""
    names = fit.statements[n].names
    for name in dict.fromkeys(re.findall(r"\b[hx]\d+[a-f]?\b", fit.statements[n].call)):
        rest = [
            dataclasses.replace(s, call=renamed(s.call, names, name))
            for s in fit.statements[n + 1 :]
        ]
        outputs = tuple(
            dataclasses.replace(o, name=renamed(o.name, names, name)) for o in fit.outputs
        )
        yield dataclasses.replace(fit, statements=(*fit.statements[:n], *rest), outputs=outputs)


def renamed(text, names, name):
    return re.sub(r"\b(" + "|".join(names) + r")\b", name, text)
