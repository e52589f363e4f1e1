"""The page for browsers: models, versions, inputs, outputs, pictures, a request to try, figures.

It is one text without anything from elsewhere: its style and its small script stand in it. What
comes from names and files is escaped.
"""

from __future__ import annotations

import json
from html import escape
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote

from eagerflow.serving.batching import Batcher
from eagerflow.serving.protocols.first_request import first_request
from eagerflow.serving.repository import Model, Repository
from eagerflow.serving.signature import Signature

__all__ = ["figures", "page"]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --accent: #2a6fdb; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
table { border-collapse: collapse; margin: .5rem 0; }
th, td { text-align: left; padding: .2rem 1rem .2rem 0; border-bottom: 1px solid var(--line); }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
code, pre, textarea { font: 13px/1.45 ui-monospace, monospace; }
textarea { width: 100%; box-sizing: border-box; min-height: 5rem; }
pre { background: var(--soft); padding: .6rem; overflow: auto; white-space: pre-wrap; }
button { padding: .3rem 1rem; }
.broken { color: #c0392b; } .scroll { overflow-x: auto; } .scroll svg { background: #fff; }
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
async function look() {
  try {
    const rows = await (await fetch("figures")).json();
    for (const row of rows) for (const key of ["answered", "running", "sequences", "median",
      "slow"]) {
      const cell = document.getElementById([row.model, row.version, key].join("/"));
      if (cell) cell.textContent = row[key];
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
    name = escape(model.name)
    rows = [_version(model, n) for n in sorted(model.ready, reverse=True)]
    rows += [
        f'<tr><td>{n}</td><td class="broken">broken: {escape(told)}</td></tr>'
        for n, told in sorted(model.broken.items())
    ]
    rows += [f"<tr><td>{n}</td><td>loading</td></tr>" for n in sorted(model.loading)]
    head = "version", "state", "requests", "running", "sequences", "median", "99th percentile"
    table = f"<table><tr>{''.join(f'<th>{word}</th>' for word in head)}</tr>{''.join(rows)}</table>"
    current = "" if model.current is None else _current(model, model.ready[model.current])
    return f"<h2>{name}</h2>{table}{_shadow(model)}{current}"


def _shadow(model: Model) -> str:
    """How the answers of the shadow differed, if there is one."""
    if model.shadowing is None:
        return ""
    counts = ", ".join(f"{n} {word}" for word, n in model.shadowing.counts.items() if n)
    return (
        f"<p>Version {model.shadowing.settings.version} is a shadow: {counts or 'no answers yet'}; "
        f"largest difference {model.shadowing.largest:.3g}</p>"
    )


def _version(model: Model, number: int) -> str:
    share = model.traffic.split.get(number, 0.0)
    told = f"answers {share:.3%}" if share else "ready"
    if number == model.current and not model.traffic.split:
        told = "answers"
    labels = [label for label, n in model.labels.items() if n == number]
    told += f" ({escape(', '.join(labels))})" if labels else ""
    cells = "".join(
        f'<td class="number" id="{escape(f"{model.name}/{number}/{key}", quote=True)}"></td>'
        for key in ("answered", "running", "sequences", "median", "slow")
    )
    return f"<tr><td>{number}</td><td>{told}</td>{cells}</tr>"


def _current(model: Model, batcher: Batcher) -> str:
    """What the version that answers takes and gives, its picture, and a form."""
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
        f"<table>{rows}</table><p>{joined}</p>"
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


def figures(repository: Repository) -> list[dict[str, Any]]:
    """What the page shows of each version, as texts."""
    rows = []
    for model in repository.models.values():
        for number, batcher in model.ready.items():
            parts = batcher.parts()
            recent = sorted(seconds for part in parts for seconds in part.recent)
            times = [recent[len(recent) // 2], recent[len(recent) * 99 // 100]] if recent else []
            median, slow = [f"{t * 1e3:.2f} ms" for t in times] or ["", ""]
            rows.append(
                {
                    "model": model.name,
                    "version": number,
                    "answered": str(sum(part.answered for part in parts)),
                    "running": str(sum(part.running for part in parts)),
                    "sequences": str(len(model.sequences.of(batcher)) or ""),
                    "median": median,
                    "slow": slow,
                }
            )
    return rows
