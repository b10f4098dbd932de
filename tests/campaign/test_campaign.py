"""A small part of the campaign on every run of the tests, and what the campaign itself must be."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.campaign import aims, cases, inputs, oracle, problems, runner
from tests.campaign.findings import Outcome, judged, snapshot
from tests.campaign.options import FLAGS, MAKERS, NONSENSE
from tests.campaign.process import Result

ROOT = Path(__file__).resolve().parents[2]
OTHER_HOST = re.compile(r"\b[a-z][a-z0-9+.-]*://(?!(127\.0\.0\.1|localhost|/)[:/\w]*)", re.IGNORECASE)


def campaign(*words: str, code: str = "") -> subprocess.CompletedProcess[str]:
    start = ["-c", code] if code else ["-m", "tests.campaign"]
    return subprocess.run(
        [sys.executable, *start, *words], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )


def test_a_small_campaign_finds_nothing(tmp_path: Path) -> None:
    counts = "cases=30,oracle=8,kills=1,tamper=6"
    done = campaign(
        "--counts", counts, "--seed", "11", "--workers", "2", "--record", str(tmp_path / "found.json")
    )
    assert done.returncode == 0, done.stderr
    kinds = json.loads((tmp_path / "found.json").read_text("utf-8"))["kinds"]
    assert ",".join(f"{kind}={found['cases']}" for kind, found in kinds.items()) == counts
    assert kinds["cases"]["tags"]["verified"] > 0
    assert kinds["oracle"]["tags"]["split: compared"] > 0


def test_the_campaign_refuses_to_start_where_other_machines_can_be_reached() -> None:
    code = """
import socket
from tests.campaign import isolation, runner
class Reachable(socket.socket):
    def connect(self, _): pass
isolation._has_loopback_only = isolation.enter_namespace = lambda: False
isolation.block_sockets = lambda: None
isolation.socket.socket = Reachable
raise SystemExit(runner.main(["--counts", "cases=1"]))
"""
    done = campaign(code=code)
    assert done.returncode == 2, done.stderr
    assert "can be reached: the campaign does not start" in done.stderr
    assert "cases" not in done.stderr


@pytest.mark.parametrize("namespace", [True, False], ids=["namespace", "blocked sockets"])
def test_an_isolated_process_reaches_this_machine_only(namespace: bool) -> None:
    code = f"""
from tests.campaign import isolation
import socket
if not {namespace}:
    isolation._has_loopback_only = isolation.enter_namespace = lambda: False
print(isolation.isolate())
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(server.getsockname(), timeout=5).close()
for address in (("192.0.2.1", 80), ("example.invalid", 80)):
    try:
        socket.create_connection(address, timeout=2)
    except Exception as error:
        print(type(error).__name__)
"""
    done = campaign(code=code)
    said = done.stdout.split()
    if namespace and said[:1] == ["blocked"]:
        pytest.skip("this machine allows no network namespace")
    assert done.returncode == 0, done.stderr
    expected = ["namespace", "OSError", "gaierror"]
    assert said == (expected if namespace else ["blocked", "sockets", *["NetworkRefusedError"] * 2])


def test_no_case_names_another_host(tmp_path: Path) -> None:
    assert OTHER_HOST.search("s3://bucket/x") is not None
    assert OTHER_HOST.search("tcp://127.0.0.1:1 tcp://localhost:1 file:///etc/hostname") is None
    rng = np.random.default_rng(0)
    folder = tmp_path
    place = cases.Place(cases.make_table(rng), cases.write(rng, cases.make_table(rng), folder), folder)
    values = [str(make(np.random.default_rng(seed), place)) for make in MAKERS.values() for seed in range(40)]
    for value in [*values, *NONSENSE]:
        assert OTHER_HOST.search(value) is None, value
    for number in range(40):
        (tmp_path / str(number)).mkdir()
        case = cases.build(3, number, tmp_path / str(number))
        assert OTHER_HOST.search(" ".join(case.words)) is None


def test_cases_share_a_cluster_that_ends_with_the_campaign(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    code = f"""
from pathlib import Path
from tests.campaign import bases, cases, cluster, findings, inputs, isolation, process
isolation.isolate()
place, outcome, addresses = Path({str(tmp_path)!r}) / "place", findings.Outcome(), []
process.fresh(place)
process.call(lambda: bases.write_inputs(place / "work"))
words = ("feats.parquet", "--columns", "f*", "--engine", "dask", "--scheduler", cases.CLUSTER, "--quiet")
for command in ("split", "baseline random"):
    inputs._run((*command.split(), *words, "--nystrom", "5"), place, outcome)
    addresses.append(cluster.SHARED.address())
processes = list(cluster.SHARED._running)
cluster.SHARED.stop()
print(len(set(addresses)), len(processes), sum(p.poll() is None for p in processes))
print(outcome.tags["on the cluster: exit 0"], outcome.findings)
"""
    done = campaign(code=code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["1 3 0", "2 []"]


def test_every_option_of_every_command_is_generated() -> None:
    known = {*MAKERS, *FLAGS}
    for command, names in cases.option_names().items():
        assert not set(names) - known, command


def test_a_case_is_a_function_of_its_seed_and_number(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        trees = []
        for number in range(25):
            folder = tmp_path / name / str(number)
            folder.mkdir(parents=True)
            case = cases.build(5, number, folder)
            tree = {path: content for path, content in snapshot(folder).items() if not path.endswith(".npz")}
            trees.append((case, tree))  # archives hold the time
        made.append(trees)
    assert made[0] == made[1]
    assert len({case.words for case, _ in made[0]}) > 20


@pytest.mark.parametrize(
    ("code", "out", "err", "rule"),
    [
        (70, "", "error: KeyError: 'x'\nhint: report it\n", "exit code 70"),
        (1, "", "", "exit code 1"),
        (-11, "", "", "killed by a signal"),
        (None, "", "", "takes too long"),
        (2, "", "error: no\n", "1 lines of error and 0 of hint"),
        (2, "", "error: no\nhint: yes\nmore\n", "error and hint are not the last two lines"),
        (2, "x", "error: no\nhint: yes\n", "output on stdout of a failed run"),
        (0, "{}", "RuntimeWarning: overflow\n", "said Warning:"),
        (
            2,
            "",
            "Traceback (most recent call last):\nerror: a\nhint: b\n",
            "said Traceback (most recent call last)",
        ),
        (2, "", f"error: {'x' * 9999}\nhint: b\n", "a line that nobody can read"),
        (0, "{}", "error: but done\n", "an error, but exit code 0"),
        (0, '{"mmd": NaN}', "", "--json gives no JSON"),
    ],
)
def test_every_breach_is_found(code: int | None, out: str, err: str, rule: str) -> None:
    words = ("split", "x", "--json")
    assert [found.rule for found in judged(Result(words, code, out, err, 1.0, False))] == [rule]


def test_what_is_documented_is_no_finding() -> None:
    for code, out, err in (
        (0, "{}", "warning: w\n"),
        (2, "", "error: a\nhint: b\n"),
        (3, "", "error: a\nhint: b\n"),
    ):
        assert judged(Result(("split", "--json"), code, out, err, 1.0, False)) == []
    assert judged(Result(("verify", "out"), 1, "", "failed  rows\n", 1.0, False)) == []


def test_the_oracle_agrees_with_sums_done_by_hand() -> None:
    x = np.array([[0.0], [2.0], [4.0]])
    K = oracle.kernel_matrix(x, "linear", None, 1)
    one, other = np.array([0, 1]), np.array([2])
    assert oracle.psi(K, [one, other]) == pytest.approx(2.0)
    assert oracle.mmd_squared(K, one, other) == pytest.approx(9.0)
    assert oracle.psi_of_all(K, np.array([[0, 0, 1]], dtype=np.int8), 2)[0] == pytest.approx(2.0)
    assert len(oracle.all_labelings(3, 3)) == 27
    assert oracle.kernel_matrix(x, "rbf", 0.5, 1)[0, 1] == pytest.approx(np.exp(-2.0))


def test_the_oracle_sees_a_split_that_is_not_the_best_and_numbers_that_are_wrong() -> None:
    problem = problems.make(0, 0)
    K = oracle.kernel_matrix(oracle.standardized(problem.x, "none"), "linear", None, 1)
    labels = (np.arange(problem.n) % 2).astype(np.int64)
    parts = [np.flatnonzero(labels == part) for part in (0, 1)]
    report = {
        "objective": {"psi": oracle.psi(K, parts), "ssq_total": oracle.scatter(K, np.arange(problem.n))},
        "mmd": {"squared": oracle.mmd_squared(K, *parts)},
        "trace": [{"psi": oracle.psi(K, parts)}],
        "graded": None,
    }
    assert list(problems._wrong_numbers(problem, K, labels, report)) == []
    report["objective"]["psi"] *= 1.001
    rules = {rule for rule, _ in problems._wrong_numbers(problem, K, labels, report)}
    assert rules == {"psi is not what the definition gives", "the trace does not end at Psi"}
    codes = np.zeros(problem.n, dtype=np.int64)
    count = int(labels.sum())
    cell = {"cell": {}, "part": None, "lower": count, "upper": count, "actual": count}
    loose = problems.Problem(**{**vars(problem), "families": (codes,)})
    outcome, stated = Outcome(), {"constraints": {"cells": [cell]}, "graded": None}
    feasible = problems._feasible(loose, labels, stated, oracle.all_labelings(problem.n, 2))
    problems._compare_with_best(loose, K, labels, stated, feasible, outcome)
    assert (outcome.tags["split: compared"], outcome.tags["split: best"]) == (1, 0)


def test_the_oracle_sees_what_is_wrong_about_a_target() -> None:
    rng = np.random.default_rng(4)
    joint, n = oracle.kernel_matrix(rng.normal(size=(9, 2)), "rbf", 0.5, 1), 6
    labels = np.array([0, 1, 0, 1, 0, 1])
    rows, target = np.arange(n), np.arange(n, 9)
    values = aims.value_of_all(joint, n, "nearest", labels[None, :])
    assert values[0] == pytest.approx(oracle.mmd_squared(joint, np.flatnonzero(labels), target))
    witness = joint[:n, n:].mean(axis=1) - joint[:n, :n].mean(axis=1)
    alike = aims.value_of_all(joint, n, "lookalike", labels[None, :])
    assert alike[0] == pytest.approx(witness[labels == 1].mean() - witness[labels == 0].mean())
    sides = {"mmd": rows, "mmd_train": rows[labels == 0], "mmd_val": rows[labels == 1]}
    stated = {name: oracle.mmd_squared(joint, each, target) ** 0.5 for name, each in sides.items()}
    apart = oracle.mmd_squared(joint, sides["mmd_train"], sides["mmd_val"])
    stated["valid"] = apart > max(stated["mmd_train"], stated["mmd_val"]) ** 2
    assert list(aims.wrong_distances(joint, labels, stated, 1e-9)) == []
    assert len(list(aims.wrong_distances(joint, labels, stated | {"mmd_val": 0.9}, 1e-9))) == 1
    assert len(list(aims.wrong_distances(joint, labels, stated | {"valid": not stated["valid"]}, 1e-9))) == 1
    account = {"certificate": {"value": 0.3, "bound": 0.25}}
    assert list(aims.wrong_certificate([0.25, 0.3, 0.4], 0.3, "nearest", account, 1e-9)) == []
    assert len(list(aims.wrong_certificate([0.2, 0.3], 0.3, "nearest", account, 1e-9))) == 1
    assert len(list(aims.wrong_certificate([0.2, 0.3], 0.2, "lookalike", account, 1e-9))) == 2


def test_the_page_gets_the_table_of_the_summary(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{runner.BEGIN}\nold\n{runner.END}\nafter\n")
    summary: dict[str, Any] = {
        "commit": "abc",
        "seed": 3,
        "date": "2026-01-01",
        "kinds": {"cases": {"cases": 20000, "seconds": 9, "findings": 0, "tags": {"commands": 21000}}},
    }
    runner.write_page(page, summary)
    text = page.read_text()
    assert "| cases | 20,000 | 21,000 | 0 |" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    tags = {"split: compared": 30, "split: best": 29, "folds: compared": 10, "folds: best": 10}
    solved = {"oracle": {"cases": 50, "seconds": 9, "findings": 0, "tags": tags}}
    runner.write_page(page, {**summary, "seed": 4, "kinds": summary["kinds"] | solved}, add=True)
    assert "39 of 40 problems of the oracle ended at the best of all splits." in page.read_text()
    assert [f"seed {seed}" in page.read_text() for seed in (3, 4)] == [True, True]
    assert page.read_text().count("| cases | 20,000 | 21,000 | 0 |") == 2


def test_options_of_a_line_are_counted_by_name_and_few_values() -> None:
    line = ("split", "--h", "0.2", "--engine=stream", "--aim", "shift", "--force", "--", "--odd")
    assert inputs._options(line) == ["--h", "--engine stream", "--aim shift", "--force"]


def test_make_fuzz_runs_the_campaign() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    words = ["make", "--dry-run", "--no-print-directory", "fuzz", "SECONDS=5", "SEED=9", "KIND=oracle"]
    said = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    assert "-m tests.campaign --seconds 5 --seed 9 --kind oracle" in said
