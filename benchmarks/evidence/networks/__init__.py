"""Whole convolutional networks, trained on splits of features that were fine-tuned on the development set."""
