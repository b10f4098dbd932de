"""Kernels and features: everything that can multiply a kernel by a block of vectors."""
