"""How a run of the library is driven: on the event loop (`drive`), inline in one task (`drive_inline`), or on this thread.

Rust says what comes next; this module makes the attempts and waits. It decides nothing about them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from ._core import Run, after_fork
from ._signals import facts_of

WAIT, TRY, CUT, END = range(4)  # as in src/run.rs
Event = tuple[int, int, Any]

#: Attempts that were cut off and have not ended yet: the loop itself keeps no strong reference.
_ending: set[asyncio.Task[Any]] = set()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=after_fork)


async def drive_inline(run: Run, make: Callable[[Any], Awaitable[Any]]) -> Any:
    """Runs attempts in the caller's own task, one after the other: for runs that cut none off."""
    try:
        kind, number, payload = run.next()
        while kind != END:
            if kind == TRY:
                try:
                    value = await make(payload)
                except Exception as raised:
                    error = raised
                else:
                    kind, number, payload = run.returned(number, value)
                    continue
                kind, number, payload = run.raised(number, error, facts_of(error))
                del error
            else:
                await woken(run)
                kind, number, payload = run.next()
        return payload
    finally:
        run.close()


async def drive(run: Run, make: Callable[[Any], Awaitable[Any]]) -> Any:
    """Runs each attempt as a task, so that it can be cut off and others run beside it."""
    return await _Driven(run, make).result()


class _Driven:
    def __init__(self, run: Run, make: Callable[[Any], Awaitable[Any]]) -> None:
        self.run, self.make = run, make
        self.loop = asyncio.get_running_loop()
        self.tasks: dict[int, asyncio.Task[Any]] = {}
        self.waiter: asyncio.Future[None] | None = None

    async def result(self) -> Any:
        try:
            kind, number, payload = self.run.next()
            while kind != END:
                if kind == WAIT:
                    kind, number, payload = await self.wait()
                    continue
                if kind == TRY:
                    self.start(number, payload)
                else:
                    self.cut(number)
                kind, number, payload = self.run.next()
            return payload
        except BaseException as error:
            if not isinstance(error, Exception):
                await self.abandon()  # the caller was cancelled: no attempt outlives the call
            raise
        finally:
            self.run.close()
            for number in list(self.tasks):
                self.cut(number)

    def start(self, number: int, payload: Any) -> None:
        task = self.loop.create_task(self.attempt(payload))
        self.tasks[number] = task
        task.add_done_callback(lambda _: self.ring())

    async def attempt(self, payload: Any) -> Any:
        return await self.make(payload)

    def ring(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def wait(self) -> Event:
        """Waits until an attempt has ended or a timer has run out, and gives the next event."""
        number = self.first_done()
        if number is None:
            self.waiter = self.loop.create_future()
            if self.run.wake_with(lambda: self.loop.call_soon_threadsafe(self.ring)):
                try:
                    await self.waiter
                finally:
                    self.run.stay()
            self.waiter = None
            number = self.first_done()
        return self.run.next() if number is None else self.ended(number)

    def first_done(self) -> int | None:
        return next((number for number, task in self.tasks.items() if task.done()), None)

    def ended(self, number: int) -> Event:
        task = self.tasks.pop(number)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            return self.run.returned(number, task.result())
        if isinstance(error, Exception):
            return self.run.raised(number, error, facts_of(error))
        raise error

    def cut(self, number: int) -> None:
        task = self.tasks.pop(number, None)
        if task is not None:
            task.cancel()
            _ending.add(task)
            task.add_done_callback(_forget)

    async def abandon(self) -> None:
        tasks = list(self.tasks.values())
        self.tasks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
            for task in tasks:
                _retrieve(task)


def _forget(task: asyncio.Task[Any]) -> None:
    _ending.discard(task)
    _retrieve(task)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """What a cut attempt raised while it ended is nobody's result."""
    if not task.cancelled():
        task.exception()


async def woken(run: Run) -> None:
    """Until a timer of the run has run out."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def ring() -> None:
        if not waiter.done():
            waiter.set_result(None)

    if run.wake_with(lambda: loop.call_soon_threadsafe(ring)):
        try:
            await waiter
        finally:
            run.stay()


def drive_sync(run: Run, make: Callable[[Any], Any]) -> Any:
    """Runs attempts on this thread. No attempt can be cut off; one that comes late still counts."""
    try:
        kind, number, payload = run.next()
        while kind != END:
            if kind == TRY:
                try:
                    value = make(payload)
                except Exception as raised:
                    error = raised
                else:
                    kind, number, payload = run.returned(number, value)
                    continue
                kind, number, payload = run.raised(number, error, facts_of(error))
                del error
            elif kind == CUT:
                kind, number, payload = run.next()
            else:
                woken_sync(run)
                kind, number, payload = run.next()
        return payload
    finally:
        run.close()


def woken_sync(run: Run) -> None:
    rung = threading.Event()
    if run.wake_with(rung.set):
        try:
            rung.wait()
        finally:
            run.stay()
