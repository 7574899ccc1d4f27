"""Lets tools that still call ``setup.py`` build ares; everything is said in ``setup.cfg``."""

from setuptools import setup

setup()
