"""The field in one table: verdicts counted by method and by family of tasks, and a figure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupella._files import replacing, write_text
from groupella._schema import write_json
from groupella.experiments.planted import CaseResult, wilson
from groupella.runs.record import versions

from ._methods import METHODS
from ._protocol import DEEP, KINDS, family
from ._tasks import FAMILIES, TASKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUMBERS = ("linear", DEEP)  # families of tasks whose targets are numbers
COLUMNS = (
    "method",
    "right",
    "wrong symmetry",
    "weaker",
    "undecided",
    "accuracy",
    "R²",
    "NLL",
    "CPU s",
    "deep: right layers",
    "deep: wrong",
    "criterion",
    "set by us",
    "validation data",
    "layer-wise",
)


def headline(results: Sequence[CaseResult]) -> dict[str, dict[str, Any]]:
    """Return counts of verdicts and mean scores of each method, in all and by family of tasks.

    Counts have Wilson intervals. Accuracy is that of classes, R² that of linear and deep tasks, NLL
    that of one output; seconds are CPU time of a case. A verdict on a deep task is one for every
    layer, which not all methods give: counts in all are without them.
    """
    found = {}
    for name, mine in _by(results, lambda r: str(r.details["method"])).items():
        families = _by(mine, _family)
        whole = [r for r in mine if _family(r) != DEEP]
        found[name] = {
            **_counts(whole),
            **_scores(whole),
            "families": {
                kind: {**_counts(some), **_scores(some), "tasks": _tasks(some)}
                for kind in FAMILIES
                if (some := families.get(kind))
            },
        }
    return {name: found[name] for name in METHODS if name in found}


def summary(results: Sequence[CaseResult], preset: str) -> dict[str, Any]:
    """Everything worth keeping: counts of every method, its settings, and all verdicts."""
    return {
        "preset": preset,
        "methods": headline(results),
        "settings": {
            m.name: {
                "reference": m.reference,
                "criterion": m.criterion,
                "thresholds": {f: m.threshold(f) for f in FAMILIES if m.applies(f)},
                "needs_validation_data": m.validation,
                "layer_wise": m.layer_wise,
                "tuned": m.tuned,
            }
            for m in METHODS.values()
        },
        "cases": [
            {
                "key": r.key,
                "truth": list(r.planted),
                "verdict": list(r.verdicts),
                "seconds": round(r.seconds, 2),
                **{k: r.details[k] for k in ("outcomes", "accuracy", "nll", "numbers")},
            }
            for r in results
        ],
    }


def ahead(results: Sequence[CaseResult]) -> str:
    """A list of the methods that beat ours, in all and by family of tasks.

    A method is ahead in verdicts with more right ones less wrong symmetries, in predictions with a
    higher accuracy (R² of numbers) or a lower NLL; all on the same tasks. "All tasks" is without
    deep ones.
    """
    found = headline(results)
    if "ours" not in found:
        return ""
    lines = []
    for kind in ("all tasks", *FAMILIES):
        rows = {n: h if kind == "all tasks" else h["families"].get(kind) for n, h in found.items()}
        mine = rows.pop("ours")
        peers = {n: h for n, h in rows.items() if mine and h and h["cases"] == mine["cases"]}
        if not peers:
            continue
        own = mine["right"] - mine["wrong"]
        better = [
            f"{name} ({h['right']} right, {h['wrong']} wrong)"
            for name, h in peers.items()
            if h["right"] - h["wrong"] > own
        ]
        verdicts = f"ours {mine['right']} right, {mine['wrong']} wrong"
        lines.append(f"- {kind}: {', '.join(better) or 'none'}; {verdicts}")
        for title, score, sign in (
            ("accuracy", "accuracy", 1),
            ("R²", "r2", 1),
            ("NLL", "nll", -1),
        ):
            if mine[score] is None or (kind == "all tasks" and score == "nll"):
                continue  # squared errors and classes have no common NLL
            best = sorted(
                (sign * h[score], name)
                for name, h in peers.items()
                if sign * h[score] > sign * mine[score]
            )
            if best:
                named = ", ".join(f"{name} {sign * v:.3f}" for v, name in reversed(best))
                lines.append(f"  - {title}: {named}; ours {mine[score]:.3f}")
    return "\n".join(["**Ahead of ours** (right less wrong, on the same tasks):", "", *lines])


def markdown_table(results: Sequence[CaseResult]) -> str:
    """One row per method."""
    from groupella.report import markdown

    rows = []
    for name, h in headline(results).items():
        method = METHODS[name]
        rows.append(
            [
                f"{name} ({method.reference})",
                *_cells(h, ("accuracy", "r2", "nll")),
                *_layers(name, h["families"].get(DEEP)),
                method.criterion,
                method.tuned or "–",
                "yes" if method.validation else "no",
                "yes" if method.layer_wise else "no",
            ]
        )
    return markdown(list(COLUMNS), rows)


def family_table(results: Sequence[CaseResult], kind: str) -> str:
    """One row per method, of one family of tasks."""
    from groupella.report import markdown

    score = "r2" if kind in NUMBERS else "accuracy"
    rows = [
        [name, *_cells(h["families"][kind], (score, "nll"))]
        for name, h in headline(results).items()
        if kind in h["families"]
    ]
    titles = [*COLUMNS[:5], "R²" if kind in NUMBERS else "accuracy", "NLL", "CPU s"]
    return markdown(titles, rows)


def task_table(results: Sequence[CaseResult]) -> str:
    """The verdicts of every method on every task; wrong symmetries are bold."""
    from groupella.report import markdown

    rows = []
    for name, mine in _by(results, lambda r: str(r.details["method"])).items():
        tasks = _by(mine, lambda r: str(r.details["task"]))
        for task, some in tasks.items():
            counts: dict[str, int] = defaultdict(int)
            for r in some:
                counts[_text(r)] += 1
            cells = [verdict + (f" ×{k}" if k > 1 else "") for verdict, k in counts.items()]
            rows.append((name, task, ", ".join(cells)))
    names = [n for n in METHODS if any(n == row[0] for row in rows)]
    tasks_seen = [t for t in TASKS if any(t == row[1] for row in rows)]
    found = {(n, t): text for n, t, text in rows}
    return markdown(
        ["task", *names], [[t, *(found.get((n, t), "–") for n in names)] for t in tasks_seen]
    )


def figure(results: Sequence[CaseResult]) -> Figure:
    """Right against wrong verdicts of every method, with Wilson intervals."""
    from matplotlib.figure import Figure as MatplotlibFigure

    drawn = MatplotlibFigure(figsize=(7, 5.4), layout="constrained")
    axes = drawn.subplots()
    shared: dict[tuple[int, int, int], list[str]] = defaultdict(list)
    for name, h in headline(results).items():
        if h["cases"]:
            shared[h["wrong"], h["right"], h["cases"]].append(name)
    for (k_wrong, k_right, n), names in shared.items():
        wrong, right = k_wrong / n, k_right / n
        bars = [
            [[max(0.0, value - low)], [max(0.0, high - value)]]
            for value, (low, high) in ((wrong, wilson(k_wrong, n)), (right, wilson(k_right, n)))
        ]
        line = axes.errorbar(
            [wrong], [right], xerr=bars[0], yerr=bars[1], fmt="o", capsize=2, alpha=0.7
        )
        axes.annotate(
            ", ".join(names),
            (wrong, right),
            xytext=(5, 4),
            textcoords="offset points",
            color=line[0].get_color(),
        )
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(-0.03, 1.08)
    axes.set_xlabel("wrong symmetry")
    axes.set_ylabel("right")
    axes.grid(alpha=0.3)
    return drawn


def write_summary(
    directory: Path, results: Sequence[CaseResult], preset: str, title: str
) -> dict[str, Any]:
    """Write summary.json, summary.md and right-wrong.png; return the content."""
    content = {**summary(results, preset), "versions": versions()}
    write_text(directory / "summary.json", write_json(content, indent=1) + "\n")
    parts = [f"# {title}", ahead(results), markdown_table(results)]
    for kind in FAMILIES:
        if any(_family(r) == kind for r in results):
            parts += [f"## {kind}", family_table(results, kind)]
    parts += ["## Verdicts", task_table(results)]
    write_text(directory / "summary.md", "\n\n".join(p.strip() for p in parts) + "\n")
    with replacing(directory / "right-wrong.png") as temporary:
        figure(results).savefig(temporary, dpi=120, format="png")
    return content


def _counts(results: Sequence[CaseResult]) -> dict[str, Any]:
    kinds = [kind for r in results for kind in r.details["outcomes"]]
    n = len(kinds)
    found: dict[str, Any] = {"cases": n, **{kind: kinds.count(kind) for kind in KINDS}}
    for kind in ("right", "wrong"):
        found[f"{kind}_interval"] = [round(v, 4) for v in wilson(found[kind], n)]
    return found


def _scores(results: Sequence[CaseResult]) -> dict[str, float | None]:
    """Mean accuracy of classes, R² of numbers, NLL and CPU seconds."""
    return {
        "accuracy": _mean(r.details["accuracy"] for r in results if _family(r) not in NUMBERS),
        "r2": _mean(r.details["accuracy"] for r in results if _family(r) in NUMBERS),
        "nll": _mean(r.details["nll"] for r in results),
        "seconds": _mean((r.seconds for r in results), 2),
    }


def _cells(h: dict[str, Any], scores: Sequence[str]) -> list[str]:
    return [
        _share(h["right"], h["cases"]),
        _share(h["wrong"], h["cases"]),
        str(h["weaker"]),
        str(h["undecided"]),
        *(_number(h[k]) for k in scores),
        _number(h["seconds"], 1),
    ]


def _layers(name: str, h: dict[str, Any] | None) -> list[str]:
    """The cells of a method's verdicts on layers."""
    method = METHODS[name]
    if not method.layer_wise:
        return ["cannot: one verdict", "–"]
    if not method.applies(DEEP):
        return ["cannot: cyclic shifts", "–"]
    return [_share(h[kind], h["cases"]) for kind in ("right", "wrong")] if h else ["–", "–"]


def _text(result: CaseResult) -> str:
    """The verdicts of a case, those that are wrong symmetries in bold."""
    pairs = zip(result.verdicts, result.details["outcomes"], strict=True)
    return "; ".join(f"**{v}**" if kind == "wrong" else v for v, kind in pairs)


def _tasks(results: Sequence[CaseResult]) -> dict[str, dict[str, int]]:
    """Task → verdict → how often."""
    found: dict[str, dict[str, int]] = {}
    for r in results:
        row = found.setdefault(r.details["task"], {})
        named = "; ".join(r.verdicts)
        row[named] = row.get(named, 0) + 1
    return found


def _by(
    results: Iterable[CaseResult], key: Callable[[CaseResult], str]
) -> dict[str, list[CaseResult]]:
    found: dict[str, list[CaseResult]] = defaultdict(list)
    for result in results:
        found[key(result)].append(result)
    return dict(found)


def _family(result: CaseResult) -> str:
    return family(result.details["task"])


def _mean(values: Iterable[float], digits: int = 4) -> float | None:
    found = list(values)
    return round(sum(found) / len(found), digits) if found else None


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _share(k: int, n: int) -> str:
    if n == 0:
        return "–"
    low, high = wilson(k, n)
    return f"{k} of {n} ({100 * low:.0f}–{100 * high:.0f} %)"
