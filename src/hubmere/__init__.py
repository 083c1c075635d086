"""Hubmere: an Event Hubs that runs anywhere."""

import os

__version__ = "0.1.0"


def _use_interpreted_kernels() -> None:
    """Put the source of `hubmere.kernels` in the place of its compiled form, which an import would prefer."""
    import sys
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    spec = spec_from_file_location("hubmere.kernels", Path(__file__).with_name("kernels.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    globals()["kernels"] = module
    spec.loader.exec_module(module)


# For comparing the two and for ruling the compiler out when something looks wrong.
if os.environ.get("HUBMERE_PURE") == "1":
    _use_interpreted_kernels()
