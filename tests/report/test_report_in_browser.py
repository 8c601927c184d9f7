"""The report in a real browser: nothing is logged, nothing overflows, and text can be read."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from groupella.report import ReportContent, page, write_report

pytestmark = pytest.mark.slow
SCHEMES = ("dark", "light")  # as chromium numbers them
PROBE = """<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">
<iframe id="frame" style="border:0;width:WIDTHpx;height:2600px"></iframe><pre id="found"></pre>
<script>
const text = new TextDecoder().decode(Uint8Array.from(atob("REPORT"), c => c.charCodeAt(0)));
const frame = document.getElementById("frame");
frame.onload = () => {
  const page = frame.contentDocument, view = frame.contentWindow, sizes = [], hidden = [];
  const styled = e => view.getComputedStyle(e);
  const colour = text => [...text.match(/[0-9.]+/g).map(Number), 1].slice(0, 4);
  const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3]));
  const behind = e =>
    e ? over(colour(styled(e).backgroundColor), behind(e.parentElement)) : [255, 255, 255];
  const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const weights = [.2126, .7152, .0722];
  const light = rgb => weights.reduce((sum, w, i) => sum + w * linear(rgb[i] / 255), .05);
  const answers = [...page.querySelectorAll("table.map td.answer")];
  const contrasts = [];
  page.querySelectorAll("details").forEach(d => { d.open = true; });
  for (const e of page.querySelectorAll("main *")) {
    const box = e.getBoundingClientRect();
    if (box.width && box.right > WIDTH + 1 && !e.closest(".scroll")) hidden.push(e.tagName);
    const own = [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim());
    if (own && box.width) {
      const drawn = e.ownerSVGElement && e.ownerSVGElement.getScreenCTM();
      sizes.push(parseFloat(styled(e).fontSize) * (drawn ? drawn.a : 1));
      const back = behind(e), ink = colour(drawn ? styled(e).fill : styled(e).color);
      const ratio = light(over(ink, back)) / light(back);
      contrasts.push([Math.max(ratio, 1 / ratio), e.tagName, e.textContent.slice(0, 30)]);
    }
  }
  document.getElementById("found").textContent = "FOUND" + JSON.stringify({
    width: page.documentElement.scrollWidth,
    hidden: hidden,
    smallest: Math.min(...sizes),
    contrast: contrasts.sort((a, b) => a[0] - b[0])[0],
    answers: Math.max(...answers.map(e => e.getBoundingClientRect().right)),
    used: Math.max(...[...page.querySelectorAll("table.map tbody tr")].map(row => {
      const share = e => parseFloat(e.style.getPropertyValue("--share"));
      const cells = [...row.querySelectorAll("td.heat")].sort((a, b) => share(b) - share(a));
      return cells.length ? cells[0].getBoundingClientRect().right : 0;
    })),
    won: Math.max(...[...page.querySelectorAll("tr.won")].map(
      e => e.cells[2].getBoundingClientRect().right)),
    confusion: Math.max(...[...page.querySelectorAll("table.confusion td")].map(
      e => e.getBoundingClientRect().right)),
    back: view.getComputedStyle(page.body).backgroundColor,
    ink: view.getComputedStyle(page.body).color,
    images: [...page.images].every(i => i.complete && i.naturalWidth > 0),
    pictures: page.images.length,
    charts: page.querySelectorAll("figure > svg").length,
  }) + "END";
};
frame.srcdoc = text;
</script>"""


def run(chromium: str, directory: Path, page_path: Path, *options: str) -> tuple[str, list[str]]:
    """The document after loading, and what the console said."""
    command = [
        chromium,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--enable-logging=stderr",
        f"--user-data-dir={directory / 'profile'}",
        "--virtual-time-budget=5000",
        *options,
        "--dump-dom",
        page_path.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def look(chromium: str, directory: Path, text: str, width: int, *options: str) -> dict[str, Any]:
    """Measure the report in a frame of that width."""
    encoded = base64.b64encode(text.encode()).decode()
    probe = directory / "probe.html"
    probe.write_text(PROBE.replace("WIDTH", str(width)).replace("REPORT", encoded))
    document, console = run(chromium, directory, probe, *options)
    assert console == []
    found = re.search("FOUND(.*)END", document.partition("</script>")[0] or document)
    found = found or re.search(r"FOUND(\{.*?\})END", document)
    assert found is not None, document[-500:]
    result: dict[str, Any] = json.loads(found[1].replace("&amp;", "&"))
    return result


@pytest.mark.parametrize("width", [390, 1280])
def test_layout_fits_phone_and_desk(
    chromium: str, content: ReportContent, judged: ReportContent, tmp_path: Path, width: int
) -> None:
    pages = page([content, judged])
    found = look(chromium, tmp_path, pages, width, "--window-size=1400,2700")
    assert found["width"] <= width
    assert found["hidden"] == []
    assert found["smallest"] >= 10
    assert found["answers"] <= width, "what a layer obeys is seen without scrolling"
    assert 0 < found["used"] <= width, "so is the path that it uses most"
    assert found["won"] <= width, "the verdict's row is seen up to its accuracy"
    assert found["confusion"] <= width, "so are all columns of ten classes"
    assert found["images"]
    assert found["pictures"] == 2 * (len(content.examples) + sum(map(_filters, content.filters)))
    assert found["charts"] == 2 * (2 + 3)


def test_page_is_dark_for_readers_who_want_it_dark(
    chromium: str, content: ReportContent, tmp_path: Path
) -> None:
    dark = look(chromium, tmp_path, page(content), 1280, in_scheme("dark"))
    assert _brightness(dark["back"]) < 60 < 180 < _brightness(dark["ink"])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_text_stands_out_from_what_is_behind_it(
    chromium: str, content: ReportContent, tmp_path: Path, scheme: str
) -> None:
    """By the 4.5 : 1 of WCAG, also on the darkest cells and in paths that are dead."""
    first, second = content.selection.layers
    shares = (0.0, 0.5, 1.0)
    paths = [replace(p, relative=s) for p, s in zip(first.paths, shares, strict=True)]
    layers = [
        replace(first, paths=tuple(replace(p, alive=alive) for p in paths))
        for alive in (True, False)
    ]
    chosen = replace(content.selection, layers=(*layers, second))
    text = page(replace(content, selection=chosen))
    found = look(chromium, tmp_path, text, 1280, in_scheme(scheme))
    assert found["contrast"][0] >= 4.5, found["contrast"]
    faint = text.replace("</main>", '<p style="color: #888; background: #777">faint</p></main>')
    assert look(chromium, tmp_path, faint, 1280, in_scheme(scheme))["contrast"][2] == "faint"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [500, 1100])
def test_page_opens_alone_and_is_drawn_without_a_word_on_the_console(
    chromium: str, content: ReportContent, tmp_path: Path, scheme: str, width: int
) -> None:
    written = write_report(content, tmp_path / "report.html")
    shot = tmp_path / "shot.png"
    options = [f"--window-size={width},800", f"--screenshot={shot}", in_scheme(scheme)]
    document, console = run(chromium, tmp_path, written, *options)
    assert console == []
    assert "layer 1 obeys z2, layer 2 obeys nothing" in document
    with Image.open(shot) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    height, across, _ = pixels.shape
    assert across == width
    assert 600 < height <= 800  # some versions count a bar that is not there
    colours, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_counts=True)
    assert len(colours) > 50
    brightness = colours.mean(axis=1)
    paper = brightness[counts.argmax()]
    # Paper, and text on it: in words, not in a few stray pixels.
    dark, light = counts[brightness < 100].sum(), counts[brightness > 180].sum()
    assert paper < 60 if scheme == "dark" else paper > 220
    assert min(dark, light) > 1000


def test_errors_of_a_page_would_be_seen(
    chromium: str, content: ReportContent, tmp_path: Path
) -> None:
    text = page(content).replace("</body>", "<script>nothing_there()</script></body>")
    free = re.sub("<meta http-equiv[^>]*>", "", text)
    written = tmp_path / "broken.html"
    written.write_text(free, encoding="utf-8")
    _, console = run(chromium, tmp_path, written)
    assert len(console) == 1
    assert "nothing_there is not defined" in console[0]
    with pytest.raises(AssertionError, match="nothing_there is not defined"):
        look(chromium, tmp_path, free, 1280)
    # As the page is, no script runs at all, and that is seen as well.
    written.write_text(text, encoding="utf-8")
    _, console = run(chromium, tmp_path, written)
    assert len(console) == 1
    assert "Content Security Policy" in console[0]


def test_text_that_is_too_wide_or_too_small_would_be_seen(
    chromium: str, content: ReportContent, tmp_path: Path
) -> None:
    wrong = '<pre style="width:3000px">wide</pre><p style="font-size:3px">small</p></main>'
    found = look(chromium, tmp_path, page(content).replace("</main>", wrong), 1280)
    assert found["width"] > 3000
    assert found["hidden"] == ["PRE"]
    assert found["smallest"] == 3


def in_scheme(scheme: str) -> str:
    return f"--blink-settings=preferredColorScheme={SCHEMES.index(scheme)}"


def _filters(picture: Any) -> int:
    return len(picture.filters)


def _brightness(colour: str) -> float:
    red, green, blue = (int(v) for v in re.findall(r"\d+", colour)[:3])
    return (red + green + blue) / 3
