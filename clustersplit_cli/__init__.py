"""Train/validation splits that are as different as the constraints allow."""

__version__ = "0.1.0"
