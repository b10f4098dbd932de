"""Every page has the same frame, and nothing outside its file."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run

for library in ("plotly", "jinja2"):
    pytest.importorskip(library, reason="the report needs pip install jinja2 plotly")
pytest.importorskip("sklearn", reason="the probes of an evaluation need pip install scikit-learn")

COMMANDS = {
    "split": "split",
    "parts": "split --parts train=0.6,val=0.2,test=0.2",
    "folds": "kfold --k 3",
    "evaluation": "evaluate --search 2 --repeats 1 --probe logreg --strategy random:joint,mix-up",
}
POLICY = {
    "default-src": "'none'",
    "script-src": "'unsafe-inline' 'unsafe-eval'",
    "style-src": "'unsafe-inline'",
    "img-src": "data: blob:",
    "font-src": "data:",
    "base-uri": "'none'",
    "form-action": "'none'",
}


class Page(HTMLParser):
    """The tags of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.in_script = False
        self.feed(text)
        self.text = text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.in_script = tag == "script"
        self.scripts += [""] * self.in_script

    def handle_endtag(self, tag: str) -> None:
        self.in_script = False

    def handle_data(self, data: str) -> None:
        if self.in_script:
            self.scripts[-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Page]:
    """Return a function that makes the page of a kind, once."""
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(2)
    columns = {f"f{column}": rng.normal(size=90) for column in range(3)}
    table = pa.table({**columns, "label": list("abc") * 30, "domain": np.repeat([1, 2, 3], 30)})
    pq.write_table(table, folder / "feats.parquet")
    made: dict[str, Page] = {}

    def make(kind: str) -> Page:
        if kind not in made:
            command, *options = COMMANDS[kind].split()
            given = [command, str(folder / "feats.parquet"), *options, "--restarts", "2", "--html", "--quiet"]
            assert run([*given, "--out", str(folder / kind)]) == 0
            made[kind] = Page(Path(folder, kind, "report.html").read_text("utf-8"))
        return made[kind]

    return make


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_page_may_load_nothing_and_asks_for_nothing(page: Callable[[str], Page], kind: str) -> None:
    seen = page(kind)
    (policy,) = [
        tag["content"] for tag in seen.all("meta") if tag.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    assert dict(part.strip().split(" ", 1) for part in policy.split(";")) == POLICY
    assert [tag for tag, _ in seen.tags].index("meta") < [tag for tag, _ in seen.tags].index("script")
    sources = [
        value for _, attributes in seen.tags for name in ("src", "href") if (value := attributes.get(name))
    ]
    assert sources == ["#main"]
    assert not {"link", "iframe", "img", "object"} & {tag for tag, _ in seen.tags}
    own, _, rest = seen.text.partition('id="plotly"')
    assert not re.search(r"https?://|@import|url\(", own + rest.partition("</script>")[2])


@pytest.mark.parametrize("kind", COMMANDS)
def test_all_pages_have_the_same_frame_and_start_up(page: Callable[[str], Page], kind: str) -> None:
    seen, other = page(kind), page("split")
    assert seen.text.startswith("<!doctype html>")
    assert [tag.get("type") for tag in seen.all("script")] == ["application/json", "text/plain", None, None]
    assert seen.scripts[2] == other.scripts[2]  # page.js
    assert seen.scripts[3].count("page.start(") == 1
    for words in (
        r'<button type="button" id="theme" hidden>',
        r'<section aria-labelledby="warnings-title"',
        r"<noscript>.*every table works without it",
        r"<footer><p>Made by clustersplit",
    ):
        assert re.search(words, seen.text), words
    assert len(seen.all("h1")) == len(seen.all("main")) == len(seen.all("title")) == 1
    ids = [tag["id"] for _, tag in seen.tags if "id" in tag]
    assert len(ids) == len(set(ids))
