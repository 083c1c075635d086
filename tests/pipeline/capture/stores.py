"""A destination for tests: its URL and what opens it."""

from collections.abc import Mapping
from dataclasses import dataclass

from hubmere.pipeline.capture.destinations import Destination, destination_of

# Azurite's published account: the same on every machine.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class Store:
    """One of each kind."""

    url: str
    options: Mapping[str, str]

    def opened(self, **others: str) -> Destination:
        """The destination, with other options if a test wants them wrong."""
        return destination_of(self.url, {**self.options, **others})
