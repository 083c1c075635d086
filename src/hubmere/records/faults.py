"""What can be wrong with the records of a batch."""


class UnreadableRecords(ValueError):
    """Records that no reader can decode. `index` names the record at fault, or is None when the whole batch is."""

    def __init__(self, why: str, index: int | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.index = index
