"""Calls that may take long, or never come back, beside a loop that must go on."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
CLOSE_S: Final = 5.0
"""Seconds to wait at the end for calls that have not returned."""


class Calls:
    """As many threads as there are calls at a time: one that does not return delays no other.

    No thread keeps the process from ending.
    """

    def __init__(self, done: Callable[[], None] = lambda: None) -> None:
        """`done` is called, in the thread, whenever a call has come back."""
        self._done = done
        self._todo: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._idle, self._open = threading.Semaphore(0), set[Future[Any]]()

    def submit(self, call: Callable[..., T], *args: Any) -> Future[T]:
        """Have something called."""
        future: Future[T] = Future()
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        self._todo.put((future, lambda: call(*args)))
        if not self._idle.acquire(blocking=False):
            threading.Thread(target=self._serve, name="call", daemon=True).start()
        return future

    def close(self) -> None:
        """Wait for what is under way, but not for ever."""
        wait(list(self._open), CLOSE_S)

    def _serve(self) -> None:
        while True:
            future, call = self._todo.get()
            try:
                result = call()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            del future, call
            self._idle.release()
            self._done()
