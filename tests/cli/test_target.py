"""Splits for the rows of a target, from the command line to what verify says of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from clustersplit_cli import ClusterShuffleSplit, Split, cluster_split, mmd
from clustersplit_cli.cli.app import run
from clustersplit_cli.engines.shard import Shard
from clustersplit_cli.reports.formatting import human_number

QUICK = ("--effort", "fast", "--restarts", "4", "--quiet", "--force")
AIMS = ("worst", "lookalike", "nearest", "shift", "severity")
Features = NDArray[np.float32]


def rows_of(n: int, shift: float, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    features = (rng.normal(size=(n, 4)) + shift).astype(np.float32)
    columns = {f"f{column}": features[:, column] for column in range(4)}
    return pa.table({**columns, "label": [("a", "b")[row % 2] for row in range(n)]})


def features_of(table: pa.Table) -> Features:
    return np.column_stack([table[f"f{column}"].to_numpy() for column in range(4)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    some, field = rows_of(240, 0.0, 0), rows_of(60, 0.7, 1)
    pq.write_table(some, folder / "rows.parquet", row_group_size=50)
    pq.write_table(field.drop_columns(["label"]), folder / "field.parquet")
    pq.write_table(rows_of(60, 0.0, 2), folder / "same.parquet")
    pq.write_table(rows_of(60, 500.0, 3), folder / "far.parquet")
    pq.write_table(field.drop_columns(["f2"]), folder / "other.parquet")
    pq.write_table(field.slice(0, 0), folder / "empty.parquet")
    pq.write_table(field.set_column(0, "f0", pa.array([np.nan] + [0.0] * 59)), folder / "nan.parquet")
    domains = pa.concat_tables([some, field]).append_column("domain", [["p", "q"] * 120 + ["r"] * 60])
    pq.write_table(domains, folder / "domains.parquet", row_group_size=50)
    np.save(folder / "wide.npy", np.zeros((5, 7)))
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def split(place: Path) -> Callable[..., dict[str, Any]]:
    def call(*words: str) -> dict[str, Any]:
        assert run(["split", *words, *QUICK, "--out", "out"]) == 0
        report: dict[str, Any] = json.loads((place / "out" / "report.json").read_text())
        return report

    return call


@pytest.mark.parametrize("aim", AIMS)
def test_every_aim_states_distances_that_are_those_of_the_definition(
    aim: str, split: Callable[..., dict[str, Any]], place: Path
) -> None:
    report = split("rows.parquet", "--target", "field.parquet", "--aim", aim, "--weights")
    stated, gamma = report["target"], report["mmd"]["gamma"]
    S, E = (features_of(pq.read_table(place / name)) for name in ("rows.parquet", "field.parquet"))
    train, val = (np.load(place / "out" / f"{side}.npy") for side in ("train", "val"))
    assert sorted([*train, *val]) == list(range(240))
    assert all(cell["actual"] == cell["target"] for cell in report["constraints"]["cells"])
    for key, rows in (("mmd", S), ("mmd_train", S[train]), ("mmd_val", S[val])):
        assert stated[key] == pytest.approx(mmd(rows, E, gamma=gamma), rel=1e-5)
    assert stated["valid"] == (report["mmd"]["value"] > max(stated["mmd_train"], stated["mmd_val"]))
    assert stated["p_value"] <= 0.01
    random = report["baselines"]["random"]["mmd_mean"]
    assert stated["severity"] == pytest.approx((stated["mmd"] - random) / (stated["best_mmd"] - random))
    weights = np.load(place / "out" / "val_weights.npy")
    assert weights.shape == val.shape and weights.min() >= 0
    assert weights.mean() == pytest.approx(1.0)
    K = np.exp(-gamma * ((S[val][:, None] - S[val][None]) ** 2).sum(axis=2, dtype=np.float64))
    k = np.exp(-gamma * ((S[val][:, None] - E[None]) ** 2).sum(axis=2, dtype=np.float64)).mean(axis=1)
    among = np.exp(-gamma * ((E[:, None] - E[None]) ** 2).sum(axis=2, dtype=np.float64)).mean()
    p = weights / len(weights)
    assert stated["weights"]["mmd"] ** 2 == pytest.approx(p @ K @ p - 2 * p @ k + among, abs=1e-6)
    assert stated["weights"]["mmd"] <= stated["mmd_val"]
    assert run(["verify", "out", "--rerun", "--quiet"]) == 0


def test_aims_are_better_at_what_they_are_for(split: Callable[..., dict[str, Any]]) -> None:
    found = {aim: split("rows.parquet", "--target", "field.parquet", "--aim", aim) for aim in AIMS}
    near = {aim: report["target"]["mmd_val"] for aim, report in found.items()}
    assert min(near, key=lambda aim: near[aim]) == "nearest"
    hard = {aim: report["mmd"]["value"] for aim, report in found.items()}
    assert max(hard, key=lambda aim: hard[aim]) == "worst"
    target = found["severity"]["target"]
    scale = target["best_mmd"] - found["severity"]["baselines"]["random"]["mmd_mean"]
    assert hard["severity"] == pytest.approx(target["mmd"], abs=0.01 * scale)
    for aim in ("lookalike", "nearest", "shift"):
        certificate = found[aim]["target"]["certificate"]
        assert certificate["status"] in ("optimal", "no exchange gains")


@pytest.mark.parametrize("kernel", [("--kernel", "linear"), ("--nystrom", "40")])
def test_lookalike_is_the_same_on_stream_to_the_row(
    kernel: tuple[str, ...], split: Callable[..., dict[str, Any]], place: Path
) -> None:
    words = ("domains.parquet", "--target", "domain=r", "--aim", "lookalike", *kernel)
    local = split(*words)
    chosen = np.load(place / "out" / "val.npy")
    stream = split(*words, "--engine", "stream")
    assert np.array_equal(np.load(place / "out" / "val.npy"), chosen)
    assert chosen.max() < 240
    for key in ("mmd", "mmd_train", "mmd_val", "p_value"):
        assert stream["target"][key] == pytest.approx(local["target"][key], rel=1e-6)
    assert stream["target"]["certificate"]["status"] == "optimal"
    assert stream["engine"]["name"] == "stream"
    assert run(["verify", "out", "--quiet"]) == 0
    assert run(["verify", "out", "--quiet", "--engine", "stream"]) == 0


def test_a_domain_gives_what_its_rows_in_a_file_give(
    split: Callable[..., dict[str, Any]], place: Path
) -> None:
    stated, chosen = [], []
    for words in (("domains.parquet", "--target", "domain=r"), ("rows.parquet", "--target", "field.parquet")):
        report = split(*words, "--stratify", "label", "--aim", "nearest")
        stated.append({key: report["target"][key] for key in ("mmd", "mmd_val", "p_value", "severity")})
        chosen.append(np.load(place / "out" / "val.npy").tolist())
    assert stated[0] == pytest.approx(stated[1])
    assert chosen[0] == chosen[1]


def test_without_a_shift_an_aim_says_so(split: Callable[..., dict[str, Any]]) -> None:
    report = split("rows.parquet", "--target", "same.parquet", "--aim", "nearest")
    assert report["target"]["p_value"] > 0.1
    (said,) = [note["message"] for note in report["warnings"] if note["code"] == "no_shift"]
    assert "baseline random" in said
    report = split("rows.parquet", "--target", "same.parquet")
    assert not [note for note in report["warnings"] if note["code"] == "no_shift"]


REFUSED = [
    ("--target nowhere.parquet", "nowhere.parquet does not exist", ""),
    ("--target other.parquet", "no column of other.parquet matches 'f2'", "closest"),
    ("--target wide.npy", "wide.npy has 7 features but rows.parquet has 4", "--columns"),
    ("--target empty.parquet", "empty.parquet has no rows", ""),
    ("--target nan.parquet", "1 of 60 rows", "--drop-invalid"),
    ("--target far.parquet", "no row is near the target far.parquet", "same units"),
    ("--target domain=zz", "there is no column 'domain'", ""),
    ("--target site=zz", "site=zz does not exist", "--target domain=zz"),
    ("--target domain=", "names nothing", "domain=sketch"),
    ("--aim nearest", "--aim nearest needs the rows of a target", "--target FILE"),
    ("--weights", "--weights needs the rows of a target", "--target FILE"),
    ("--target field.parquet --aim best", "--aim 'best' is unknown", "lookalike"),
    ("--target field.parquet --aim shift --tolerance 0.1", "--aim shift keeps the quotas", "--tolerance"),
    ("--target field.parquet --aim shift --severity 0.5", "--aim shift and --severity", "one of them"),
    ("--target field.parquet --parts a=0.5,b=0.5", "--target cannot be combined with --parts", ""),
    ("--target field.parquet --aim nearest --engine stream --kernel linear", "needs all rows in memory", ""),
    ("--target field.parquet --weights --engine stream --kernel linear", "needs all rows in memory", ""),
]


@pytest.mark.parametrize(("words", "message", "cure"), REFUSED)
def test_what_cannot_be_used_is_named_with_a_cure(
    words: str, message: str, cure: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["split", "rows.parquet", *words.split(), "--quiet", "--out", "bad"])
    said = capsys.readouterr().err
    assert code == 2, said
    assert message in said and cure in said and "hint:" in said
    assert not (place / "bad").exists()


def test_a_domain_that_does_not_exist_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for engine in ("local", "stream"):
        words = ["--target", "domain=zz", "--engine", engine, "--kernel", "linear", "--quiet"]
        assert run(["split", "domains.parquet", *words, "--out", "bad"]) == 2
        said = capsys.readouterr().err
        assert "--target domain=zz" in said and "its values: p, q, r" in said


def test_changed_weights_and_distances_are_found(split: Callable[..., dict[str, Any]], place: Path) -> None:
    report = split("rows.parquet", "--target", "field.parquet", "--aim", "nearest", "--weights")
    weights = np.load(place / "out" / "val_weights.npy")
    np.save(place / "out" / "val_weights.npy", weights[::-1])
    assert run(["verify", "out", "--quiet"]) == 1
    np.save(place / "out" / "val_weights.npy", weights)
    assert run(["verify", "out", "--quiet"]) == 0
    for key in ("mmd_val", "p_value", "severity"):
        changed = {**report, "target": {**report["target"], key: report["target"][key] / 2}}
        (place / "out" / "report.json").write_text(json.dumps(changed))
        assert run(["verify", "out", "--quiet"]) == 1


def test_python_gives_what_the_command_gives(split: Callable[..., dict[str, Any]], place: Path) -> None:
    report = split("rows.parquet", "--target", "field.parquet", "--aim", "shift", "--weights")
    table = pq.read_table("rows.parquet")
    X, y, E = features_of(table), table["label"].to_pylist(), features_of(pq.read_table("field.parquet"))
    quick: dict[str, Any] = {"target": E, "aim": "shift", "effort": "fast", "restarts": 4}
    found = cluster_split(X, y, weights=True, **quick)
    assert np.array_equal(found.val, np.load(place / "out" / "val.npy"))
    assert found.report.target is not None
    assert found.report.target.mmd_val == pytest.approx(report["target"]["mmd_val"], rel=1e-9)
    read = Split.load("out")
    assert found.weights is not None and read.weights is not None
    assert read.weights == pytest.approx(found.weights)
    ((_, val),) = ClusterShuffleSplit(**quick).split(X, y)
    assert np.array_equal(val, found.val)
    with pytest.raises(ValueError, match="makes one split"):
        next(ClusterShuffleSplit(2, **quick).split(X, y))
    with pytest.raises(ValueError, match="target has 3 features and X has 4"):
        cluster_split(X, y, target=E[:, :3])
    with pytest.raises(ValueError, match="aim='nearest' needs the rows of a target"):
        cluster_split(X, y, aim="nearest")


def test_mmd_and_inspect_take_a_target(
    split: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    report = split("rows.parquet", "--target", "field.parquet", "--aim", "nearest")
    assert run(["mmd", "rows.parquet", "--split", "out", "--target", "field.parquet", "--json", "-q"]) == 0
    validity = json.loads(capsys.readouterr().out)["validity"]
    assert validity["val_evaluation"] == pytest.approx(report["target"]["mmd_val"], rel=1e-5)
    assert validity["valid"] == report["target"]["valid"]
    assert run(["inspect", "rows.parquet", "--target", "field.parquet", "--json"]) == 0
    looked = json.loads(capsys.readouterr().out)["target"]
    assert looked["mmd"] == pytest.approx(report["target"]["mmd"], rel=1e-5)
    assert looked["p_value"] == report["target"]["p_value"]


def test_gamma_power_chooses_what_tells_domains_apart_and_shows_the_candidates(
    split: Callable[..., dict[str, Any]], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = split("domains.parquet", "--gamma", "power")
    widths = report["config"]["widths"]
    best = max(widths, key=lambda candidate: candidate[2])
    assert (report["mmd"]["kernel"], report["mmd"]["gamma"]) == (best[0], pytest.approx(best[1]))
    assert {kernel for kernel, _, _ in widths} == {"rbf", "laplacian"} and len(widths) == 26
    assert run(["verify", "out", "--quiet"]) == 0
    changed = {**report, "config": {**report["config"], "widths": [[*widths[0][:2], 9.0], *widths[1:]]}}
    (place / "out" / "report.json").write_text(json.dumps(changed))
    assert run(["verify", "out", "--quiet"]) == 1
    capsys.readouterr()
    for words, message in (
        (["rows.parquet", "--gamma", "power"], "there are none among the cells"),
        (["domains.parquet", "--gamma", "power", "--kernel", "polynomial"], "chooses between rbf"),
        (["domains.parquet", "--gamma", "power", "--engine", "stream"], "needs all rows in memory"),
    ):
        assert run(["split", *words, "--quiet", "--out", "bad"]) == 2
        assert message in capsys.readouterr().err
    assert run(["mmd", "domains.parquet", "--by", "domain", "--gamma", "power"]) == 2
    assert "--gamma scale or median" in capsys.readouterr().err
    assert run(["kfold", "domains.parquet", "--gamma", "power", "--k", "3", *QUICK, "--out", "folds"]) == 0
    assert run(["verify", "folds", "--quiet"]) == 0


def test_lookalike_takes_three_passes_over_the_factors_beyond_a_random_split(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    whole = Shard.blocks

    def counted(shard: Shard) -> Any:
        passes.append(1)
        return whole(shard)

    monkeypatch.setattr(Shard, "blocks", counted)
    found = []
    rest = ("--engine", "stream", "--nystrom", "40", "--quiet", "--force", "--out", "out")
    for words in (
        ("baseline", "random", "domains.parquet", "--exclude", "domain=r"),
        ("split", "domains.parquet", "--target", "domain=r", "--aim", "lookalike"),
    ):
        passes.clear()
        assert run([*words, *rest]) == 0
        found.append(len(passes))
    assert found[0] > 0
    assert found[1] <= found[0] + 3


def test_the_check_against_the_target_is_in_the_summary_and_on_the_page(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("plotly", "jinja2"):
        pytest.importorskip(name, reason="the page needs pip install jinja2 plotly")
    common = ["split", "rows.parquet", *(word for word in QUICK if word != "--quiet"), "--html", "--force"]
    pq.write_table(rows_of(60, 2.5, 3), "beyond.parquet")
    for target, passed in (("beyond.parquet", False), ("same.parquet", True)):
        capsys.readouterr()
        assert run([*common, "--target", target, "--out", "out"]) == 0
        said = f"worst-case check {'passed' if passed else 'failed'}"
        report = json.loads((place / "out" / "report.json").read_text())
        assert report["target"]["valid"] is passed
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("target")]
        assert said in line
        page = (place / "out" / "report.html").read_text()
        assert f">{said}</span>" in page
        assert f'<td class="n">{human_number(report["target"]["mmd_val"])}</td>' in page
