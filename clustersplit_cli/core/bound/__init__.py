"""An upper bound on the MMD of any split that meets the constraints."""
