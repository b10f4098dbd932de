"""The assignment step: which rows go where, given each row's cost of going there."""
