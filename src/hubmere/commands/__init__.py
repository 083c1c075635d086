"""The commands that speak to a running node over HTTP; `cli.py` loads each when it is asked for.

They rest on `model`, `settings`, `ready` and `exits`, and on `broker.access` for making tokens; no room knows them.
"""
