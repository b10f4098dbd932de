"""The paper's setting: DANN and CORAL heads on frozen features, chosen through `evaluate --command`."""
