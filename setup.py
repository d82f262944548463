"""For tools that still ask for it; everything stands in pyproject.toml."""

from setuptools import setup

setup()
