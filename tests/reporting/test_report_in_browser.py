"""The report in a real browser: nothing is logged, nothing overflows, and text can be read."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from groupella.reporting import Content, page, write_report

PROBE = """<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">
<iframe id="frame" style="border:0;width:WIDTHpx;height:2600px"></iframe><pre id="found"></pre>
<script>
const text = new TextDecoder().decode(Uint8Array.from(atob("REPORT"), c => c.charCodeAt(0)));
const frame = document.getElementById("frame");
frame.onload = () => {
  const page = frame.contentDocument, view = frame.contentWindow, sizes = [], hidden = [];
  page.querySelectorAll("details").forEach(d => { d.open = true; });
  for (const e of page.querySelectorAll("main *")) {
    const box = e.getBoundingClientRect();
    if (box.width && box.right > WIDTH + 1 && !e.closest(".scroll")) hidden.push(e.tagName);
    const own = [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim());
    if (own && box.width) {
      const drawn = e.ownerSVGElement && e.ownerSVGElement.getScreenCTM();
      sizes.push(parseFloat(view.getComputedStyle(e).fontSize) * (drawn ? drawn.a : 1));
    }
  }
  document.getElementById("found").textContent = "FOUND" + JSON.stringify({
    width: page.documentElement.scrollWidth,
    hidden: hidden,
    smallest: Math.min(...sizes),
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
    chromium: str, content: Content, tmp_path: Path, width: int
) -> None:
    found = look(chromium, tmp_path, page([content, content]), width, "--window-size=1400,2700")
    assert found["width"] <= width
    assert found["hidden"] == []
    assert found["smallest"] >= 8
    assert found["images"]
    assert found["pictures"] == 2 * (len(content.examples) + sum(map(_filters, content.filters)))
    assert found["charts"] == 2 * (2 + 3)


def test_page_is_dark_for_readers_who_want_it_dark(
    chromium: str, content: Content, tmp_path: Path
) -> None:
    dark = look(chromium, tmp_path, page(content), 1280, "--blink-settings=preferredColorScheme=0")
    assert _brightness(dark["back"]) < 60 < 180 < _brightness(dark["ink"])


def test_page_opens_alone_without_a_word_on_the_console(
    chromium: str, content: Content, tmp_path: Path
) -> None:
    written = write_report(content, tmp_path / "report.html")
    shot = tmp_path / "shot.png"
    document, console = run(chromium, tmp_path, written, f"--screenshot={shot}")
    assert console == []
    assert "Layer 1 obeys z2, layer 2 obeys nothing" in document


def _filters(picture: Any) -> int:
    return len(picture.filters)


def _brightness(colour: str) -> float:
    red, green, blue = (int(v) for v in re.findall(r"\d+", colour)[:3])
    return (red + green + blue) / 3
