"""The error for records that cannot be decoded."""


class UnreadableRecords(ValueError):
    """Records that no reader can decode. `index` is the record at fault, None if it is the batch as a whole."""

    def __init__(self, why: str, index: int | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.index = index


class RecordsTooLarge(UnreadableRecords):
    """The decompressed records are larger than the caller allows."""
