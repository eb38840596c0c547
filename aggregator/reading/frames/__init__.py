"""Answers as tables and pictures, for data frames, CSV, Parquet and notebooks."""
