"""The report: one HTML file that needs nothing else.

No script and no network: a content security policy forbids both. Curves are inline SVG, pictures
are PNG inside the page, colours follow the reader's light or dark setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from groupella._files import write_text

from ._charts import curves, precisions
from ._content import Content
from ._gallery import examples, filters
from ._layer_tables import errors, heat_map, numbers
from ._words import sentence, shown

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def write_report(
    contents: Content | Sequence[Content], path: str | Path, verdict: str | None = None
) -> Path:
    """Write the page about one run or several, atomically, and return where it is."""
    return write_text(path, page(contents, verdict))


def page(contents: Content | Sequence[Content], verdict: str | None = None) -> str:
    """The page as text. `verdict` heads a page about several runs."""
    runs = [contents] if isinstance(contents, Content) else list(contents)
    if not runs:
        raise ValueError("a report needs at least one run")
    style = resources.files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    if len(runs) == 1:
        title = runs[0].title
        body = f"<h1>{escape(title)}</h1>{_run(runs[0], 'h2')}"
    else:
        title = "groupella: which symmetries?"
        heading = verdict or " ".join(f"{r.title}: {sentence(r.selection)}" for r in runs)
        sections = "".join(
            f'<section class="run" id="run{i}"><h2>{escape(r.title)}</h2>{_run(r, "p")}</section>'
            for i, r in enumerate(runs)
        )
        body = (
            f'<h1>groupella</h1><p class="verdict">{escape(heading)}</p>{_overview(runs)}{sections}'
        )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _overview(runs: Sequence[Content]) -> str:
    rows = "".join(
        f'<tr><td><a href="#run{i}">{escape(r.title)}</a></td>'
        f'<td class="answer">{escape(r.selection.verdict)}</td>'
        f'<td class="left">{escape(r.expected or "not known")}</td></tr>'
        for i, r in enumerate(runs)
    )
    return (
        '<nav class="scroll" tabindex="0" aria-label="tasks"><table class="plain"><thead><tr>'
        '<th scope="col">task</th><th scope="col" class="left">found</th>'
        '<th scope="col" class="left">by construction</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></nav>"
    )


def _run(content: Content, heading: str) -> str:
    parts = [
        f'<{heading} class="verdict">{escape(sentence(content.selection))}</{heading}>',
        _legend_of_groups(content.groups),
        _facts(content),
        "".join(f'<p class="remark">{escape(r)}</p>' for r in content.remarks),
        heat_map(content) if content.selection.is_measured else "",
        precisions(content),
        curves(content),
        errors(content),
        filters(content),
        examples(content),
        numbers(content) if content.selection.is_measured else "",
        _training_remarks(content),
        _settings(content),
    ]
    return "".join(parts)


def _facts(content: Content) -> str:
    chosen = content.selection
    facts = [("data", content.data), ("training examples", f"{chosen.n_data:,}")]
    if "method" in content.settings:
        by_map = content.settings["method"] == "map"
        facts.append(("trained by", "MAP, fixed precisions" if by_map else "evidence"))
    if content.outcome.accuracy is not None:
        facts.append(("test accuracy", f"{100 * content.outcome.accuracy:.1f} %"))
    if content.outcome.nll is not None:
        facts.append(("test NLL", f"{content.outcome.nll:.3f}"))
    if chosen.is_measured:
        a_datum = f"{chosen.log_evidence / chosen.n_data:.3f}".replace("-", "−")
        facts.append(("log evidence", f"{a_datum} nats a datum"))
    if content.expected is not None:
        facts.append(("labels obey, by construction", content.expected))
    items = "".join(f'<li><span class="quiet">{k}</span><b>{escape(v)}</b></li>' for k, v in facts)
    return f'<ul class="facts">{items}</ul>'


def _legend_of_groups(groups: Mapping[str, str]) -> str:
    named = [f"<b>{escape(shown(n))}</b> {escape(t)}" for n, t in groups.items() if t != n]
    return f'<p class="quiet">{"; ".join(named)}.</p>' if named else ""


def _training_remarks(content: Content) -> str:
    remarks = [remark for record in content.history for remark in record.remarks]
    if not remarks:
        return ""
    items = "".join(f"<li>{escape(remark)}</li>" for remark in remarks)
    return f"<details><summary>Remarks during training</summary><ul>{items}</ul></details>"


def _settings(content: Content) -> str:
    entries = {**content.settings, **{f"version of {k}": v for k, v in content.versions.items()}}
    if not entries:
        return ""
    items = "".join(f"<dt>{escape(k)}</dt><dd>{escape(_plain(v))}</dd>" for k, v in entries.items())
    return f"<details><summary>Settings and versions</summary><dl>{items}</dl></details>"


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {_plain(v)}" for k, v in value.items())
    return str(value)
