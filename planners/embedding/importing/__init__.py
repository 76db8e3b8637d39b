"""Imports tables from spreadsheets, TorchEasyRec's configs and torchrec models."""
