"""The notebook of the documentation: ten cells, run from the first to the last."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: make test installs it")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: make test installs it")

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "docs" / "notebooks" / "first_split.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """Run it where its data are, in a kernel of this environment; the kernel listens on this machine only."""
    for name in ("ipykernel", "jinja2", "plotly", "sklearn", "pandas"):
        pytest.importorskip(name, reason=f"{name} is not installed: make test installs it")
    folder = tmp_path_factory.mktemp("notebook")
    shutil.copytree(ROOT / "sample_data", folder / "sample_data")
    (folder / "build").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        content = nbformat.read(NOTEBOOK, as_version=4)
        client = nbclient.NotebookClient(
            content, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
        )
        assert client.create_kernel_manager().ip == "127.0.0.1"
        client.execute()
    return content, folder


def outputs(cell: Any) -> str:
    """Everything a cell shows, as text and as HTML."""
    texts = [output.get("text", "") for output in cell.outputs]
    texts += [text for output in cell.outputs for text in output.get("data", {}).values()]
    return "\n".join(map(str, texts))


def test_the_notebook_is_stored_without_outputs_and_has_ten_cells_of_code() -> None:
    content = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(content)
    code = [cell for cell in content.cells if cell.cell_type == "code"]
    assert len(code) == 10
    assert not any(cell.outputs or cell.execution_count for cell in code)


@pytest.mark.filterwarnings("ignore")  # of the libraries that run notebooks
def test_the_notebook_runs_from_load_to_report(executed: tuple[Any, Path]) -> None:
    content, folder = executed
    code = [cell for cell in content.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, 11))
    shown = [outputs(cell) for cell in code]
    assert "cells" in shown[1]
    assert "<svg" in shown[2]
    assert "<table" in shown[2]
    assert "\rclustersplit: " in shown[2]  # progress is written over itself
    assert "times the random mean" in shown[3]
    assert "PermutationTest(MMD" in shown[5]
    assert "ridgeclassifier__alpha" in shown[7]
    assert "failed" not in shown[8]
    assert "ok      by definition" in shown[8]
    assert "ClusterSplitWarning" not in "".join(shown[3:])
    page = (folder / "build" / "notebook_split.html").read_text("utf-8")
    assert page.startswith("<!doctype html>") or page.lstrip().lower().startswith("<!doctype html>")
