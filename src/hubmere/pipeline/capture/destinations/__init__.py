"""Places that captured files go to, by URL: a folder, Azure Blob or Data Lake storage, S3.

A file is written aside, by a task, and becomes visible under its name, all at once, when the driver publishes it. A
name that is taken by the same span is done; one that is taken by anything else is refused. What goes wrong never
shows a credential.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final
from urllib.parse import urlsplit

from hubmere.pipeline.capture.destinations.base import (
    Destination,
    DestinationFailed,
    InvalidDestination,
    NameTaken,
    Stored,
    Upload,
)

__all__ = [
    "Destination", "DestinationFailed", "InvalidDestination", "NameTaken", "Stored", "Upload", "destination_of",
]  # fmt: skip

# Scheme, the module that knows it, and what that needs beside the base installation.
_MODULES: Final = {
    "file": ("local", "pyarrow"),
    "az": ("blob", "azure-storage-blob"),
    "s3": ("s3", "boto3"),
}


def destination_of(url: str, options: Mapping[str, str]) -> Destination:
    """The destination that a URL names."""
    scheme = urlsplit(url).scheme
    if scheme not in _MODULES:
        raise InvalidDestination(url, f"begins with none of {', '.join(f'{name}://' for name in _MODULES)}")
    module, package = _MODULES[scheme]
    try:
        opener: Callable[[str, Mapping[str, str]], Destination] = import_module(f"{__name__}.{module}").open_destination
    except ImportError as error:
        raise InvalidDestination(
            url, f'needs {package}, which is not installed (pip install "hubmere[capture]"): {error}'
        ) from None
    return opener(url, options)
