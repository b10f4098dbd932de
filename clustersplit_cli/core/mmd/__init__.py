"""The maximum mean discrepancy: sums of kernel values, estimators, tests, witnesses."""
