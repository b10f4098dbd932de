"""The user's own training: placeholders, metrics, failures, timeouts, interruption and resumption."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersplit_cli import environment
from clustersplit_cli.cli.app import run as run_program
from clustersplit_cli.errors import InputError, UsageError
from clustersplit_cli.evaluation.commands import Template
from clustersplit_cli.evaluation.space import parse_space, read_space

ROOT = Path(__file__).resolve().parents[2]
TRAIN = Path(__file__).with_name("train.py")
INDEX = "--features {features} --train {train} --val {val} --test {test} --params {params} --out {out}"


def template(more: str = "") -> str:
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(TRAIN))} {INDEX} {more}".strip()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with `feats.npy`, three domains, and `space.toml`."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    label, domain = np.tile([0, 1, 2], 40), np.repeat([0, 1, 2], 40)
    x = rng.normal(size=(120, 4)) + 2 * np.eye(4)[label] + domain[:, None]
    np.save(tmp_path / "feats.npy", np.column_stack([x, label, domain]))
    Path("space.toml").write_text("shrink = { uniform = [0.0, 0.9] }\n")
    return tmp_path


def arguments(*more: str, command: str | None = None) -> list[str]:
    short = [
        "--search",
        "3",
        "--repeats",
        "1",
        "--effort",
        "fast",
        "--restarts",
        "2",
        "--evaluation-domain",
        "1",
    ]
    where = ["--label", "4", "--domain", "5"]
    given = ["evaluate", "feats.npy", *where, "--space", "space.toml", "--command", command or template()]
    return [*given, *short, "--strategy", "random:joint,cluster-rbf:joint,mix-up", "--out", "out", *more]


def report(where: str = "out") -> Any:
    return json.loads(Path(where, "report.json").read_text("utf-8"))


def test_a_command_is_run_for_every_split_and_setting(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mix = template("--mixup {mixup} --adapt {adapt} --seed {seed}")
    assert run_program(arguments("--refit", "--jobs", "2", command=mix)) == 0
    found = report()
    assert found["trials"]["n_trials"] == 9  # random with mix-up, cluster, everything, 3 settings each
    assert found["trials"]["n_failed"] == 0
    names = [score["strategy"] for score in found["protocols"][1]["strategies"]]
    assert names == ["random:joint", "oracle", "cluster-rbf:joint", "mix-up"]
    logs = [path.read_text("utf-8") for path in Path("out").glob("trials/*/log.txt")]
    assert len(logs) == 9
    assert all(log.startswith("shrinking by") for log in logs)
    for rows in Path("out", "splits").iterdir():
        if rows.is_dir():
            train, val, test, adapt = (np.load(rows / f"{n}.npy") for n in ("train", "val", "test", "adapt"))
            assert set(test) | set(adapt) == set(range(40, 80))
            assert len(test) == len(adapt) == 20
            assert sorted([*train, *val]) == [*range(40), *range(80, 120)]
    assert "verdict" in capsys.readouterr().err


@pytest.mark.parametrize("wanted", [None, "3"])
def test_a_command_sees_the_environment_of_the_user(
    wanted: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_ours", set())
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if wanted is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", wanted)
    environment.keep_blas_to_one_thread()
    assert os.environ["OPENBLAS_NUM_THREADS"] == (wanted or "1")
    assert run_program(arguments("--quiet", "--strategy", "random:joint")) == 0
    logs = [path.read_text("utf-8") for path in Path("out").glob("trials/*/log.txt")]
    assert logs and all(f"threads: {wanted}\n" in log for log in logs)


def test_mix_up_is_left_out_with_a_word_where_the_command_cannot_mix(folder: Path) -> None:
    assert run_program(arguments("--quiet")) == 0
    found = report()
    assert "mix-up" not in [score["strategy"] for score in found["protocols"][0]["strategies"]]
    assert [notice["code"] for notice in found["warnings"]] == ["no_mix_up"]


@pytest.mark.parametrize(
    ("fail", "more", "reason"),
    [
        ("exit", [], "exit code 3: out of luck"),
        ("hang", ["--timeout", "5"], "timed out after 5 s"),
        ("words", [], "its metrics are no JSON"),
    ],
)
def test_trials_that_fail_are_reported_and_the_others_count(
    folder: Path, fail: str, more: list[str], reason: str
) -> None:
    Path("space.toml").write_text(
        f'shrink = {{ uniform = [0.0, 0.9] }}\nfail = {{ choice = ["{fail}", "no", "no", "no"] }}\n'
    )
    assert run_program(arguments("--jobs", "2", "--search", "5", *more)) == 0
    found = report()
    failed = [t["params"]["fail"] for t in found["trials"]["failed"]]
    assert set(failed) == {fail}
    assert 0 < found["trials"]["n_failed"] == len(failed) < found["trials"]["n_trials"]
    assert reason in found["trials"]["failed"][0]["error"]
    assert "failed_trials" in [notice["code"] for notice in found["warnings"]]
    assert all(run["setting"] is not None for run in found["runs"])


def test_failed_trials_are_run_again_on_resumption(folder: Path) -> None:
    broken = template().replace("train.py", "gone.py")
    assert run_program(arguments("--quiet", command=broken)) == 4
    assert run_program(arguments("--quiet", "--resume", command=broken)) == 4
    lines = Path("out", "trials.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == 2 * 6
    assert all("gone.py" in json.loads(line)["error"] for line in lines)


def test_an_interrupted_evaluation_resumes_to_the_same_table(folder: Path) -> None:
    assert run_program(arguments("--quiet", "--search", "6", "--out", "straight")) == 0
    straight = report("straight")
    words = [sys.executable, "-m", "clustersplit_cli", *arguments("--search", "6", "--out", "stopped")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
    trials = Path("stopped", "trials.jsonl")
    deadline = time.monotonic() + 60
    while not (trials.exists() and trials.read_bytes().count(b"\n") >= 2) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    done = trials.read_bytes().count(b"\n")
    assert process.returncode == 130
    assert "error: interrupted after" in said
    assert "--resume" in said
    assert 2 <= done < 12
    assert not Path("stopped", "report.json").exists()
    with trials.open("ab") as lines:
        lines.write(b'{"key": "torn')  # as a kill in the middle of a line would leave it
    assert run_program(arguments("--quiet", "--search", "6", "--out", "stopped", "--resume")) == 0
    again = report("stopped")
    assert trials.read_bytes().count(b"\n") == 12
    for key in ("protocols", "training_sets", "discrepancy", "runs"):
        assert again[key] == straight[key]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("python t.py {train} {val} {test} {params}", "lacks {out}"),
        ("python t.py {train} {val} {test} {params} {out} {gpu}", "unknown placeholder {gpu}"),
        ("python 't.py {train}", "cannot be read"),
    ],
)
def test_a_template_that_cannot_work_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Template.parse(text)
    assert said in caught.value.message


def test_a_template_is_no_shell_and_leaves_other_braces_alone() -> None:
    made = Template.parse(
        "t '{a}b' --x={train} {val} {test} {params} {out} '$HOME; {0}'".replace("{a}", "{ }")
    )
    values = dict.fromkeys(("train", "val", "test", "params", "out"), "a path")
    assert made.fill(values) == ["t", "{ }b", "--x=a path", *["a path"] * 4, "$HOME; {0}"]


def test_hyper_parameters_are_drawn_from_their_ranges() -> None:
    space = parse_space(
        {
            "u": {"uniform": [-1, 1]},
            "l": {"loguniform": [1e-4, 1e-2]},
            "i": {"int": [3, 5]},
            "j": {"logint": [1, 64]},
            "c": {"choice": ["x", True, 2.5]},
            "k": 7,
        },
        source="test",
    )
    draws = [space.draw(np.random.default_rng(seed)) for seed in range(400)]
    assert {draw["i"] for draw in draws} == {3, 4, 5}
    assert {draw["c"] for draw in draws} == {"x", True, 2.5}
    assert {draw["k"] for draw in draws} == {7}
    assert all(-1 <= draw["u"] <= 1 for draw in draws)
    logs = np.log10([draw["l"] for draw in draws])
    assert -4 <= logs.min() < -3.9 < -2.1 < logs.max() <= -2
    assert abs(np.median(logs) + 3) < 0.15
    whole = np.array([draw["j"] for draw in draws])
    assert (whole.min(), whole.max()) == (1, 64)
    assert 6 <= np.median(whole) <= 10


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no hyper-parameters"),
        ("lr = { normal = [0, 1] }", "lr: distribution 'normal' is unknown"),
        ("lr = { uniform = [1] }", "lr: uniform needs [low, high]"),
        ("lr = { uniform = [2, 1] }", "lr: uniform needs [low, high]"),
        ("lr = { loguniform = [0, 1] }", "lr: loguniform starts above 0"),
        ("n = { int = [1, 2.5] }", "n: int needs whole numbers"),
        ("n = { choice = [] }", "n: choice needs a list"),
        ("n = { int = [1, 2], choice = [3] }", "n: one distribution is wanted, not 2"),
        ("n = [[", "cannot be read"),
    ],
)
def test_a_space_that_cannot_be_drawn_from_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "space.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_space(path)
    assert said in caught.value.message
