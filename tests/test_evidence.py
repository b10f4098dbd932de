"""The evidence: what the pages say is what the results hold, and the results are what was trained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks.evidence import frozen, page
from benchmarks.evidence.networks import choices, pictures, power, strategies
from benchmarks.evidence.pool import Number, Pool, Study, all_studies
from clustersplit_cli.evaluation.strategies import DEFAULT

RESULTS = Path(choices.RESULTS)


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool(all_studies())


@pytest.mark.parametrize(("path", "made"), [(page.PAGE, page.page_of), (page.README, page.readme_of)])
def test_the_pages_say_what_the_results_hold(path: Path, made: Any, pool: Pool) -> None:
    text = path.read_text("utf-8")
    assert made(text, pool) == text, "run python -m benchmarks.evidence.page --write"


def test_the_pooled_results_and_the_figure_are_those_of_the_lines(pool: Pool) -> None:
    assert json.loads(page.POOLED.read_text("utf-8")) == page.results_of(pool)
    assert page.FIGURE.read_text("utf-8") == page.figure(pool)


def test_evaluate_does_not_by_default_try_cells_that_clearly_lose(pool: Pool) -> None:
    assert pool.pooled("cluster-rbf:label").gain.high < 0
    assert not [name for name in DEFAULT if name.endswith(":label")]


def test_every_training_was_written_once_and_is_an_accuracy() -> None:
    for path in RESULTS.glob("*-*.jsonl"):
        lines = choices.lines_of(path)
        names = ("e", "r", "s", "f", "c" if path.stem.endswith("splits") else "p")
        assert len({tuple(line[name] for name in names) for line in lines}) == len(lines) > 0
        for line in lines:
            values = [line["mmd"]] if "mmd" in line else [line["t"], *(line["v"] or ())]
            assert all(0 <= value <= 1 for value in values if value is not None), (path, line)


def write(folder: Path, lines: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "rotated-erm.jsonl").write_text(text, encoding="utf-8")


def line(
    strategy: str, setting: int, val: list[float | None] | None, test: float, fold: int = 0
) -> dict[str, Any]:
    return {"e": "a", "r": 0, "s": strategy, "f": fold, "p": setting, "v": val, "t": test}


def test_each_strategy_takes_the_setting_that_is_best_on_its_validation_rows(tmp_path: Path) -> None:
    write(
        tmp_path,
        [
            *(line("random", p, [v, v], t) for p, (v, t) in enumerate([(0.5, 0.4), (0.9, 0.3), (0.6, 0.5)])),
            *(
                line("cluster-rbf", p, [v, 0.3], t)
                for p, (v, t) in enumerate([(0.2, 0.4), (0.3, 0.1), (None, 0.6)])
            ),
            *(line("leave-one-domain-out", p, [p / 9], 0.1 * (p + f), f) for f in (0, 1) for p in range(3)),
            *(line("all", p, None, t) for p, t in enumerate([0.7, 0.8, 0.6])),
        ],
    )
    runs = {run.strategy: run for run in choices.runs_of("rotated", "erm", results=tmp_path)}
    assert set(runs) == {"random", "cluster-rbf", "leave-one-domain-out", "oracle"}
    assert (runs["random"].setting, runs["random"].test, runs["random"].refit) == (1, 0.3, 0.8)
    assert (runs["oracle"].test, runs["oracle"].refit) == (0.5, 0.8)
    assert (runs["cluster-rbf"].setting, runs["cluster-rbf"].validation) == (1, 0.3)
    assert runs["leave-one-domain-out"].setting == 2
    assert runs["leave-one-domain-out"].test == pytest.approx(0.25)
    worst = {run.strategy: run for run in choices.runs_of("rotated", "erm", "worst", tmp_path)}
    assert worst["cluster-rbf"].setting == 1 and worst["cluster-rbf"].validation == 0.3


def test_a_round_that_is_not_finished_does_not_count(tmp_path: Path) -> None:
    whole = [line("random", p, [0.5], 0.4) for p in range(3)] + [line("all", p, None, 0.4) for p in range(3)]
    write(tmp_path, [*whole, *(line("cluster-rbf", p, [0.5], 0.4) for p in range(2))])
    assert {run.strategy for run in choices.runs_of("rotated", "erm", results=tmp_path)} == {
        "random",
        "oracle",
    }


@pytest.mark.parametrize(("domains", "repeats"), [(6, 1), (6, 4), (18, 2)])
def test_the_detectable_gain_is_found_with_the_power_asked_for(domains: int, repeats: int) -> None:
    gain = power.detectable(3.0, domains, repeats)
    shift = gain / (3.0 / (domains * repeats) ** 0.5)
    exact = stats.nct.sf(stats.t.ppf(1 - power.LEVEL / 2, domains - 1), domains - 1, shift)
    assert exact == pytest.approx(power.POWER, abs=0.02)
    assert power.detectable(3.0, domains, power.needed(3.0, domains, gain)) <= gain + 1e-9


def test_the_interval_of_many_domains_is_the_normal_one() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(2.0, 5.0, size=400)
    se = float(np.std(values, ddof=1) / 20)
    numbers = {"cluster-rbf": dict.fromkeys(("gain", "gap_gain"), Number(float(values.mean()), se, values))}
    of_lines = Pool([Study("rotated", "erm", 400, 1, 10, numbers, whole=True)]).pooled("cluster-rbf").gain
    half = stats.t.ppf(0.975, 399) * se
    assert of_lines.low == pytest.approx(values.mean() - half, abs=0.03)
    assert of_lines.high == pytest.approx(values.mean() + half, abs=0.03)
    tabled = {"cluster-rbf": dict.fromkeys(("gain", "gap_gain"), Number(float(values.mean()), se))}
    of_table = Pool([Study("gas_drift", "probes", 400, 1, 10, tabled)]).pooled("cluster-rbf").gain
    assert of_table.low == pytest.approx(values.mean() - half, abs=0.03)


def test_an_interval_of_six_domains_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(200):
        values = rng.normal(1.0, 3.0, size=6)
        found = Number(float(values.mean()), None, values)
        drawn = found.draw(6, rng)
        low, high = np.percentile(drawn, [2.5, 97.5])
        inside += int(low <= 1.0 <= high)
    assert stats.binomtest(inside, 200, 0.95).pvalue > 0.01  # 95 %, but for chance


def test_the_tables_of_frozen_features_are_drawn_from_their_numbers() -> None:
    records = json.loads(frozen.RESULTS.read_text("utf-8"))
    text = "\n".join("\n".join(frozen.table(record)) for record in records)
    assert "| cluster-rbf:joint | 65.6 ± 1.1 | +4.5 ± 1.5 | 44 ± 14 | 67.2 ± 1.3 |" in text
    assert sum(record["trainings"] for record in records) == 34_980


def test_a_random_split_keeps_the_share_of_every_cell() -> None:
    codes = np.repeat(np.arange(4), [5, 10, 23, 62])
    members = strategies.draw(codes, 3)
    assert np.bincount(codes[members], minlength=4).tolist() == [1, 2, 5, 12]


@pytest.mark.skipif(not (pictures.DATA / "mnist_usps.parquet").exists(), reason="needs the shared data")
def test_no_picture_is_in_two_domains_and_every_domain_has_every_digit() -> None:
    found = pictures.rotated()
    assert found.pixels.shape == (2000, 1, 16, 16)
    for code in range(len(found.names)):
        assert len(np.unique(found.labels[found.domains == code])) == 10
    upright = found.pixels[found.domains == 0].reshape(-1, 256)
    features, _, domains = pictures.read("mnist_usps")
    originals = {row.tobytes() for row in features[domains == "mnist"]}
    assert all(row.tobytes() in originals for row in upright)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Small pictures of ten classes in three domains, and settings of five steps."""
    pytest.importorskip("torch", reason="needs clustersplit[bench]")
    from benchmarks.evidence.networks import run

    rng = np.random.default_rng(0)
    labels, domains = np.tile(np.arange(10), 30), np.repeat(np.arange(3), 100)
    pixels = rng.normal(labels[:, None, None, None], 1 + domains[:, None, None, None], (300, 1, 8, 8))
    for algorithm in ("erm", "coral", "dann"):
        text = (run.HERE / f"{algorithm}.toml").read_text("utf-8")
        (tmp_path / f"{algorithm}.toml").write_text(
            text.replace("steps = 300", "steps = 5").replace("steps = 600", "steps = 5")
        )
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "SETTINGS", 2)
    monkeypatch.setitem(run.FINE_TUNING, "steps", 5)
    made = pictures.Pictures(pixels.astype(np.float32), labels, domains, ("a", "b", "c"))
    stage = run.Stage(("tiny",), ("erm", "coral", "dann"), (*run.CORE, "leave-one-domain-out"), range(1))

    def train(folder: Path, deadline: float = float("inf")) -> int:
        return int(run.Campaign(folder, {"tiny": made}, deadline).run([stage]))

    yield train


@pytest.mark.filterwarnings("ignore::clustersplit.ClusterSplitWarning")
def test_the_same_seed_gives_the_same_lines_also_after_an_interruption(tiny: Any, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert tiny(whole) == 3 * 3 * (4 + 2) * 2
    assert tiny(whole) == 0
    assert tiny(cut, deadline=0.0) == 0
    cut.mkdir(exist_ok=True)
    text = (whole / "tiny-erm.jsonl").read_text("utf-8")
    (cut / "tiny-erm.jsonl").write_text(text[: len(text) // 2], encoding="utf-8")  # within a line
    tiny(cut)
    for path in whole.iterdir():
        assert sorted(path.read_text("utf-8").splitlines()) == sorted(
            (cut / path.name).read_text("utf-8").splitlines()
        ), path.name
