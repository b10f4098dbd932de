"""`clustersplit ladder`: graded splits at several levels, published together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest

from clustersplit import ClusterLadderSplit, cluster_ladder
from clustersplit_cli.cli.app import run
from clustersplit_cli.reports.json_report import report_schema
from tests.cli.conftest import matrix

WORDS = ("ladder", "feats.parquet", "--effort", "fast", "--restarts", "2", "--quiet")
SHORT = (*WORDS, "--levels", "0,0.5,1", "--repeats", "2")


def ladder(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "feats_ladder/ladder.json").read_text())
    return found


@pytest.mark.parametrize("engine", ["local", "stream"])
def test_every_run_is_that_of_split_and_the_mmd_rises(
    split: Callable[..., Any], folder: Path, engine: str
) -> None:
    more = ("--engine", engine, "--nystrom", "40")
    assert run([*SHORT, *more]) == 0
    found = ladder(folder)
    jsonschema.validate(found, report_schema("ladder"))
    assert [each["level"] for each in found["levels"]] == [0, 0.5, 1]
    means = [each["mmd_mean"] for each in found["levels"]]
    assert means[0] < means[1] < means[2]
    names = [f"level_{level}/repeat_{repeat}" for level in ("0", "0.5", "1") for repeat in (0, 1)]
    assert [each["directory"] for each in found["runs"]] == names
    for each in found["runs"]:
        content = json.loads((folder / "feats_ladder" / each["directory"] / "report.json").read_text())
        assert content["mmd"]["value"] == each["mmd"]
        assert content["constraints"]["all_satisfied"]
        assert (content["graded"] is None) == (content["certificate"] is not None) == (each["level"] == 1)
        assert run(["verify", f"feats_ladder/{each['directory']}", "--quiet"]) == 0
    words = ("feats.parquet", *more, "--restarts", "2", "--severity", "0.5", "--seed", "1", "--out", "one")
    assert split(*words).code == 0
    for name in ("train.npy", "val.npy"):
        there = folder / "feats_ladder/level_0.5/repeat_1" / name
        assert (folder / "one" / name).read_bytes() == there.read_bytes()
    one, other = (
        json.loads((folder / place / "report.json").read_text())
        for place in ("one", "feats_ladder/level_0.5/repeat_1")
    )
    ignored = {"timing", "engine"}
    assert {key: one[key] for key in one if key not in ignored} == {
        key: other[key] for key in other if key not in ignored
    }


@pytest.mark.parametrize("engine", ["local", "stream"])
def test_a_target_has_its_place_on_the_scale(folder: Path, engine: str) -> None:
    table = pq.read_table("feats.parquet")
    is_art = np.asarray(table["domain"]) == "art"
    pq.write_table(table.filter(is_art).drop(["label", "domain"]), "field.parquet")
    pq.write_table(table.filter(~is_art), "feats.parquet")
    words = [*SHORT, "--engine", engine, "--nystrom", "40", "--target", "field.parquet", "--html"]
    assert run(words) == 0
    found = ladder(folder)
    jsonschema.validate(found, report_schema("ladder"))
    place = found["target"]
    assert (place["name"], place["n_rows"]) == ("field.parquet", int(is_art.sum()))
    severities = []
    for each in found["runs"]:
        report = json.loads((folder / "feats_ladder" / each["directory"] / "report.json").read_text())
        assert report["target"]["mmd"] == each["target_mmd"]
        severities.append(report["target"]["severity"])
    assert place["severity"] == pytest.approx(np.mean(severities))
    assert "severity of the target" in (folder / "feats_ladder/ladder.html").read_text("utf-8")
    assert run(["verify", "feats_ladder/level_0.5/repeat_0", "--quiet"]) == 0
    assert run([*SHORT, "--target", "nowhere.parquet", "--force"]) == 2
    assert ladder(folder) == found


def test_it_appears_whole_or_not_at_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("clustersplit_cli.cli.commands.ladder.summarize_ladder", fail)
        assert run(list(SHORT)) == 2
    assert sorted(entry.name for entry in folder.iterdir()) == ["feats.parquet"]


def test_an_earlier_one_is_replaced_by_force_alone_and_strangers_are_kept(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*WORDS, "--levels", "0,1", "--repeats", "1"]
    assert run(words) == 0
    assert run(words) == 2
    assert run([*words, "--force"]) == 0
    stranger = folder / "feats_ladder/level_1/notes.txt"
    stranger.write_text("mine", encoding="utf-8")
    capsys.readouterr()
    assert run([*words, "--force"]) == 2
    assert "holds things that no run wrote: level_1" in capsys.readouterr().err
    assert stranger.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--levels", "0,2"], "--levels must lie between 0 and 1, got 2"),
        (["--levels", "0,nan"], "--levels must lie between 0 and 1, got nan"),
        (["--levels", ""], "--levels '' is not a number"),
        (["--levels", "0,hard"], "--levels 'hard' is not a number"),
        (["--levels", "0.5,0.50"], "--levels has 0.5 twice"),
        (["--repeats", "0"], "--repeats must be at least 1, got 0"),
        (["--out", "-", "--format", "txt"], "--out - cannot hold a ladder"),
    ],
)
def test_what_makes_no_sense_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    assert run([*WORDS, *more]) == 2
    assert message in capsys.readouterr().err
    assert [entry.name for entry in folder.iterdir()] == ["feats.parquet"]


def test_stdout_has_ladder_json_and_stderr_a_line_per_level(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for word in SHORT if word != "--quiet"]
    assert run([*words, "--json", "--html"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == ladder(folder)
    assert "severity 0    MMD" in said.err
    assert "ordinary random splits" in said.err
    page = (folder / "feats_ladder/ladder.html").read_text(encoding="utf-8")
    assert "level_0.5/repeat_1" in page
    assert "From severity 0 to 1, the MMD between training and validation goes from" in page


def test_python_makes_the_same_splits(folder: Path) -> None:
    table = pq.read_table("feats.parquet")
    x, y, domains = matrix(table), np.array(table["label"]), np.array(table["domain"])
    assert run(list(SHORT)) == 0
    options: dict[str, Any] = {"effort": "fast", "restarts": 2}
    found = cluster_ladder(x, y, domains, levels=(0, 0.5, 1), repeats=2, **options)
    cv = ClusterLadderSplit((0, 0.5, 1), repeats=2, **options)
    pairs = list(cv.split(x, y, domains=domains))
    assert len(pairs) == cv.get_n_splits() == len(found) == 6
    for each, (train, val) in zip(found, pairs, strict=True):
        place = folder / f"feats_ladder/level_{each.level:g}/repeat_{each.repeat}"
        assert np.array_equal(np.load(place / "val.npy"), each.split.val)
        assert np.array_equal(each.split.val, val)
        assert np.array_equal(each.split.train, train)
    with pytest.raises(ValueError, match="levels must lie between 0 and 1, got 3"):
        cluster_ladder(x, levels=(0, 3))
    with pytest.raises(ValueError, match="severity is no option of a ladder"):
        cluster_ladder(x, severity=0.5)
    with pytest.raises(ValueError, match="aim is no option of a ladder"):
        cluster_ladder(x, aim="lookalike")
    rungs = cluster_ladder(x, y, domains, levels=(0.5,), repeats=1, target=x[:20] + 1, **options)
    assert rungs[0].split.report.target is not None
    assert rungs[0].split.report.target.severity is not None
    with pytest.raises(ValueError, match="repeats must be an integer of at least 1"):
        cluster_ladder(x, repeats=0)
