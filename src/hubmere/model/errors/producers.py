"""Refusals of idempotent and transactional producers."""

from hubmere.model.errors.base import Refusal


class ProducerRefused(Refusal):
    """An idempotent or transactional producer violates its protocol."""


class ProducerFenced(ProducerRefused):
    """A newer instance of the producer has taken over."""

    def __init__(self, producer_id: int, epoch: int, current_epoch: int) -> None:
        super().__init__(producer_id, epoch, current_epoch)
        self.producer_id = producer_id
        self.epoch = epoch
        self.current_epoch = current_epoch

    def text(self) -> str:
        """With both epochs in the words of the service, for which the tests of an SDK look."""
        return (
            f"Producer {self.producer_id} was superseded by one with a higher epoch. "
            f"Received:{self.epoch} Current:{self.current_epoch}"
        )


class SequenceGap(ProducerRefused):
    """A producer's sequence number is not the next one."""

    def __init__(self, producer_id: int, got: int, last: int) -> None:
        super().__init__(producer_id, got, last)
        self.producer_id = producer_id
        self.got = got
        self.last = last

    def text(self) -> str:
        return (
            f"Producer {self.producer_id} sent sequence number {self.got} after {self.last}; {self.last + 1} is next."
        )


class TransactionRefused(ProducerRefused):
    """A transactional request is not allowed in the state of the transaction."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return self.why


class TransactionAbortable(TransactionRefused):
    """A transaction cannot be committed any more; its producer has to abort it (KIP-890)."""
