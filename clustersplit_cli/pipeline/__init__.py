"""The order of the steps: from a dataset and options to a result and its report."""
