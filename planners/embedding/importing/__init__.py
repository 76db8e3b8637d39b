"""Imports tables from CSV and Parquet files, and from torchrec models."""
