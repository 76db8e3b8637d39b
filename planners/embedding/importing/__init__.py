"""Tables that were written down for others: spreadsheets, TorchEasyRec's configs, models."""
