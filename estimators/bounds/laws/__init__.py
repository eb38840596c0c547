"""The known properties of the laws of sums of reports."""
