"""The latest few things that were made, by what they were made from."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Latest(OrderedDict[Key, Value]):
    """What was asked for last is last; of more than ``most``, what was asked for longest ago is forgotten."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def of(self, key: Key, make: Callable[[], Value]) -> Value:
        """What ``make`` gave for this key, now or before."""
        if key not in self:
            self[key] = make()
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)
        return self[key]
