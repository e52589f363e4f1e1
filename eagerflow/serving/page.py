"""The page for browsers: models, versions, inputs, outputs, pictures, a request to try, figures.

The page is self-contained: its style and its small script are inline. Names and contents of files
are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote

from eagerflow.serving.batching import Batcher
from eagerflow.serving.protocols.first_request import first_request
from eagerflow.serving.repository import Model, Repository
from eagerflow.serving.signature import Signature

__all__ = ["figures", "page"]

_COLUMNS = {
    "version": "version",
    "state": "state",
    "answered": "requests",
    "running": "running",
    "sequences": "sequences",
    "median": "median",
    "slow": "99th percentile",
}
_NUMBER = ' class="number"'
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --accent: #2a6fdb; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
table { border-collapse: collapse; margin: .5rem 0; }
th, td { text-align: left; padding: .2rem 1rem .2rem 0; border-bottom: 1px solid var(--line); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code, pre, textarea { font: 13px/1.45 ui-monospace, monospace; }
textarea { width: 100%; box-sizing: border-box; min-height: 5rem; }
pre { background: var(--soft); padding: .6rem; white-space: pre-wrap; overflow-wrap: anywhere; }
button { padding: .3rem 1rem; }
.broken { color: #c0392b; }
.scroll { overflow: auto; max-height: 40rem; } .scroll svg { background: #fff; }
"""
_SCRIPT = """
for (const form of document.forms) form.addEventListener("submit", async event => {
  event.preventDefault();
  const answer = form.querySelector("pre");
  const begin = performance.now();
  try {
    const body = form.elements.body.value;
    const got = await fetch(form.action, {method: "POST", body});
    const text = await got.text();
    answer.textContent = got.status + ", " + (performance.now() - begin).toFixed(1) + " ms\\n"
      + text;
  } catch (error) { answer.textContent = String(error); }
  answer.hidden = false;
});
function cell(row, key, place) {
  const made = document.createElement("td");
  made.textContent = row[key];
  made.className = place > 1 ? "number" : row.broken && place ? "broken" : "";
  return made;
}
async function look() {
  try {
    const told = await (await fetch("figures")).json();
    document.getElementById("workers").textContent = told.workers;
    for (const {model, rows, notes} of told.models) {
      const part = document.getElementById("model/" + model);
      if (!part) {
        document.getElementById("workers").textContent = "Load the page again: it lacks " + model;
        continue;
      }
      part.querySelector("p").textContent = notes;
      part.querySelector("tbody").replaceChildren(...rows.map(row => {
        const made = document.createElement("tr");
        made.append(...told.columns.map((key, place) => cell(row, key, place)));
        return made;
      }));
    }
  } catch (error) { /* the server may be away for a moment */ }
}
look(); setInterval(look, 2000);
"""


def page(repository: Repository) -> tuple[bytes, dict[str, str]]:
    """The page, and headers that let a browser run nothing but its own script."""
    nonce = token_urlsafe(16)
    parts = [_model(model) for model in repository.models.values()]
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>eagerflow</title>'
        '<meta name="viewport" content="width=device-width">'
        f'<style nonce="{nonce}">{_STYLE}</style></head><body><h1>Models on this server</h1>'
        f'<p id="workers">{escape(_workers(repository))}</p>'
        f"{''.join(parts) or '<p>There are none yet.</p>'}"
        f'<script nonce="{nonce}">{_SCRIPT}</script></body></html>'
    )
    policy = (
        f"default-src 'none'; style-src 'nonce-{nonce}' 'unsafe-inline'; "
        f"script-src 'nonce-{nonce}'; connect-src 'self'; form-action 'self'"
    )
    return text.encode(), {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
    }


def _model(model: Model) -> str:
    head = "".join(
        f"<th{_NUMBER if place > 1 else ''}>{title}</th>"
        for place, title in enumerate(_COLUMNS.values())
    )
    rows = "".join(f"<tr>{''.join(_cells(row))}</tr>" for row in _versions(model))
    current = "" if model.current is None else _current(model, model.ready[model.current])
    return (
        f'<h2>{escape(model.name)}</h2><div id="{escape(f"model/{model.name}", quote=True)}">'
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        f"</div><p>{escape(_notes(model))}</p></div>{current}"
    )


def _cells(row: dict[str, Any]) -> Iterator[str]:
    for place, key in enumerate(_COLUMNS):
        kind = _NUMBER if place > 1 else ' class="broken"' if row["broken"] and place else ""
        yield f"<td{kind}>{escape(row[key])}</td>"


def _current(model: Model, batcher: Batcher) -> str:
    """Inputs and outputs of the current version, its picture, and a form."""
    version = batcher.version
    signature = version.signature
    rows = _rows(signature) + "".join(
        f'<tr><th colspan="3">signature {escape(name)}</th></tr>{_rows(part.version.signature)}'
        for name, part in batcher.signatures.items()
    )
    joined = (
        f"up to {batcher.batching.max_rows} rows are computed together"
        if signature.batch is not None
        else f"requests run one by one: {escape(signature.alone)}"
    )
    path, first = first_request(quote(model.name), signature)
    path, body = escape(path, quote=True), escape(json.dumps(first))
    return (
        f'<div class="scroll"><table>{rows}</table></div><p>{joined}</p>'
        f'<form action="{path}"><textarea name="body" aria-label="request">{body}</textarea>'
        "<p><button>Ask</button></p><pre hidden></pre></form>"
        '<details><summary>Graph</summary><div class="scroll">'
        f"{version.graph.to_svg()}</div></details>"
    )


def _rows(signature: Signature) -> str:
    """A row for each input and output."""
    return "".join(
        f"<tr><td>{kind}</td><td><code>{escape(name)}</code></td><td>{escape(str(spec))}</td></tr>"
        for kind, specs in (("input", signature.inputs), ("output", signature.outputs))
        for name, spec in specs.items()
    )


# Live figures, as texts ---------------------------------------------------------------------------


def figures(repository: Repository) -> dict[str, Any]:
    """The figures of workers, of each model and of its versions."""
    return {
        "columns": list(_COLUMNS),
        "workers": _workers(repository),
        "models": [
            {"model": model.name, "rows": _versions(model), "notes": _notes(model)}
            for model in repository.models.values()
        ],
    }


def _versions(model: Model) -> list[dict[str, Any]]:
    """A row for each version, by the columns' keys, with a flag for broken ones."""
    others = {n: f"broken: {told}" for n, told in model.broken.items()}
    others |= dict.fromkeys(model.leaving, "leaving") | dict.fromkeys(model.loading, "loading")
    empty = dict.fromkeys(_COLUMNS, "")
    rows = [_ready(model, number) for number in sorted(model.ready, reverse=True)]
    for number, told in sorted(others.items()):
        of = {"version": str(number), "state": told, "broken": number in model.broken}
        rows.append(empty | of)
    return rows


def _ready(model: Model, number: int) -> dict[str, Any]:
    batcher = model.ready[number]
    parts = batcher.parts()
    recent = sorted(seconds for part in parts for seconds in part.recent)
    times = [recent[len(recent) // 2], recent[len(recent) * 99 // 100]] if recent else []
    median, slow = [f"{t * 1e3:.2f} ms" for t in times] or ["", ""]
    count = len(model.sequences.of(batcher))
    return {
        "version": str(number),
        "state": _role(model, number),
        "broken": False,
        "answered": str(sum(part.answered for part in parts)),
        "running": str(sum(part.running for part in parts)),
        "sequences": f"{count}, {count * batcher.version.state_bytes:,} bytes" if count else "",
        "median": median,
        "slow": slow,
    }


def _role(model: Model, number: int) -> str:
    """The role of a version that is ready, and its labels."""
    split, shadow = model.traffic.split, model.traffic.shadow
    told = "ready"
    if split.get(number):
        told = f"answers {split[number] * 100:.4g} %"
    elif not split and number == model.current:
        told = "answers"
    elif shadow is not None and shadow.version == number:
        told = f"shadow of {shadow.share * 100:.4g} %"
    labels = [label for label, n in model.labels.items() if n == number]
    return f"{told} ({', '.join(labels)})" if labels else told


def _notes(model: Model) -> str:
    """A summary of the shadow's differences, if there is a shadow."""
    if model.shadowing is None:
        return ""
    counts = ", ".join(f"{n} {word}" for word, n in model.shadowing.counts.items() if n)
    return (
        f"Version {model.shadowing.settings.version} is a shadow: {counts or 'no answers yet'}; "
        f"largest difference {model.shadowing.largest:.3g}"
    )


def _workers(repository: Repository) -> str:
    """The number of worker processes; empty if the server computes itself."""
    if repository.metrics is None:
        return ""
    of = repository.metrics.registry.get_sample_value
    there = of("eagerflow_workers")
    if there is None:
        return ""
    return f"{there:.0f} workers are there; {of('eagerflow_workers_ended'):.0f} have ended unasked"
