"""Lets the tests in the rooms here import what lies beside this module."""
