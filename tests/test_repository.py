"""What holds for the repository as a whole: who may import whom, what ships, what must agree."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import clustersplit_cli

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "clustersplit_cli"
SAMPLES = ROOT / "sample_data"
SOURCE = ROOT.parent / "shared" / "data" / "gas_drift.parquet"

SHARED = {"errors", "progress", "cleanup", "environment", "similarity"}
"""Modules at the root that every room may use."""
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "progress": set(),
    "cleanup": set(),
    "environment": {"errors"},
    "similarity": {"errors"},
    "core": SHARED,
    "data": {"core", *SHARED},
    "reports": SHARED,
    "engines": {"core", "data", "__init__", *SHARED},
    "options": {"core", "engines", *SHARED},
    "pipeline": {"core", "data", "engines", "options", "reports", "__init__", *SHARED},
    "verification": {"core", "data", "engines", "options", "pipeline", "reports", *SHARED},
    "evaluation": {"core", "data", "options", "pipeline", "reports", *SHARED},
    "cli": {
        *("core", "data", "engines", "evaluation", "options", "pipeline", "reports", "verification"),
        *("__init__", *SHARED),
    },
    "python": {
        *("cli", "core", "data", "evaluation", "options", "pipeline", "reports", "verification"),
        *SHARED,
    },
    "__main__": {"cli"},
    "__init__": {"errors", "python"},
}
"""The rooms that each room may import, wherever in a file the import stands."""
CORE_LAYERS = (
    ("parallel", "effort", "exact_sum"),
    ("constraints",),
    ("geometry",),
    ("assignment",),
    ("search",),
    ("mmd", "bound"),
    ("aims", "baselines", "certificate", "duplicates", "matching", "near_duplicates", "severity"),
)
"""The rooms and modules of core: each imports from layers above it, and from its own room."""
LIBRARIES = {
    "core": ("rich", "typer", "pyarrow"),
    "data": ("rich", "typer", "pulp"),
    "reports": ("typer", "pulp", "pyarrow"),
    "engines": ("rich", "typer"),
    "pipeline": ("rich", "typer"),
}
"""Libraries that a room has no use for."""

PUBLIC = ("__version__",)


def imports_of(path: Path, root: Path = PACKAGE, *, types: bool = True) -> Iterator[str]:
    """Yield everything a file imports, anywhere in it, with our own modules named from the package down.

    Parameters
    ----------
    types : also what only type checkers import.
    """
    package = (root.name, *path.relative_to(root).parts[:-1])
    tree = ast.parse(path.read_bytes())
    ignored = {
        id(inner)
        for node in ast.walk(tree)
        if not types and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in ignored:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            origin = ".".join((*base, *filter(None, [node.module])))
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def room_of(name: str, package: str = PACKAGE.name) -> str:
    """The room an imported name belongs to; for a library, the library."""
    parts = name.split(".")
    return parts[1] if parts[0] == package and len(parts) > 1 else parts[0]


def modules(room: str = "") -> list[Path]:
    place = PACKAGE / room
    return [place] if place.suffix == ".py" else sorted(place.rglob("*.py"))


def test_every_room_is_in_the_table() -> None:
    rooms = {entry.stem for entry in PACKAGE.iterdir() if entry.suffix == ".py" or entry.is_dir()}
    assert rooms - {"__pycache__", "py"} == set(ALLOWED)
    TopologicalSorter({room: allowed - {"__init__"} for room, allowed in ALLOWED.items()}).prepare()


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    offences = set()
    for path in modules(room if (PACKAGE / room).is_dir() else f"{room}.py"):
        for name in imports_of(path):
            origin = room_of(name)
            if origin in ("clustersplit_cli", *PUBLIC):  # the package itself, for its version
                origin = "__init__"
            if origin in ALLOWED and origin not in {room, *ALLOWED[room]}:
                offences.add(f"{path.relative_to(ROOT)} imports {name}")
            if origin in LIBRARIES.get(room, ()):
                offences.add(f"{path.relative_to(ROOT)} imports {name}")
    assert not offences


def test_layers_of_core_go_one_way() -> None:
    layer = {name: number for number, names in enumerate(CORE_LAYERS) for name in names}
    offences = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules("core")
        if path != PACKAGE / "core" / "__init__.py"
        for name in imports_of(path)
        if name.startswith("clustersplit_cli.core.")
        for mine, other in [
            (path.relative_to(PACKAGE / "core").parts[0].removesuffix(".py"), name.split(".")[2])
        ]
        if other != mine and layer[other] >= layer[mine]
    }
    assert not offences


def test_no_modules_import_each_other() -> None:
    """In a circle, that is, and be it inside functions."""
    named = {module_name(path): path for path in modules()}
    graph = {
        name: {origin for origin in imports_of(path, types=False) if origin in named} - {name}
        for name, path in named.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError naming the modules


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def test_the_files_that_the_architecture_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    places = re.findall(r"^\| [^|]+ \| `([a-z_/]+\.py)` \|$", text, re.MULTILINE)
    assert len(places) >= 20
    assert not [place for place in places if not (PACKAGE / place).is_file()]


AT_A_BOUNDARY = {
    "cli": "a command imports what only it needs when it runs",
    "python": "importing the package is quick",
    "api": "importing the package is quick",
    "arguments": "importing the package is quick",
    "splitters": "importing the package is quick",
    "options": "help is shown without the rooms that check values",
    "core/assignment/cbc": "PuLP takes a while to import",
    "pipeline/sharded/engine": "Dask is an extra",
    "pipeline/local/engine": "splits do without what makes folds and parts",
    "data/pins": "forced rows are read like rows of earlier runs, which are read like features",
}
"""Where modules of ours are imported inside functions, and why."""


def test_our_modules_are_imported_inside_functions_at_boundaries_alone() -> None:
    late = set()
    for path in modules():
        functions = [
            node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.FunctionDef)
        ]
        inner = (node for function in functions for node in ast.walk(function))
        if any(
            isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE.name)
            for node in inner
        ):
            late.add(path.relative_to(PACKAGE).with_suffix("").as_posix())
    astray = {name for name in late if not {name, name.split("/")[0]} & set(AT_A_BOUNDARY)}
    assert late and not astray


MOST_FILES = 16


def test_no_folder_has_more_files_than_a_reader_takes_in() -> None:
    folders = {path.parent for path in modules()}
    assert len(folders) > 10
    counts = {folder.relative_to(ROOT).as_posix(): len([*folder.glob("*.py")]) for folder in folders}
    assert {folder: count for folder, count in counts.items() if count > MOST_FILES} == {}


MOST_PARAMETERS, FEW_PARAMETERS = 9, ("core/search", "pipeline")
"""Functions of these folders take a context rather than trains of parameters."""


@pytest.mark.parametrize("folder", FEW_PARAMETERS)
def test_functions_have_few_parameters(folder: str) -> None:
    counts = {
        f"{path.name}:{node.lineno} {node.name}": len(
            [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        )
        for path in modules(folder)
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.FunctionDef)
    }
    assert counts
    assert {place: count for place, count in counts.items() if count > MOST_PARAMETERS} == {}


def test_every_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert places
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


TAKES_FUNCTIONS = {
    "core/assignment/prices": "rows are counted wherever they are",
    "core/assignment/thresholds": "rows are counted wherever they are",
    "core/baselines": "draws where cells hang together",
    "core/duplicates": "rows are compared wherever they are",
    "core/geometry/factored": "blocks of factors, read or made anew",
    "core/geometry/spectrum": "factors along directions",
    "core/matching": "a product with the kernel",
    "core/mmd": "tiles of the kernel and what to sum of them; progress",
    "core/near_duplicates": "tiles of the kernel",
    "core/parallel": "work for a pool",
    "pipeline/background": "work beside the search",
    "pipeline/compare": "a table of strategies",
    "pipeline/context": "values that are made when they are asked for",
    "pipeline/inspect": "work that is timed; widths by rule",
}
"""Where functions are handed over: operators or work. Stages return values and call back progress alone."""


def test_functions_are_handed_over_where_that_is_listed() -> None:
    taking = set()
    for room in ("core", "pipeline"):
        for path in modules(room):
            for node in ast.walk(ast.parse(path.read_bytes())):
                annotation = getattr(node, "annotation", None)
                if annotation is not None and "Callable" in ast.unparse(annotation):
                    taking.add(path.relative_to(PACKAGE).with_suffix("").as_posix())
    listed = {name for name in taking if any(name.startswith(place) for place in TAKES_FUNCTIONS)}
    assert taking - listed == set()
    unused = {place for place in TAKES_FUNCTIONS if not any(name.startswith(place) for name in taking)}
    assert unused == set()


def test_hardly_anybody_asks_what_class_a_geometry_is() -> None:
    asked = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
        if ast.unparse(node.args[1]).endswith("Geometry")
    ]
    assert len(asked) <= 4, asked


def test_pulp_is_imported_in_one_module() -> None:
    importers = {path for path in modules() if "pulp" in map(room_of, imports_of(path))}
    assert importers == {PACKAGE / "core" / "assignment" / "pulp_model.py"}


def test_scipy_is_imported_by_the_functions_that_use_it() -> None:
    """It takes longer to import than a small split to make."""
    above = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules()
        for node in ast.parse(path.read_bytes()).body
        if isinstance(node, (ast.Import, ast.ImportFrom)) and "scipy" in ast.unparse(node)
    }
    assert not above


def test_nothing_is_printed_past_the_console() -> None:
    calls = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in [*modules(), *SAMPLES.glob("*.py")]
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Name) and node.id == "print"
    }
    assert not calls


def test_the_import_walk_sees_relative_nested_and_lazy_imports(tmp_path: Path) -> None:
    module = tmp_path / "pkg" / "core" / "deep" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text(
        "from ...reports import summary\nfrom . import near\nfrom ..kernels import rbf\n"
        "def later():\n    import rich.text\n    from pkg import cli\n"
    )
    names = set(imports_of(module, tmp_path / "pkg"))
    assert {"pkg.reports.summary", "pkg.core.deep.near", "pkg.core.kernels", "rich.text", "pkg.cli"} <= names
    assert {room_of(name, "pkg") for name in names} == {"reports", "core", "rich", "pkg", "cli"}


def test_the_version_is_the_same_everywhere_and_in_the_changelog() -> None:
    stated = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert stated is not None
    assert stated[1] == clustersplit_cli.__version__
    assert f"\n## [{stated[1]}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_continuous_integration_runs_lint_and_tests() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert {"make lint", "make test"} <= set(script.read_text("utf-8").splitlines())


def test_make_help_explains_every_target() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    declared = re.search(r"^\.PHONY:(.*)$", text, re.MULTILINE)
    assert declared is not None
    # Variables of an outer make would change how the inner one talks.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    explained = {line.split()[1] for line in shown.splitlines() if len(line.split()) > 2}
    assert explained == set(declared[1].split()) - {"FORCE"}


def test_the_sample_data_is_small_and_says_where_it_comes_from() -> None:
    assert sum(path.stat().st_size for path in SAMPLES.iterdir() if path.is_file()) < 2_000_000
    readme = (SAMPLES / "README.md").read_text("utf-8")
    for word in ("Vergara", "UCI Machine Learning Repository", "10.24432/C5RP6W", "CC BY 4.0", "cut.py"):
        assert word in readme


def test_the_three_forms_of_the_sample_data_hold_the_same_rows() -> None:
    features = np.load(SAMPLES / "gas.npy", allow_pickle=False)
    labels = np.load(SAMPLES / "gas_label.npy", allow_pickle=False)
    domains = np.load(SAMPLES / "gas_domain.npy", allow_pickle=False)
    assert features.shape == (2061, 64)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()
    assert len(set(labels)) == 6
    assert len(set(domains)) == 5

    scalars = pq.read_table(SAMPLES / "gas.parquet")
    assert scalars.column_names == [*(f"f{index}" for index in range(64)), "label", "domain"]
    lists = pq.read_table(SAMPLES / "gas_list.parquet")
    assert lists.column_names == ["features", "label", "domain"]
    assert lists.schema.field("features").type.list_size == 64
    for table in (scalars, lists):
        assert table["label"].to_pylist() == labels.tolist()
        assert table["domain"].to_pylist() == domains.tolist()
    for index in range(64):
        column = scalars[f"f{index}"].to_numpy()
        assert column.dtype == np.float32
        np.testing.assert_array_equal(column, features[:, index])
    flat = lists["features"].combine_chunks().flatten().to_numpy()
    assert flat.dtype == np.float32
    np.testing.assert_array_equal(flat.reshape(-1, 64), features)


def test_the_committed_script_cuts_the_committed_sample_data(tmp_path: Path) -> None:
    if not SOURCE.exists():
        pytest.skip("the full gas-sensor table is not beside the repository")
    subprocess.run([sys.executable, SAMPLES / "cut.py", SOURCE, "--out", tmp_path], check=True)
    for name in ("gas.npy", "gas_label.npy", "gas_domain.npy"):
        assert (tmp_path / name).read_bytes() == (SAMPLES / name).read_bytes()
    for name in ("gas.parquet", "gas_list.parquet"):
        assert pq.read_table(tmp_path / name).equals(pq.read_table(SAMPLES / name))
