from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clustersplit_cli.errors import InputError
from clustersplit_cli.reports.json_report import load_report
from clustersplit_cli.reports.readable import render_json
from clustersplit_cli.reports.summary import Report


def test_a_report_reads_back_with_every_key_in_order(report: Report) -> None:
    text = render_json(report)
    loaded = load_report(text)
    assert list(loaded) == [field.name for field in fields(Report)]
    assert loaded["config"]["stratify"] == ["label", "domain"]
    assert loaded["trace"][3] == {"phase": "polish", "iteration": 3, "psi": 812.3456789}
    assert loaded["bound"] is None
    assert text == render_json(report)


def test_the_text_is_indented_keeps_its_letters_and_ends_with_one_newline(report: Report) -> None:
    text = render_json(report)
    assert text.startswith('{\n  "schema_version": 1,\n  "tool": {\n    "version": "0.1.0"')
    assert text.endswith("}\n")
    assert "éthanol" in text


@given(value=st.floats(allow_nan=False, allow_infinity=False))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_floats_survive_to_the_last_bit(report: Report, value: float) -> None:
    loaded = load_report(render_json(replace(report, config={"x": value})))
    assert repr(loaded["config"]["x"]) == repr(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_numbers_that_are_not_finite_become_null(report: Report, value: float) -> None:
    text = render_json(replace(report, config={"x": (1.5, value)}))
    assert json.loads(text)["config"]["x"] == [1.5, None]
    assert "NaN" not in text
    assert "Infinity" not in text


def test_numpy_scalars_and_paths_are_written_as_plain_values(report: Report) -> None:
    config = {
        "count": np.int64(3),
        "width": np.float32(0.5),
        "exact": np.bool_(True),
        "name": np.str_("gas"),
        "out": Path("a") / "b",
    }
    loaded = load_report(render_json(replace(report, config=config)))
    assert loaded["config"] == {"count": 3, "width": 0.5, "exact": True, "name": "gas", "out": "a/b"}
    assert loaded["config"]["exact"] is True


def test_a_file_name_that_is_not_utf8_can_be_written_and_reads_back(report: Report, tmp_path: Path) -> None:
    name = b"caf\xe9.npy".decode("utf-8", "surrogateescape")
    files = (replace(report.input.files[0], path=name),)
    destination = tmp_path / "report.json"
    destination.write_text(render_json(replace(report, input=replace(report.input, files=files))), "utf-8")
    assert load_report(destination.read_text("utf-8"))["input"]["files"][0]["path"] == name


def test_what_json_cannot_hold_is_refused_by_name(report: Report) -> None:
    with pytest.raises(TypeError, match=r"report\.config\.rows"):
        render_json(replace(report, config={"rows": np.arange(3)}))
    with pytest.raises(TypeError, match=r"report\.config\.cells"):
        render_json(replace(report, config={"cells": {1: "a"}}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "run.json is not JSON: Expecting value (line 1, column 1)"),
        ('{"schema_version": 1,\n oops}', "(line 2, column 2)"),
        ('{"schema_version": NaN}', "run.json is not JSON: NaN is not a JSON number"),
        ("[" * 200_000, "run.json is not JSON: "),
        ("[1, 2]", "run.json is not a report: it has no schema_version"),
        ("{}", "run.json is not a report: it has no schema_version"),
        ('{"schema_version": 99}', "run.json has schema version 99, this program reads version 1"),
        ('{"schema_version": "1"}', 'run.json has schema version "1", this program reads version 1'),
        ('{"schema_version": true}', "run.json has schema version true, this program reads version 1"),
        (
            '{"schema_version": 1}',
            "run.json is not a complete report: tool is missing, and should be an object; and ",
        ),
    ],
)
def test_what_is_not_a_report_is_refused_with_one_line_and_a_cure(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_report(text, source="run.json")
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_a_report_whose_config_is_not_an_object_is_refused(report: Report) -> None:
    content: dict[str, Any] = json.loads(render_json(report))
    content["config"] = ["--kernel", "rbf"]
    with pytest.raises(InputError, match="config is a list, and should be an object"):
        load_report(json.dumps(content))
