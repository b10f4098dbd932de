"""What the documentation adds to its theme, in a browser: prompts are not copied, search works from disk."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if CHROMIUM is None:
    pytest.skip("no Chromium here: install it, or name it in CHROMIUM", allow_module_level=True)
playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright drives the browser: pip install it"
)

DOCS = Path(__file__).resolve().parents[1] / "docs"
FLAGS = ["--no-sandbox", "--disable-background-networking", "--no-first-run"]


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    """An empty page of a browser that asks no other machine."""
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        opened = browser.new_page()
        opened.route(re.compile("^https?:"), lambda route: route.abort())
        yield opened
        browser.close()


def test_commands_are_copied_without_prompts_and_output(page: Any, tmp_path: Path) -> None:
    pygments = pytest.importorskip("pygments", reason="pygments is not installed")
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    session = "$ clustersplit split feats.parquet\nwrote feats_split\n$ clustersplit verify feats_split\n"
    code = pygments.highlight(session, get_lexer_by_name("console"), HtmlFormatter(cssclass="highlight"))
    style = (DOCS / "stylesheets" / "extra.css").read_text("utf-8")
    (tmp_path / "page.html").write_text(f"<!doctype html><style>{style}</style>{code}", encoding="utf-8")
    page.goto((tmp_path / "page.html").as_uri())
    seen = page.evaluate("document.querySelector('pre').innerText")
    assert seen.split() == session.split()
    # What the theme's button does: mark the block, and take the text that is left.
    page.evaluate("document.querySelector('pre').setAttribute('data-md-copying', '')")
    copied = page.evaluate("document.querySelector('pre').innerText")
    assert copied.split("\n") != seen.split("\n")
    assert copied.split() == [
        "clustersplit",
        "split",
        "feats.parquet",
        "clustersplit",
        "verify",
        "feats_split",
    ]


def test_a_page_opened_from_disk_has_a_worker_that_answers(page: Any, tmp_path: Path) -> None:
    shutil.copy(DOCS / "javascripts" / "iframe-worker.js", tmp_path)
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "twice.js").write_text("const twice = (number) => 2 * number;", encoding="utf-8")
    (tmp_path / "assets" / "worker.js").write_text(
        "const loaded = importScripts(new URL('twice.js', document.currentScript.src).href);"
        "addEventListener('message', async ({ data }) => {"
        "  if (typeof data !== 'object') return; await loaded; postMessage(twice(data.number)); });",
        encoding="utf-8",
    )
    (tmp_path / "page.html").write_text(
        "<!doctype html><body><script src='iframe-worker.js'></script><script>"
        "const worker = new Worker('assets/worker.js'); const answers = [];"
        "worker.addEventListener('message', ({ data }) => answers.push(data));"
        "worker.postMessage({ number: 21 });</script></body>",
        encoding="utf-8",
    )
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_function("answers.length > 0", timeout=10_000)
    page.evaluate("worker.postMessage({ number: 4 })")
    page.wait_for_function("answers.length > 1", timeout=10_000)
    assert page.evaluate("answers") == [42, 8]
    page.evaluate("worker.terminate()")
    assert page.evaluate("document.querySelectorAll('iframe').length") == 0


def test_what_the_site_loads_of_its_own_is_in_its_folder() -> None:
    text = (DOCS.parent / "mkdocs.yml").read_text("utf-8")
    own = re.findall(r"(?:stylesheets|javascripts)/[\w.-]+", text)
    assert len(own) == 2
    assert all((DOCS / name).is_file() for name in own)
    assert not re.search(r"https?:", text)
