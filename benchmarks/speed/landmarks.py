"""Do 2,000 landmarks find as good a split of 200,000 rows as 4,000? The exact kernel judges."""

from __future__ import annotations

from pathlib import Path

from benchmarks import harness


def main() -> None:
    """Split the same file with both, within the default memory budget, and compare."""
    with harness.workspace() as folder:
        case = harness.write_generated(folder, 200_000, 256, 4, 5)
        found = {}
        for q in (2000, 4000):
            ran = harness.split(Path(case[0]), *case[1:], "--nystrom", str(q))
            report = ran.report
            found[q] = report["mmd"]["subsample"]
            met = report["constraints"]["all_satisfied"]
            print(f"q = {q}: {ran.seconds:.0f} s, constraints met: {met}", flush=True)
            print(f"  peak {ran.peak / 1e9:.2f} GB, planned {report['plan']['bytes'] / 1e9:.2f} GB")
            estimate, error = found[q]["mmd_squared_unbiased"], found[q]["standard_error"]
            print(f"  exact-kernel MMD² {estimate:.5f} (se {error:.5f})")
    few, many = found[2000], found[4000]
    shortfall = many["mmd_squared_unbiased"] - few["mmd_squared_unbiased"]
    error = (few["standard_error"] ** 2 + many["standard_error"] ** 2) ** 0.5
    print(f"shortfall of q = 2000: {shortfall / error:.2f} standard errors (limit 4)")


if __name__ == "__main__":
    main()
