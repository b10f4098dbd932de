"""From raw features to the rows that the kernel's formula applies to, whatever the features are held in."""

from __future__ import annotations

import numpy as np

from clustersplit_cli.core.geometry.features import Features, Floats
from clustersplit_cli.core.geometry.kernels import Prepared, prepare, standardize
from clustersplit_cli.core.geometry.sparse import prepare_sparse
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.options import CheckedOptions


def prepare_features(
    raw: Floats, options: CheckedOptions, workers: Workers, samples: np.random.Generator
) -> Prepared:
    """Standardize the features and resolve the kernel's width."""
    if hasattr(raw, "indptr"):
        return prepare_sparse(raw, options.kernel, options.standardize)
    features = standardize(Features(raw), options.standardize, workers)
    # A stream of its own: a width given as a number leaves the other samples as they are.
    (width_stream,) = samples.spawn(1)
    return prepare(features, options.kernel, options.gamma, options.degree, workers, width_stream)
