"""Bad input: one line that says what is wrong, one with the cure, the exit code, and nothing written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run
from clustersplit_cli.cli.declarations import COMMANDS
from clustersplit_cli.options import Option

X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
LABELS = np.arange(20) % 2
HOLED = X.copy()
HOLED[5, 2], HOLED[9, 0] = np.nan, np.inf


def columns(x: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {f"f{column}": x[:, column] for column in range(x.shape[1])}


TABLES = {
    "nan": {**columns(HOLED), "label": LABELS},
    "nulls": {**columns(X), "label": pa.array([None, "a", None, *"b" * 17])},
    "halves": {**columns(X), "label": LABELS + 0.5},
    "constant": {**columns(np.ones_like(X)), "label": LABELS},
    "text": {"f0": ["a"] * 20, "f1": ["b"] * 20, "label": LABELS},
    "ragged": {"embedding": pa.array([[1.0, 2.0]] * 19 + [[1.0]]), "label": LABELS},
    "empty": {**columns(X[:0]), "label": LABELS[:0]},
    "one": {**columns(X[:1]), "label": LABELS[:1]},
    "unique": {**columns(X), "label": np.arange(20)},
    "taken": {**columns(X), "label": LABELS, "split": LABELS},
    "good": {**columns(X), "label": LABELS},
}


def write_inputs(folder: Path) -> None:
    for name, table in TABLES.items():
        pq.write_table(pa.table(table), folder / f"{name}.parquet")
    np.save(folder / "x.npy", X)
    np.save(folder / "short.npy", LABELS[:-1])
    np.save(folder / "pickled.npy", np.array([{}, None], dtype=object), allow_pickle=True)
    pq.write_table(pa.table({"label": LABELS[:3]}), folder / "short.parquet")
    whole = (folder / "good.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    (folder / "cut.npy").write_bytes((folder / "x.npy").read_bytes()[:200])
    (folder / "noise.parquet").write_bytes(b"\x93\x01\x02" * 50)
    (folder / "nothing.parquet").write_bytes(b"")
    (folder / "latin.csv").write_bytes("f0,label\n1,caf\xe9\n2,th\xe9\n".encode("latin-1"))
    (folder / "names.txt").write_text("cat\ndog\ncat\n")
    (folder / "lines.jsonl").write_text('{"f0": 1.0, "label": "a"}\n' * 20)
    (folder / "rows.json").write_text('[{"f0": 1.0, "label": "a"}]')
    (folder / "folder").mkdir()
    np.save(folder / "records.npy", np.zeros(0, [("x", "f4", 3), ("label", "i8")]))
    np.savez(folder / "cube.npz", X=X, label=np.zeros((20, 2, 2)))
    pq.write_table(pa.table({**columns(X), "x" * 2000: LABELS}), folder / "long.parquet")
    (folder / "ring").symlink_to("ring")
    for inside in ("0.parquet", "label=a/0.parquet"):
        (folder / "mixed" / inside).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(TABLES["good"]), folder / "mixed" / inside)
    # A directory of links to each other has as many paths as there are orders of them.
    for name in "abcdefghij":
        (folder / "everything" / name).mkdir(parents=True)
        for other in "abcdefghij":
            (folder / "everything" / name / other).symlink_to(folder / "everything" / other)
    os.mkfifo(folder / "pipe")


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All inputs in one folder, which bad input leaves as it is."""
    folder = tmp_path_factory.mktemp("bad")
    write_inputs(folder)
    return folder


@pytest.fixture
def inputs(folder: Path) -> Path:
    """All inputs in a folder of the test's own."""
    write_inputs(folder)
    return folder


# arguments, exit code, what the error line must hold, what the hint line must hold
CASES = [
    ("nan.parquet", 2, ["2 of 20 rows", "row 5 (f2)", "row 9 (f0)"], "--drop-invalid"),
    ("nulls.parquet", 2, ["'label'", "2 rows: 0, 2"], "--exclude label="),
    ("halves.parquet", 2, ["'label'", "not whole"], "--label-bins N"),
    ("constant.parquet", 2, ["constant.parquet", "constant"], "--columns"),
    ("text.parquet", 2, ["text.parquet", "'f0' (string)"], "--columns"),
    ("ragged.parquet", 2, ["'embedding'", "row 19 has 1"], "same length"),
    ("empty.parquet", 2, ["empty.parquet has no rows"], "at least two rows"),
    ("one.parquet", 2, ["one.parquet has 1 row"], "at least two rows"),
    ("missing.parquet", 2, ["missing.parquet does not exist"], ""),
    ("cut.parquet", 2, ["cut.parquet cannot be read as Parquet"], "truncated"),
    ("noise.parquet", 2, ["noise.parquet: Parquet expected"], "can be read"),
    ("latin.csv", 2, ["latin.csv is text, but not in UTF-8"], "iconv"),
    ("https://somewhere/rows.parquet", 2, ["URLs of https cannot be read"], "download the file"),
    ("nothing.parquet", 2, ["nothing.parquet is empty (0 bytes)"], "can be read"),
    ("cut.npy --stratify none", 2, ["cut.npy is truncated"], "again"),
    ("pickled.npy", 2, ["pickled.npy", "pickled"], "save numbers"),
    ("folder", 2, ["folder has no Parquet files"], "directory"),
    ("x.npy --label-file short.npy", 2, ["short.npy has 19 rows", "x.npy has 20"], "one row for each row"),
    ("x.npy --metadata short.parquet", 2, ["short.parquet has 3 rows"], "one row for each row"),
    ("x.npy --label-file names.txt", 2, ["names.txt has 3 rows", "x.npy has 20"], "one row for each row"),
    ("x.npy --label-file lines.jsonl", 2, ["lines.jsonl is JSON Lines"], "pyarrow.json"),
    ("lines.jsonl", 2, ["lines.jsonl is JSON Lines, which is not supported"], "pyarrow.json"),
    ("rows.json", 2, ["rows.json is JSON, which is not supported"], "pandas.read_json"),
    ("-", 2, ["'-' is standard input"], "write it to a file first"),
    ("good.parquet --memory 2", 2, ["--memory '2' is 2 bytes"], "--memory 2GB"),
    ("good.parquet --memory 100KB", 2, ["--memory '100KB' is 100000 bytes"], "--memory 512MB"),
    ("good.parquet --domain none --stratify label,domain", 2, ["--domain none leaves no"], "drop --domain"),
    ("x.npy --label-file pickled.npy", 2, ["pickled.npy"], "save numbers"),
    ("x.npy", 2, ["no column 'label' in x.npy"], "--label-file FILE or --stratify none"),
    ("x.npy --label 9", 2, ["column 9", "3 columns"], "-3 to 2"),
    ("good.parquet --label lable", 2, ["no column 'lable'"], "'label'"),
    ("good.parquet --domain lebel", 2, ["no column 'lebel'"], "'label'"),
    ("good.parquet --stratify label,f9", 2, ["no column 'f9'"], "'f0'"),
    ("good.parquet --id idd", 2, ["no column 'idd'"], "'f0'"),
    ("good.parquet --columns g*", 2, ["matches 'g*'"], "'f0'"),
    ("good.parquet --columns ,", 2, ["--columns has an empty name"], "--columns 'f*'"),
    ("good.parquet --exclude f0", 2, ["--exclude 'f0' is not COLUMN=VALUE"], "--exclude domain=sketch"),
    ("good.parquet --exclude label=7", 2, ["'label' never has the value '7'"], "0, 1"),
    ("good.parquet --exclude label=0 --exclude label=1", 2, ["only 0 of 20 rows"], "two rows"),
    ("good.parquet --stratify label,label", 2, ["--stratify 'label,label'"], "--stratify label,domain"),
    ("good.parquet --stratify label --stratify label", 2, ["label was given twice"], "once"),
    ("good.parquet --keep-together patient", 2, ["no column 'patient'"], "'f0'"),
    ("good.parquet --tolerance label=0=x", 2, ["--tolerance 'x' is not a number"], "--tolerance 0.2"),
    ("good.parquet --tolerance label=9=0.1", 2, ["label=9", "no such cell"], "label=0"),
    ("good.parquet --parts a=1/3,b=2/3", 2, ["'1/3' is not a number"], "--parts train=0.7"),
    ("good.parquet --parts train=0.7,val=0.2", 2, ["add up to 0.9"], "--parts"),
    ("good.parquet --parts train=0.5,val=0.5 --h 0.5", 2, ["--h cannot be combined"], "drop"),
    ("good.parquet --label-bins 3 --stratify none", 2, ["--label-bins has no effect"], "label"),
    ("good.parquet --force-val nowhere.npy", 2, ["nowhere.npy"], ""),
    ("good.parquet --h 0", 2, ["--h must lie strictly between 0 and 1, got 0"], "--h 0.2"),
    ("good.parquet --h 1", 2, ["got 1"], "--h 0.2"),
    ("good.parquet --holdout -0.1", 2, ["got -0.1"], "--h 0.2"),
    ("good.parquet --h nan", 2, ["--h 'nan' is not a number"], "--h 0.2"),
    ("good.parquet --h half", 2, ["--h 'half' is not a number"], "--h 0.2"),
    ("unique.parquet", 3, ["h=0.2 of every cell rounds to 0", "20 cells"], "--rounding balanced"),
    ("good.parquet --h 0.99", 3, ["no training rows", "h=0.99"], "--h 0.9"),
    (
        "good.parquet --kernel gauss",
        2,
        ["--kernel 'gauss' is unknown"],
        "rbf, laplacian, linear",
    ),
    ("good.parquet --gamma wide", 2, ["--gamma 'wide'"], "--gamma scale"),
    ("good.parquet --gamma -1", 2, ["--gamma must be a positive finite number, got -1"], "--gamma scale"),
    ("good.parquet --gamma nan", 2, ["got nan"], "--gamma scale"),
    ("good.parquet --kernel linear --gamma 1", 2, ["--gamma has no meaning"], "--kernel rbf"),
    ("good.parquet --degree 2", 2, ["--degree has no meaning"], "--kernel polynomial"),
    ("good.parquet --kernel polynomial --degree 0", 2, ["--degree must be at least 1, got 0"], "--degree 1"),
    ("good.parquet --tolerance -0.1", 2, ["--tolerance must not be negative, got -0.1"], "0 means exact"),
    ("good.parquet --restarts 0", 2, ["--restarts must be at least 1, got 0"], "--restarts 1"),
    ("good.parquet --restarts ten", 2, ["--restarts 'ten' is not an integer"], "--restarts 10"),
    ("good.parquet --max-iter 0", 2, ["--max-iter must be at least 1, got 0"], "--max-iter 1"),
    ("good.parquet --nystrom 0", 2, ["--nystrom must be", "'0'"], "--nystrom 2000"),
    ("good.parquet --kernel linear --nystrom 5", 2, ["--nystrom 5 has no meaning"], "drop --nystrom"),
    ("good.parquet --seed -1", 2, ["--seed must be at least 0, got -1"], "--seed"),
    ("good.parquet --seed 1.5", 2, ["--seed '1.5' is not an integer"], "--seed 0"),
    (
        f"good.parquet --seed {'9' * 5000}",
        2,
        ["has 5000 digits, more than the 4300 that are read"],
        "--seed 0",
    ),
    ("good.parquet --threads 0", 2, ["--threads must be at least 1, got 0"], "--threads 1"),
    ("good.parquet --standardize unit", 2, ["--standardize 'unit' is unknown"], "none, zscore, l2"),
    ("good.parquet --rounding up", 2, ["--rounding 'up' is unknown"], "nearest, balanced"),
    ("good.parquet --solver glpk", 2, ["--solver 'glpk' is unknown"], "auto, cbc"),
    ("good.parquet --certify maybe", 2, ["--certify 'maybe' is unknown"], "auto, always, never"),
    ("good.parquet --format xml", 2, ["unknown output format 'xml'"], "npy, txt, csv, parquet, json"),
    ("good.parquet --memory lots", 2, ["--memory 'lots' is not a size"], "--memory 8GB"),
    ("good.parquet --memory 1MB", 2, ["20 rows of 3 features", "budget of 0.001 GB"], "allow --memory"),
    ("good.parquet --out -", 2, ["--out - writes text, not npy"], "--out - --format txt"),
    (
        "good.parquet --out - --format txt --json",
        2,
        ["--out - and --json both write to stdout"],
        "one of them",
    ),
    ("good.parquet --out - --format txt --id label", 2, ["--out - writes no ids"], "drop --id"),
    ("good.parquet --out folder/a/b", 2, ["folder/a does not exist"], "mkdir -p"),
    ("good.parquet --out x.npy", 2, ["x.npy is a file"], "another --out"),
    ("good.parquet --out .", 2, [". is, or holds, the working directory"], "inside it"),
    ("good.parquet --out good.parquet", 2, ["holds, the input good.parquet"], "another place"),
    ("folder --out folder/split", 2, ["lies inside the input folder"], "another place"),
    ("taken.parquet --annotate a.parquet", 2, ["'split' already"], "leave out --annotate"),
    ("good.parquet --annotate rows.xls", 2, ["rows.xls: the name does not say the format"], ".feather"),
    ("good.parquet --annotate x.npy", 2, ["x.npy exists already"], "--force"),
    ("good.parquet --out o --annotate o/a.parquet", 2, ["lies inside the output directory o"], "outside it"),
    ("good.parquet --nystrom " + "9" * 5000, 2, ["--nystrom must be auto"], "--nystrom 2000"),
    ("good.parquet --memory " + "9" * 5000, 2, ["is not a size"], "--memory 8GB"),
    ("good.parquet --restarts " + "9" * 400, 2, ["--restarts must be at most"], "--restarts 10"),
    ("records.npy", 2, ["records.npy has no rows"], "at least two rows"),
    ("cube.npz", 2, ["array 'label' of cube.npz has shape (20, 2, 2)"], "one value per row"),
    ("long.parquet --label zz", 2, ["no column 'zz'"], "...[2002 characters]..."),
    ("good.parquet --label " + "z" * 2000, 2, ["...[2002 characters]..."], "'f0'"),
    ("ring", 2, ["cannot open ring"], "symbolic links lead to each other"),
    ("z" * 300, 2, ["cannot write zzz", "the name is too long"], "255 bytes"),
    ("z" * 300 + " --out o", 2, ["cannot open zzz"], "255 bytes"),
    ("good.parquet --out " + "z" * 300, 2, ["cannot write zzz", "the name is too long"], "255 bytes"),
    ("good.parquet --annotate " + "z" * 300, 2, ["cannot write zzz", "the name is too long"], "255 bytes"),
    ("mixed", 2, ["'label' is in the folder names of", "mixed/label=a/0.parquet"], "none"),
    ("everything", 2, ["everything holds more than 10000 things not named as Parquet"], "alone"),
    ("good.parquet --config pipe", 2, ["pipe is not a regular file"], "pipes cannot be read"),
    ("pipe", 2, ["pipe is not a regular file"], "pipes cannot be read"),
    ("x.npy --label-file pipe", 2, ["pipe is not a regular file"], "pipes cannot be read"),
    ("good.parquet --metadata pipe", 2, ["pipe is not a regular file"], "pipes cannot be read"),
    ("good.parquet --force-val pipe", 2, ["pipe is not a regular file"], "pipes cannot be read"),
    (
        "good.parquet --id f0 --force-val pipe",
        2,
        ["pipe is not a regular file"],
        "pipes cannot be read",
    ),
    ("good.parquet --config absent.xyz", 2, ["absent.xyz does not exist"], "check the path"),
    ("good.parquet --config x.npy", 2, ["x.npy is not JSON: it is not UTF-8 text"], "report.json"),
    ("good.parquet --nope", 2, ["no such option: --nope"], "clustersplit split --help"),
    ("good.parquet other.parquet", 2, ["unexpected extra argument", "other.parquet"], "split --help"),
    ("good.parquet --h", 2, ["option '--h' requires an argument"], "clustersplit split --help"),
    ("", 2, ["missing argument 'FEATURES'"], "name a file"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "wrong", "cure"), CASES, ids=[case[0] or "()" for case in CASES]
)
def test_bad_input_is_one_line_and_a_cure_and_nothing_is_written(
    arguments: str,
    code: int,
    wrong: list[str],
    cure: str,
    gallery: Path,
    split: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(gallery)
    before = sorted(gallery.rglob("*"))
    result = split(*arguments.split())
    assert (result.code, result.out) == (code, "")
    error, hint = result.lines
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    assert [words for words in wrong if words not in error] == []
    assert cure in hint
    assert sorted(gallery.rglob("*")) == before


def test_every_integer_that_is_none_gets_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        for option in command.options:
            if isinstance(option, Option) and option.kind == "integer":
                words = [command.name, *("random" for _ in [0] if command.name == "baseline")]
                assert run([*words, "x.parquet", option.flag, "many"]) == 2
                hint = capsys.readouterr().err.splitlines()[-1]
                assert re.fullmatch(rf"hint: for example {option.flag} [0-9]+", hint), hint


@pytest.mark.parametrize(
    ("arguments", "cured"),
    [
        ("nan.parquet", "nan.parquet --drop-invalid"),
        ("unique.parquet", "unique.parquet --rounding balanced"),
        ("unique.parquet", "unique.parquet --h 0.5 --stratify none"),
        ("x.npy", "x.npy --stratify none"),
        ("good.parquet --out -", "good.parquet --out - --format txt"),
        ("good.parquet --kernel linear --gamma 1", "good.parquet --kernel rbf --gamma 1"),
        ("good.parquet --label lable", "good.parquet --label label"),
    ],
)
def test_the_cure_of_the_hint_works(
    arguments: str, cured: str, inputs: Path, split: Callable[..., Any]
) -> None:
    assert split(*arguments.split()).code in (2, 3)
    assert split(*cured.split()).code == 0


def test_the_memory_the_hint_asks_for_is_enough(inputs: Path, split: Callable[..., Any]) -> None:
    hint = split("good.parquet", "--memory", "1MB").lines[1]
    assert split("good.parquet", *hint.removeprefix("hint: allow ").split()).code == 0


def test_an_existing_result_is_refused_until_forced(split: Callable[..., Any], folder: Path) -> None:
    assert split("feats.parquet").code == 0
    report = (folder / "feats_split" / "report.json").read_bytes()
    refused = split("feats.parquet", "--seed", 1)
    assert refused.code == 2
    assert refused.lines == [
        "error: feats_split exists already",
        "hint: --force replaces it; or choose another --out",
    ]
    assert (folder / "feats_split" / "report.json").read_bytes() == report
    assert split("feats.parquet", "--seed", 1, "--force").code == 0
    assert (folder / "feats_split" / "report.json").read_bytes() != report


def test_a_directory_with_other_things_in_it_is_never_replaced(
    split: Callable[..., Any], folder: Path
) -> None:
    (folder / "feats_split").mkdir()
    (folder / "feats_split" / "thesis.tex").write_text("years of work")
    refused = split("feats.parquet", "--force")
    assert refused.code == 2
    assert refused.lines[0] == "error: feats_split is not empty and is not an earlier run"
    assert (folder / "feats_split" / "thesis.tex").read_text() == "years of work"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_place_is_refused_before_the_work(split: Callable[..., Any], folder: Path) -> None:
    (folder / "locked").mkdir(mode=0o500)
    result = split("feats.parquet", "--out", "locked/out")
    assert result.code == 2
    assert "is not writable" in result.lines[0]


def test_ids_that_a_format_cannot_hold_are_refused_before_the_work(
    split: Callable[..., Any], folder: Path, table: pa.Table
) -> None:
    broken = table.set_column(table.column_names.index("id"), "id", pa.array(["two\nlines"] * len(table)))
    pq.write_table(broken, folder / "feats.parquet")
    result = split("feats.parquet", "--id", "id", "--format", "txt")
    assert result.code == 2
    assert "hold line breaks in 120 rows" in result.lines[0]
    assert len(result.lines) == 2
    assert split("feats.parquet", "--id", "id", "--format", "parquet").code == 0


def test_values_of_any_length_are_shortened_wherever_they_are_shown(
    process: Callable[..., Any], folder: Path
) -> None:
    names = ["a b " * 3000, "c" * 9000]
    values = pa.table({"x": X[:, 0], "y": X[:, 1], "label": ["z" * 5000, "w" * 5000] * 10})
    pq.write_table(values.rename_columns([*names, "label"]), folder / "long.parquet")
    for words in ("split long.parquet --effort fast", "inspect long.parquet", "mmd long.parquet --by label"):
        result = process(*words.split())
        assert result.code == 0, result.err
        assert max(map(len, result.lines)) < 1500, words
    assert process("verify", "long_split").code == 0
    report = folder / "long_split" / "report.json"
    report.write_text(report.read_text().replace('"rbf"', '"\\ud800\\udcff' + "k" * 5000 + '"'))
    changed = process("verify", "long_split")
    assert changed.code in (1, 2)
    assert max(map(len, changed.lines)) < 1500


@pytest.mark.parametrize(
    "arguments", [("two\nlines\x1b[31m",), ("feats.parquet", "--config", "two\nlines\x1b[31m")]
)
def test_a_message_stays_on_one_line_whatever_the_file_is_called(
    arguments: tuple[str, ...], split: Callable[..., Any]
) -> None:
    result = split(*arguments)
    assert result.code == 2
    assert len(result.lines) == 2
    assert "two\\nlines\\x1b[31m" in result.lines[0]
