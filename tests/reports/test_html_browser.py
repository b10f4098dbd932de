"""The HTML pages in a real browser: they draw, stay offline, and take nothing in the data for markup."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if CHROMIUM is None:
    pytest.skip("no Chromium here: install it, or name it in CHROMIUM", allow_module_level=True)
playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright drives the browser: pip install it"
)
for library in ("plotly", "jinja2"):
    pytest.importorskip(library, reason="the report needs pip install jinja2 plotly")
pytest.importorskip("sklearn", reason="the probes of an evaluation need pip install scikit-learn")

FLAGS = [
    *("--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
NASTY = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    '<a href="javascript:alert(1)">x</a>',
    "<b>bold</b> & &lt;plain&gt;",
]
ROWS = 300
KINDS = ("split", "folds", "evaluation")
CHARTS = {
    "split": ["map", "mmd", "trace"],
    "folds": ["map", "rest", "trace"],
    "evaluation": ["gain-train", "gain-refit", "curve", "mmd", "ranks"],
}
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
INKS = "[...document.querySelectorAll('.chart')].map((chart) => chart._fullLayout.font.color)"
CUT_OFF = """() => {
    const cut = [];
    for (const chart of document.querySelectorAll(".chart")) {
        const box = chart.getBoundingClientRect();
        for (const text of chart.querySelectorAll("svg text")) {
            const own = text.getBoundingClientRect();
            const outside = own.left < box.left - 1 || own.right > box.right + 1
                || own.top < box.top - 1 || own.bottom > box.bottom + 1;
            if (own.width && outside) cut.push(`${chart.id}: ${text.textContent}`);
        }
        for (const bar of chart.querySelectorAll(".legend .scrollbar"))
            if (bar.getBoundingClientRect().height) cut.push(`${chart.id}: a legend that scrolls`);
    }
    for (const caption of document.querySelectorAll("caption")) {
        const [own, box] = [caption, caption.closest(".scroll")].map((part) => part.getBoundingClientRect());
        if (own.right > box.right + 1) cut.push(caption.textContent.trim());
    }
    return cut;
}"""
POOR_CONTRAST = """() => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const luminance = (rgb) =>
        [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => sum + weight * linear(rgb[i] / 255), 0);
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const ground = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = rgba(getComputedStyle(at).backgroundColor);
            if (colour[3] > 250) return colour;
        }
        return [255, 255, 255];
    };
    const texts = "h1,h2,p,td,th,dt,dd,figcaption,caption,summary,.side,.state,button,pre,small,b";
    const poor = new Set();
    for (const element of document.querySelectorAll(texts)) {
        const shown = element.textContent.trim() && element.getClientRects().length;
        if (!shown || element.closest(".chart, .sr")) continue;
        const [a, b] = [luminance(rgba(getComputedStyle(element).color)), luminance(ground(element))];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < 4.5) poor.add(`${element.className || element.tagName} ${contrast.toFixed(2)}`);
    }
    return [...poor];
}"""


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows whose every name is an attack."""
    folder = tmp_path_factory.mktemp("nasty")
    rng = np.random.default_rng(3)
    labels = np.array(NASTY)[np.arange(ROWS) % len(NASTY)]
    table = pa.table(
        {
            **{f"<i>f{column}": rng.normal(size=ROWS) for column in range(3)},
            "label": labels,
            "domain": np.array(["{{ 7 * 7 }}", '"><svg onload=alert(1)>'])[rng.integers(0, 2, ROWS)],
            "name": [f"<u>{row}</u><script>alert({row})</script>" for row in range(ROWS)],
        }
    )
    path = folder / "<i>feats.parquet"
    pq.write_table(table, path)
    return path


@pytest.fixture(scope="module")
def pages(features: Path) -> dict[str, Path]:
    """A page of every kind, by the command that makes it."""
    short = ["--search", "4", "--repeats", "1", "--effort", "fast", "--restarts", "2", "--jobs", "1"]
    words: dict[str, list[str]] = {
        "split": ["split", "--id", "name"],
        "folds": ["kfold", "--id", "name", "--k", "4", "--restarts", "4"],
        "evaluation": ["evaluate", "--refit", "--curve", "--probe", "logreg", *short],
    }
    for kind, (command, *options) in words.items():
        given = [command, str(features), "--columns", "<i>f*", "--html", "--quiet", *options]
        assert run([*given, "--out", str(features.parent / kind)]) == 0
    return {kind: features.parent / kind / "report.html" for kind in words}


@dataclass
class Visit:
    """A page that was opened, and everything it did that it should not."""

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield chromium
        chromium.close()


def open_page(browser: Any, file: Path, *, width: int = 1280, scheme: str = "light") -> Visit:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    seen = Visit(context.new_page())
    seen.page.on("console", lambda m: seen.errors.append(m.text) if m.type == "error" else None)
    seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.on("dialog", lambda dialog: (seen.dialogs.append(dialog.message), dialog.dismiss()))
    seen.page.goto(file.as_uri())
    seen.page.wait_for_selector("html[data-ready=yes]", timeout=60_000)
    return seen


@pytest.fixture(scope="module")
def visit(browser: Any, pages: dict[str, Path]) -> Callable[..., Visit]:
    """Open a page of a kind; once for all tests that look at it so, since opening is what takes time."""

    @cache
    def opened(kind: str, *, width: int = 1280, scheme: str = "light") -> Visit:
        return open_page(browser, pages[kind], width=width, scheme=scheme)

    return opened


@pytest.fixture(scope="module")
def light(visit: Callable[..., Visit]) -> Visit:
    """A wide, light page of a split."""
    return visit("split")


def hover_over_a_row(page: Any, row: int) -> str:
    """Point at a row of the map and return what is shown."""
    page.locator("#map").scroll_into_view_if_needed()
    page.evaluate("document.getElementById('map').scrollIntoView({ block: 'center' })")
    place = page.evaluate(
        """(row) => {
            const map = document.getElementById("map"), at = data_index(row);
            function data_index(row) {
                for (const trace of map._fullData) {
                    const index = trace.text.findIndex((text) => text.includes(`(row ${row})`));
                    if (index >= 0) return [trace.x[index], trace.y[index]];
                }
            }
            const box = map.querySelector(".nsewdrag").getBoundingClientRect();
            const { xaxis, yaxis } = map._fullLayout;
            return [box.left + xaxis.d2p(at[0]), box.top + yaxis.d2p(at[1])];
        }""",
        row,
    )
    page.mouse.move(place[0] - 3, place[1])
    page.mouse.move(*place, steps=3)
    page.wait_for_selector("#map .hoverlayer .hovertext", timeout=10_000)
    return str(page.evaluate("document.querySelector('#map .hoverlayer').textContent"))


def test_the_page_draws_without_errors_requests_or_running_anything_of_the_data(
    light: Visit, pages: dict[str, Path]
) -> None:
    page = light.page
    for colour in page.locator("#colour-by input").all():
        colour.check()
        page.wait_for_timeout(200)
    assert page.locator("#map .nsewdrag").count() == 1
    assert page.locator("#mmd .point").count() >= 21
    page.locator("details.fold", has=page.locator("#trace")).locator("summary").first.click()
    page.wait_for_timeout(200)
    assert page.locator("#trace .point").count() >= 2
    assert light.errors == []
    assert light.dialogs == []
    assert light.requests == [pages["split"].as_uri()]


def test_names_that_look_like_markup_are_shown_as_they_are(light: Visit) -> None:
    page = light.page
    page.locator("#colour-by input[value='category:label']").check()
    page.wait_for_timeout(300)
    legend = page.locator("#map .legend text.legendtext").all_text_contents()
    assert sorted(legend) == sorted(NASTY)
    assert page.locator("table.heat tbody th").all_text_contents() == sorted(NASTY)
    assert (
        page.evaluate("document.querySelectorAll('main img, main svg[onload], main a[href], main u').length")
        == 0
    )
    assert "<i>feats.parquet" in page.title()


def test_hovering_shows_id_label_and_domain(light: Visit) -> None:
    page = light.page
    shown = hover_over_a_row(page, 7)
    assert "<u>7</u><script>alert(7)</script>" in shown
    assert f"label: {NASTY[7 % len(NASTY)]}" in shown
    assert "domain: " in shown
    assert "side: " in shown


def test_every_start_has_its_line_in_the_chart_of_the_objective(light: Visit) -> None:
    drawn = light.page.evaluate("document.getElementById('trace').data.map((line) => [line.name, line.y])")
    assert [name for name, _ in drawn].count("winning start") == 1
    assert len(drawn) == 10
    assert all(len(line) >= 2 and line[0] > line[-1] for _, line in drawn)


def test_folds_are_drawn_in_both_themes_without_errors_or_requests(
    visit: Callable[..., Visit], pages: dict[str, Path]
) -> None:
    for scheme in ("light", "dark"):
        seen = visit("folds", scheme=scheme)
        page = seen.page
        for choice in page.locator("#colour-by input, #show input").all():
            choice.check()
            page.wait_for_timeout(100)
        assert page.locator("#colour-by label, #show label").all_text_contents() == [
            *("fold", "label", "domain", "witness"),
            *("all rows", "fold_0", "fold_1", "fold_2", "fold_3"),
        ]
        page.locator("#show input").first.check()
        page.locator("#colour-by input").first.check()
        page.wait_for_timeout(200)
        legend = page.locator("#map .legend text.legendtext").all_text_contents()
        assert legend == ["fold_0", "fold_1", "fold_2", "fold_3"]
        assert "fold: fold_" in hover_over_a_row(page, 7)
        assert page.locator("#rest .point").count() == 21 * 4
        assert (seen.errors, seen.dialogs, seen.requests) == ([], [], [pages["folds"].as_uri()])
        assert page.locator("main img, main svg[onload], main a[href], main u").count() == 0


def test_an_evaluation_is_drawn_in_both_themes_without_errors_or_requests(
    visit: Callable[..., Visit], pages: dict[str, Path]
) -> None:
    report = json.loads(pages["evaluation"].with_name("report.json").read_text("utf-8"))
    strategies = [score["strategy"] for score in report["protocols"][0]["strategies"]]
    for scheme in ("light", "dark"):
        seen = visit("evaluation", scheme=scheme)
        page = seen.page
        for protocol in ("train", "refit"):
            marks = page.locator(f"#gain-{protocol} .point").count()
            assert marks == len(strategies) - 1  # all but the reference
        curves = report["curve"]["domains"]
        drawn = page.locator("#curve .legend text.legendtext").all_text_contents()
        assert sorted(drawn) == sorted(found["domain"] for found in curves)
        assert page.locator("#curve .point").count() == 2 * len(curves)  # what is expected, and found
        ranked = [score for score in report["training_sets"] if score["rank_correlation"]]
        assert page.locator("#ranks .point").count() == len(ranked) > 1
        with_split = [run["strategy"] for run in report["runs"] if run["mmd"] is not None]
        legend = page.locator("#mmd .legend text.legendtext").all_text_contents()
        assert sorted(legend) == sorted(set(with_split) - {"oracle"})
        marked = page.evaluate(
            "document.getElementById('mmd').data.map(({ marker }) => [marker.color, marker.symbol])"
        )
        assert len({tuple(pair) for pair in marked}) == len(legend)
        domains = page.evaluate("document.getElementById('mmd').data.flatMap((trace) => trace.text)")
        assert set(domains) == {"{{ 7 * 7 }}", '"&gt;&lt;svg onload=alert(1)&gt;'}
        assert (seen.errors, seen.dialogs, seen.requests) == ([], [], [pages["evaluation"].as_uri()])
        assert page.locator("main img, main svg[onload], main a[href], main u").count() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_outside_the_file_can_be_loaded_even_by_a_script_in_it(
    browser: Any, pages: dict[str, Path], kind: str
) -> None:
    seen = open_page(browser, pages[kind])
    refused = seen.page.evaluate(
        """async () => {
            const found = [];
            addEventListener("securitypolicyviolation", (event) => found.push(event.effectiveDirective));
            const ask = (tag, more) => document.head.append(Object.assign(document.createElement(tag), more));
            ask("script", { src: "http://127.0.0.1:9/x.js" });
            ask("link", { rel: "stylesheet", href: "http://127.0.0.1:9/x.css" });
            ask("img", { src: "http://127.0.0.1:9/x.png" });
            ask("iframe", { src: "http://127.0.0.1:9/" });
            await fetch("http://127.0.0.1:9/").catch(() => {});
            await new Promise((done) => setTimeout(done, 300));
            return found.sort();
        }"""
    )
    assert refused == ["connect-src", "frame-src", "img-src", "script-src-elem", "style-src-elem"]
    seen.page.context.close()


def test_the_matrix_of_folds_is_that_of_the_report(
    visit: Callable[..., Visit], pages: dict[str, Path]
) -> None:
    report = json.loads(pages["folds"].with_name("report.json").read_text("utf-8"))
    page = visit("folds", width=400).page
    rows = page.locator("#pairs-title ~ .scroll tbody tr")
    for place, values in enumerate(report["parts"]["mmd"]):
        shown = rows.nth(place).locator("td b").all_text_contents()
        expected = [value for other, value in enumerate(values) if other != place]
        assert [float(text) for text in shown[:-1]] == pytest.approx(expected, rel=5e-3)
        assert float(shown[-1]) == pytest.approx(report["parts"]["parts"][place]["mmd_rest"], rel=5e-3)


def test_the_keyboard_reaches_every_control_and_shows_where_it_is(light: Visit) -> None:
    page = light.page
    page.locator(".skip").focus()
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                """() => {
                    const now = document.activeElement;
                    const ringed = now.type === "radio" ? now.nextElementSibling : now;
                    const { outlineStyle, outlineWidth } = getComputedStyle(ringed);
                    const name = now.id || now.name || now.tagName;
                    return [name, outlineStyle !== "none" && outlineWidth !== "0px"];
                }"""
            )
        )
    reached = reached[: [*(name for name, _ in reached), "BODY"].index("BODY")]  # after the last control
    names = [name for name, _ in reached]
    assert {"theme", "colour", "show", "SUMMARY"} <= set(names)
    assert all(ringed for _, ringed in reached), reached
    page.locator("#colour-by input").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(200)
    assert page.evaluate("document.querySelector('#colour-by input:checked').value") == "category:label"
    assert page.evaluate("document.getElementById('map').data.length") == 2 * len(NASTY)


@pytest.mark.parametrize("kind", KINDS)
def test_light_and_dark_follow_the_system_and_the_button(visit: Callable[..., Visit], kind: str) -> None:
    light, dark = visit(kind).page, visit(kind, scheme="dark").page
    assert light.evaluate(BACKGROUND) != dark.evaluate(BACKGROUND)
    assert set(light.evaluate(INKS)).isdisjoint(dark.evaluate(INKS))
    dark.locator("#theme").click()
    dark.wait_for_timeout(300)
    assert light.evaluate(BACKGROUND) == dark.evaluate(BACKGROUND)
    assert light.evaluate(INKS) == dark.evaluate(INKS)
    dark.locator("#theme").click()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_cut_off_and_the_page_needs_no_scrolling_sideways(
    visit: Callable[..., Visit], kind: str, width: int
) -> None:
    page = visit(kind, width=width).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CUT_OFF) == []


@pytest.mark.parametrize("kind", KINDS)
def test_paper_is_light_and_has_no_buttons(visit: Callable[..., Visit], kind: str) -> None:
    page = visit(kind, scheme="dark").page
    page.emulate_media(media="print", color_scheme="dark")
    page.wait_for_timeout(500)
    assert page.evaluate(BACKGROUND) == "rgb(255, 255, 255)"
    assert page.locator("#theme:visible, #copy:visible, .controls:visible").count() == 0
    assert set(page.evaluate(INKS)) == {"#1a2130"}
    page.emulate_media(media="screen", color_scheme="dark")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_folded_away_is_on_paper_too(visit: Callable[..., Visit], kind: str) -> None:
    page = visit(kind).page
    opened = "[...document.querySelectorAll('details')].map((part) => part.open)"
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.onPaper = {opened}; }})")
    before = page.evaluate(opened)
    page.pdf()
    assert False in before
    assert set(page.evaluate("window.onPaper")) == {True}
    assert page.evaluate(opened) == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(visit: Callable[..., Visit], kind: str, scheme: str) -> None:
    """WCAG AA: a contrast of 4.5 for text of ordinary size, in both themes."""
    assert visit(kind, scheme=scheme).page.evaluate(POOR_CONTRAST) == []


@pytest.mark.parametrize("kind", KINDS)
def test_landmarks_headings_and_tables_are_there_for_screen_readers(
    visit: Callable[..., Visit], kind: str
) -> None:
    page = visit(kind).page
    assert [page.locator(name).count() for name in ("header", "main", "footer", "h1")] == [1, 1, 1, 1]
    unnamed = """() => [...document.querySelectorAll("section, .chart[role=img]")]
        .map((part) => part.getAttribute("aria-describedby") ?? part.getAttribute("aria-labelledby"))
        .filter((id) => !document.getElementById(id)?.textContent.trim())"""
    assert page.evaluate(unnamed) == []
    charts = page.locator(".chart[role=img]")
    assert [chart.get_attribute("id") for chart in charts.all()] == CHARTS[kind]
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.evaluate("[...document.querySelectorAll('thead th')].every((h) => h.scope === 'col')")


@pytest.mark.parametrize("kind", KINDS)
def test_a_browser_that_cannot_unpack_the_charts_says_so_and_keeps_the_rest(
    browser: Any, pages: dict[str, Path], kind: str
) -> None:
    page = browser.new_context().new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.add_init_script("delete window.DecompressionStream")
    page.goto(pages[kind].as_uri())
    page.wait_for_function("document.querySelector('.chart').textContent !== ''")
    said = page.locator(".chart").all_text_contents()
    assert set(said) == {"This browser cannot draw the charts; every table works without them."}
    before = page.evaluate(BACKGROUND)
    page.locator("#theme").click()
    assert page.evaluate(BACKGROUND) != before
    assert errors == []
    page.context.close()
