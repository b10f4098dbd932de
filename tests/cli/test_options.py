"""Every option of `split` has the effect its help promises, to the files a user gets."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run

Split = Callable[..., Any]


@pytest.fixture
def report(split: Split, folder: Path) -> Callable[..., dict[str, Any]]:
    """Run, expect success, and return the report; without certificate, to be quick, unless one is named."""

    def call(*arguments: object) -> dict[str, Any]:
        quick = () if "--certify" in arguments else ("--certify", "never")
        result = split(*arguments, *quick, "--out", "out", "--force")
        assert result.code == 0, result.err
        loaded: dict[str, Any] = json.loads((folder / "out" / "report.json").read_text())
        return loaded

    return call


def rows(folder: Path, part: str) -> list[int]:
    found: list[int] = np.load(folder / "out" / f"{part}.npy").tolist()
    return found


def test_a_default_run_writes_two_index_files_and_a_report_beside_the_working_directory(
    split: Split, folder: Path, files: Callable[[], set[str]]
) -> None:
    result = split("feats.parquet", quick=False)
    assert (result.code, result.out) == (0, "")
    assert files() == {"feats.parquet", "feats_split"}
    assert {path.name for path in (folder / "feats_split").iterdir()} == {
        "train.npy",
        "val.npy",
        "report.json",
    }
    train, val = (np.load(folder / "feats_split" / f"{part}.npy") for part in ("train", "val"))
    assert train.dtype == val.dtype == np.int64
    assert sorted([*train, *val]) == list(range(120))
    assert (np.diff(train) > 0).all()
    assert (np.diff(val) > 0).all()


@pytest.mark.parametrize(
    ("name", "directory"),
    [
        ("feats.v2.parquet", "feats.v2_split"),
        (".hidden.parquet", ".hidden_split"),
        ("noextension", "noextension_split"),
        ("feats.2024", "feats.2024_split"),
    ],
)
def test_the_output_is_named_after_the_input(
    name: str, directory: str, split: Split, folder: Path, files: Callable[[], set[str]]
) -> None:
    (folder / "feats.parquet").rename(folder / name)
    assert split(name).code == 0
    assert files() == {name, directory}


@pytest.mark.parametrize("flag", ["--h", "--holdout"])
def test_holdout_is_the_share_of_every_cell(flag: str, report: Any) -> None:
    cells = report("feats.parquet", flag, "0.3")["constraints"]["cells"]
    assert len(cells) == 6
    assert all(cell["actual"] == int(0.3 * cell["size"] + 0.5) for cell in cells)


def test_stratify_names_the_columns_whose_combinations_are_cells(report: Any) -> None:
    def words(*arguments: str) -> tuple[list[str], int]:
        made = report("feats.parquet", *arguments)
        return made["config"]["stratify"], len(made["constraints"]["cells"])

    assert words() == (["label,domain"], 6)
    assert words("--stratify", "label") == (["label"], 3)
    assert words("--stratify", "domain,label") == (["domain,label"], 6)
    assert words("--stratify", "none") == (["none"], 1)


def test_tolerance_lets_shares_vary_and_the_report_says_how_far(report: Any) -> None:
    made = report("feats.parquet", "--tolerance", "0.5")
    assert made["constraints"]["all_satisfied"]
    assert all(cell["lower"] < cell["target"] < cell["upper"] for cell in made["constraints"]["cells"])


def test_balanced_rounding_makes_the_total_exact(report: Any) -> None:
    assert report("feats.parquet", "--h", "0.33", "--rounding", "balanced")["sizes"]["val"] == 40


@pytest.mark.parametrize("kernel", ["rbf", "linear", "cosine", "polynomial"])
def test_every_kernel_splits(kernel: str, report: Any) -> None:
    made = report("feats.parquet", "--kernel", kernel, "--certify", "auto")
    assert made["mmd"]["kernel"] == made["config"]["kernel"] == kernel
    assert made["certificate"]["status"] == "optimal"


def test_degree_changes_the_polynomial_kernel(report: Any) -> None:
    second, third = (
        report("feats.parquet", "--kernel", "polynomial", *degree) for degree in ((), ("--degree", 2))
    )
    assert (second["config"]["degree"], third["config"]["degree"]) == (3, 2)
    assert second["mmd"]["value"] != third["mmd"]["value"]


def test_gamma_is_a_number_or_a_rule_and_the_report_has_the_number(report: Any, table: pa.Table) -> None:
    x = np.column_stack([table[f"f{column}"] for column in range(4)]).astype(float)

    def gamma(*arguments: str) -> float:
        value: float = report("feats.parquet", *arguments)["config"]["gamma"]
        return value

    assert gamma("--gamma", "0.125") == 0.125
    assert gamma("--gamma", "1/d") == 0.25
    assert gamma() == gamma("--gamma", "scale") == pytest.approx(1 / x.var(axis=0).sum(), rel=1e-5)
    assert gamma("--gamma", "median") not in (gamma(), 0.25)


def test_standardize_changes_the_features(report: Any) -> None:
    values = [
        report("feats.parquet", "--standardize", how)["mmd"]["value"] for how in ("none", "zscore", "l2")
    ]
    assert len(set(values)) == 3


def test_columns_are_globs_or_names_and_the_report_lists_them(report: Any) -> None:
    def columns(*arguments: str) -> list[str]:
        listed: list[str] = report("feats.parquet", *arguments)["input"]["columns"]
        return listed

    assert columns() == ["f0", "f1", "f2", "f3"]
    assert columns("--columns", "f[12]") == ["f1", "f2"]
    assert columns("--columns", "f0,f3") == columns("--columns", "f0", "--columns", "f3") == ["f0", "f3"]


def test_label_and_domain_name_other_columns(report: Any, folder: Path, table: pa.Table) -> None:
    names = {"label": "species", "domain": "style"}
    renamed = table.rename_columns([names.get(name, name) for name in table.column_names])
    pq.write_table(renamed, folder / "renamed.parquet")
    made = report("renamed.parquet", "--label", "species", "--domain", "style")
    assert (made["config"]["label"], made["config"]["domain"]) == ("species", "style")
    expected = rows(folder, "val")
    report("feats.parquet")
    assert rows(folder, "val") == expected


def test_a_plain_array_takes_labels_from_column_numbers_companions_or_metadata(
    report: Any, folder: Path, table: pa.Table
) -> None:
    x = np.column_stack([table[f"f{column}"] for column in range(4)])
    label, domain = (np.asarray(table[name]).astype(str) for name in ("label", "domain"))
    codes = np.column_stack([np.unique(column, return_inverse=True)[1] for column in (label, domain)])
    np.save(folder / "x.npy", x)
    np.save(folder / "xyd.npy", np.column_stack([x, codes]).astype(np.float32))
    np.save(folder / "label.npy", label)
    np.save(folder / "domain.npy", domain)
    pq.write_table(table.select(["label", "domain"]), folder / "meta.parquet")
    results = []
    for arguments in (
        ("feats.parquet",),
        ("xyd.npy", "--label", "-2", "--domain", "-1"),
        ("x.npy", "--label-file", "label.npy", "--domain-file", "domain.npy"),
        ("x.npy", "--metadata", "meta.parquet"),
    ):
        report(*arguments)
        results.append(rows(folder, "val"))
    assert results[1:] == results[:1] * 3


def test_excluded_rows_go_to_neither_side_and_positions_stay(
    report: Any, folder: Path, table: pa.Table
) -> None:
    made = report("feats.parquet", "--exclude", "domain=art", "--exclude", "label=sea lion")
    domain, label = table["domain"].to_pylist(), table["label"].to_pylist()
    kept = [row for row in range(120) if domain[row] != "art" and label[row] != "sea lion"]
    assert sorted(rows(folder, "train") + rows(folder, "val")) == kept
    assert made["input"]["n_excluded"] == 120 - len(kept)


def test_invalid_rows_are_dropped_on_request_and_positions_stay(
    report: Any, folder: Path, table: pa.Table
) -> None:
    holed = table["f1"].to_numpy().copy()
    holed[[0, 50]] = np.nan, -np.inf
    pq.write_table(table.set_column(1, "f1", pa.array(holed)), folder / "holed.parquet")
    made = report("holed.parquet", "--drop-invalid")
    assert sorted(rows(folder, "train") + rows(folder, "val")) == [r for r in range(120) if r not in (0, 50)]
    assert made["input"]["n_dropped"] == 2


@pytest.mark.parametrize("engine", ["local", "stream"])
def test_index_files_may_be_csv_and_one_json_file(
    engine: str, split: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formats = [word for name in ("npy", "csv", "json") for word in ("--format", name)]
    assert split("feats.parquet", *formats, "--engine", engine).code == 0
    made = folder / "feats_split"
    sides = json.loads((made / "split.json").read_text())
    assert list(sides) == ["train", "val"]
    for side in sides:
        assert sides[side] == np.load(made / f"{side}.npy").tolist()
        assert (made / f"{side}.csv").read_text().split() == ["row", *map(str, sides[side])]
    # What was written is read back, without the NPY too, and as anyone's split.
    pair = ["--train", "feats_split/split.json", "--val", "feats_split/val.csv"]
    assert run(["verify", "feats.parquet", *pair]) == 0
    assert split("feats.parquet", "--format", "json", "--force", "--engine", engine).code == 0
    assert sorted(path.name for path in made.iterdir()) == ["report.json", "split.json"]
    assert run(["mmd", "feats.parquet", "--split", "feats_split", "-q"]) == 0
    (made / "split.json").write_text(json.dumps({"train": sides["train"], "val": sides["val"][1:]}))
    assert run(["verify", "feats_split"]) == 1
    (made / "split.json").write_text('{"train": [1, true]}')
    capsys.readouterr()
    assert run(["verify", "feats_split"]) == 1
    assert "has no part 'val'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [(), ("--nystrom", "40"), ("--nystrom", "40", "--engine", "stream"), ("--parts", "a=0.5,b=0.3,c=0.2")],
)
def test_the_tanimoto_kernel_is_what_rows_share_over_what_they_have(
    words: tuple[str, ...], split: Any, folder: Path
) -> None:
    rng = np.random.default_rng(0)
    bits = (rng.random((150, 24)) < rng.choice([0.05, 0.2, 0.5], 150)[:, None]).astype(np.float32)
    bits[[5, 7]] = 0.0  # rows of zeros are the same
    columns = {f"f{column}": bits[:, column] for column in range(24)}
    pq.write_table(pa.table({**columns, "label": rng.integers(0, 2, 150)}), folder / "bits.parquet")
    # Whatever is written here is verified too, by definition.
    assert split("bits.parquet", "--kernel", "tanimoto", *words).code == 0
    made = json.loads((folder / "bits_split" / "report.json").read_text())
    if not words:
        z = np.full(150, -1 / made["sizes"]["train"])
        z[np.load(folder / "bits_split" / "val.npy")] = 1 / made["sizes"]["val"]
        both = [[np.minimum(one, other).sum() for other in bits] for one in bits]
        either = [[np.maximum(one, other).sum() for other in bits] for one in bits]
        kernel = np.divide(both, either, out=np.ones((150, 150)), where=np.array(either) > 0)
        assert made["mmd"]["squared"] == pytest.approx(z @ kernel @ z, rel=1e-6)


def test_the_tanimoto_kernel_refuses_what_is_no_count(split: Any) -> None:
    for words in ((), ("--engine", "stream", "--nystrom", "20"), ("--standardize", "zscore")):
        refused = split("feats.parquet", "--kernel", "tanimoto", *words)
        assert refused.code == 2
        assert "error: the tanimoto kernel compares counts, and a feature is -" in refused.err
    assert split("feats.parquet", "--kernel", "tanimoto", "--gamma", "1").code == 2


def test_several_different_splits_are_written_best_first(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["split", "feats.parquet", "--effort", "fast", "--n-splits", "3", "--out", "many"]
    assert run(words) == 0
    reports = [json.loads((folder / "many" / f"split_{i}" / "report.json").read_text()) for i in range(3)]
    assert run([*words[:4], "--out", "one"]) == 0
    alone = json.loads((folder / "one" / "report.json").read_text())
    assert reports[0]["mmd"] == alone["mmd"] and reports[0]["trace"] == alone["trace"]
    values = [report["mmd"]["value"] for report in reports]
    assert values == sorted(values, reverse=True)
    chosen = [set(np.load(folder / "many" / f"split_{i}" / "val.npy").tolist()) for i in range(3)]
    for one in range(3):
        assert all(len(chosen[one] - chosen[other]) >= 0.05 * len(chosen[one]) for other in range(one))
        assert run(["verify", f"many/split_{one}", "-q"]) == 0, capsys.readouterr().err
    for refused in (["--parts", "a=0.5,b=0.5"], ["--html"], ["--json"], ["--engine", "stream"]):
        capsys.readouterr()
        assert run([*words[:-1], "none", *refused]) == 2
        assert "--n-splits" in capsys.readouterr().err
        assert not (folder / "none").exists()


def test_folds_parts_and_ids_are_in_the_json_file_too(split: Any, folder: Path) -> None:
    words = ["kfold", "feats.parquet", "--k", "3", "--effort", "fast", "--format", "json", "--id", "id"]
    assert run(words) == 0
    made = folder / "feats_folds"
    assert sorted(path.name for path in made.iterdir()) == ["report.json", "split.json"]
    found = json.loads((made / "split.json").read_text())
    assert list(found) == ["folds", "fold_0", "fold_1", "fold_2"]
    for fold in range(3):
        each = found[f"fold_{fold}"]
        assert each["val"] == [row for row, number in enumerate(found["folds"]) if number == fold]
        assert sorted(each["val"] + each["train"]) == list(range(120))
        assert each["val_ids"] == [f"row {row}" for row in each["val"]]
    assert run(["verify", "feats_folds"]) == 0
    named = ("--parts", "train=0.6,val=0.2,test=0.2", "--id", "id", "--format", "json", "--format", "csv")
    assert split("feats.parquet", *named).code == 0
    parts = json.loads((folder / "feats_split" / "split.json").read_text())
    assert list(parts)[::2] == ["train", "val", "test"]


@pytest.mark.parametrize("engine", ["local", "stream"])
def test_dropped_rows_are_told_by_column_domain_and_label(
    engine: str, report: Any, folder: Path, table: pa.Table
) -> None:
    f1, f2 = table["f1"].to_numpy().copy(), table["f2"].to_numpy().copy()
    label = table["label"].to_numpy(zero_copy_only=False)
    domain = table["domain"].to_numpy(zero_copy_only=False)
    gone = (label == "dog") & (domain == "art")
    f1[gone], f1[5], f2[5] = np.nan, np.inf, np.nan
    holed = table.set_column(1, "f1", pa.array(f1)).set_column(2, "f2", pa.array(f2))
    pq.write_table(holed, folder / "holed.parquet", row_group_size=50)
    made = report("holed.parquet", "--drop-invalid", "--engine", engine)
    (said,) = [note["message"] for note in made["warnings"] if note["code"] == "dropped_rows"]
    lost = gone.copy()
    lost[5] = True
    alone = int(lost.sum()) - 1
    by_domain = [
        (value, int((lost & (domain == value)).sum()), int((domain == value).sum()))
        for value in ("art", "photo")
    ]
    assert said.startswith(
        f"{lost.sum()} of 120 rows are dropped, not finite in f1 in {lost.sum()} rows ({alone}"
    )
    assert "f2 in 1 rows (0 of them in no other column)" in said
    for value, count, whole in by_domain:
        assert (f"{value} {count} of {whole}" in said) == (count > 0)
    assert "no row is left of 1 cell (label=dog, domain=art)" in said


def test_missing_features_may_be_taken_for_the_median(report: Any, folder: Path, table: pa.Table) -> None:
    holed = table["f1"].to_numpy().copy()
    holed[[0, 50, 51]] = np.nan
    pq.write_table(table.set_column(1, "f1", pa.array(holed)), folder / "holed.parquet")
    filled = np.where(np.isnan(holed), np.float32(np.nanmedian(holed)), holed)
    pq.write_table(table.set_column(1, "f1", pa.array(filled)), folder / "filled.parquet")
    made = report("holed.parquet", "--impute", "median", "--annotate", "annotated.parquet")
    chosen = rows(folder, "val")
    assert made["mmd"]["value"] == report("filled.parquet")["mmd"]["value"]
    assert chosen == rows(folder, "val")
    assert made["config"]["impute"] == "median"
    (said,) = [note["message"] for note in made["warnings"] if note["code"] == "imputed"]
    assert said.startswith("3 missing values are taken for the median") and "f1 in 3 rows" in said
    # For the distances only: what is written is the input.
    written = pq.read_table(folder / "annotated.parquet")["f1"].to_numpy()
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(written)), [0, 50, 51])


def test_what_has_no_median_is_refused(split: Any, folder: Path, table: pa.Table) -> None:
    empty = table.set_column(1, "f1", pa.nulls(120, pa.float32()))
    pq.write_table(empty, folder / "holed.parquet")
    result = split("holed.parquet", "--impute", "median")
    assert result.code == 2
    assert result.lines[0] == "error: column 'f1' has no value in any row, so it has no median"
    streamed = split("holed.parquet", "--impute", "median", "--engine", "stream")
    assert streamed.code == 2 and "--impute" in streamed.lines[0]
    holed = table["f1"].to_numpy().copy()
    holed[[0, 50]] = np.nan, -np.inf
    pq.write_table(table.set_column(1, "f1", pa.array(holed)), folder / "holed.parquet")
    infinite = split("holed.parquet", "--impute", "median")
    assert infinite.code == 2 and "1 of 120 rows" in infinite.lines[0] and "row 50 (f1)" in infinite.lines[0]


def test_nystrom_uses_as_many_landmarks_as_asked(report: Any) -> None:
    made = report("feats.parquet", "--nystrom", "30")
    assert (made["plan"]["landmarks"], made["mmd"]["geometry"]) == (30, "nystrom")
    assert made["mmd"]["subsample"]["size"] > 0
    assert report("feats.parquet", "--nystrom", "off")["mmd"]["geometry"] == "dense"


def test_restarts_and_max_iter_bound_the_search(report: Any) -> None:
    one, three = (report("feats.parquet", "--restarts", count)["restarts"] for count in (1, 3))
    assert three[0]["start"] == one[0]["start"]
    assert len(three) > len(one)
    assert report("feats.parquet", "--max-iter", 1)["restarts"] != report("feats.parquet")["restarts"]


def test_effort_is_how_long_the_search_goes_on(report: Any) -> None:
    fast, thorough = (report("feats.parquet", "--effort", word) for word in ("fast", "thorough"))
    assert (fast["config"]["effort"], thorough["config"]["effort"]) == ("fast", "thorough")
    assert thorough["objective"]["psi"] <= fast["objective"]["psi"] * (1 + 1e-6)
    assert len(thorough["trace"]) != len(fast["trace"])


def test_the_seed_chooses_the_starts(report: Any) -> None:
    first, again, other = (report("feats.parquet", "--seed", seed) for seed in (5, 5, 6))
    assert first["seed"] == 5
    assert first["restarts"] == again["restarts"] != other["restarts"]


def test_the_cbc_solver_and_the_closed_form_agree(report: Any, folder: Path) -> None:
    quick = ("--restarts", 1, "--effort", "fast")
    assert report("feats.parquet", *quick)["config"]["solver"] == "selection"
    expected = rows(folder, "val")
    assert report("feats.parquet", *quick, "--solver", "cbc")["config"]["solver"] == "cbc"
    assert rows(folder, "val") == expected


def test_a_certificate_is_made_unless_it_is_declined(report: Any) -> None:
    assert report("feats.parquet", "--certify", "auto")["certificate"]["backend"] == "cbc"
    assert report("feats.parquet", "--certify", "always")["certificate"]["backend"] == "cbc"
    assert report("feats.parquet", "--certify", "never")["certificate"] is None


def test_the_memory_budget_decides_how_the_kernel_is_held(report: Any, split: Split) -> None:
    assert report("feats.parquet", "--memory", "2GB")["plan"]["budget"] == 2 * 10**9
    assert split("feats.parquet", "--memory", "1MB", "--nystrom", "off").code == 2


def test_the_number_of_threads_is_taken(report: Any) -> None:
    assert report("feats.parquet", "--threads", "3")["config"]["threads"] == 3


def test_every_format_holds_the_same_rows_and_ids(report: Any, folder: Path) -> None:
    report("feats.parquet", "--id", "id", "--format", "npy", "--format", "txt", "--format", "parquet")
    for part in ("train", "val"):
        expected = rows(folder, part)
        text = (folder / "out" / f"{part}.txt").read_text()
        assert text == "".join(f"{row}\n" for row in expected)
        assert pq.read_table(folder / "out" / f"{part}.parquet")["row"].to_pylist() == expected
        ids = [f"row {row}" for row in expected]
        assert np.load(folder / "out" / f"{part}_ids.npy").tolist() == ids
        assert (folder / "out" / f"{part}_ids.txt").read_text().splitlines() == ids
        assert pq.read_table(folder / "out" / f"{part}_ids.parquet")["id"].to_pylist() == ids


def test_annotate_adds_the_side_of_every_row(report: Any, folder: Path, table: pa.Table) -> None:
    report("feats.parquet", "--exclude", "domain=art", "--annotate", "annotated.parquet")
    annotated = pq.read_table(folder / "annotated.parquet")
    assert annotated.drop_columns(["split"]).equals(table)
    sides = annotated["split"].to_pylist()
    assert [row for row in range(120) if sides[row] == "val"] == rows(folder, "val")
    assert [row for row in range(120) if sides[row] == "train"] == rows(folder, "train")
    assert {sides[row] for row in range(120) if table["domain"][row].as_py() == "art"} == {"excluded"}


def test_the_annotation_and_the_directory_appear_together_or_not_at_all(
    split: Split, files: Callable[[], set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from clustersplit_cli.data.destination import output_error
    from clustersplit_cli.pipeline.local import output

    def full(*arguments: Any, **options: Any) -> None:
        raise output_error("feats_split", OSError(errno.ENOSPC, "full"))

    monkeypatch.setattr(output, "write_run", full)
    assert split("feats.parquet", "--annotate", "annotated.parquet").code == 2
    assert files() == {"feats.parquet"}


@pytest.mark.parametrize("stem", ["üñí çødé ☃", "two\nlines", "-dash", "'\"$(x)", "*[a]?"])
def test_any_file_name_works(stem: str, split: Split, folder: Path) -> None:
    name = f"{stem}.parquet"
    (folder / "feats.parquet").rename(folder / name)
    result = split("--", name)
    assert result.code == 0
    report = json.loads((folder / f"{stem}_split" / "report.json").read_text())
    assert report["input"]["files"][0]["path"] == name
    assert result.lines[-1].startswith("wrote ")


def test_a_name_that_is_not_text_works_for_every_file(
    process: Callable[..., Any], folder: Path, table: pa.Table
) -> None:
    with (folder / "x.npy").open("wb") as stream:
        np.save(stream, np.column_stack([table[f"f{column}"] for column in range(4)]))
    np.save(folder / "y.npy", np.asarray(table["label"]).astype(str))
    for plain, odd in ((b"x.npy", b"x\xff.npy"), (b"y.npy", b"y\xfe.npy")):
        (folder / plain.decode()).rename(Path(str(folder), odd.decode("utf-8", "surrogateescape")))
    arguments = (b"split", b"x\xff.npy", b"--label-file", b"y\xfe.npy", b"--annotate", b"a\xfd.parquet")
    first = process(*arguments, b"--out", b"o\xfc")
    assert first.code == 0, first.err
    again = process(b"split", b"x\xff.npy", b"--config", b"o\xfc/report.json", b"--out", b"again")
    assert again.code == 0, again.err
    odd = Path(str(folder), b"o\xfc".decode("utf-8", "surrogateescape"))
    assert (folder / "again" / "val.npy").read_bytes() == (odd / "val.npy").read_bytes()


def test_a_hive_directory_is_one_dataset(report: Any, folder: Path, table: pa.Table) -> None:
    for domain in ("art", "photo"):
        part = folder / "hive" / f"domain={domain}"
        part.mkdir(parents=True)
        keep = pa.compute.equal(table["domain"], domain)
        pq.write_table(table.filter(keep).drop_columns(["domain"]), part / "part.parquet")
    made = report("hive")
    assert made["config"]["domain"] == "domain"
    assert [cell["cell"]["domain"] for cell in made["constraints"]["cells"]].count("art") == 3
    assert len(made["input"]["files"]) == 2


def test_spaces_may_be_anywhere(split: Split, folder: Path) -> None:
    (folder / "a b").mkdir()
    (folder / "feats.parquet").rename(folder / "a b" / "c d.parquet")
    assert split("a b/c d.parquet", "--out", "a b/e f", "--annotate", "a b/g h.parquet").code == 0
