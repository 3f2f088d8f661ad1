"""Retry, breaker and chain: decisions of the library, and the manners of asyncio."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
import traceback
from typing import Any

import pytest

from seawall import (
    AttemptTimeout,
    CircuitBreaker,
    CircuitOpenError,
    FallbackChain,
    FallbackExhaustedError,
    FallbackStoppedError,
    Retry,
    retry,
)

QUICK: dict[str, Any] = {"effect": "read_only", "base_backoff_s": 0.001}


class Flaky:
    """Fails so often, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.calls = list(errors), 0

    def answer(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "success!"

    async def get(self) -> str:
        await asyncio.sleep(0)
        return self.answer()


def busy() -> Exception:
    return RuntimeError("503 Service Unavailable")


def test_transient_failures_are_retried_and_the_value_comes_back() -> None:
    flaky = Flaky(busy(), busy())
    assert asyncio.run(Retry(**QUICK).call(flaky.get)) == "success!"
    assert flaky.calls == 3


def test_a_permanent_failure_is_not_retried() -> None:
    flaky = Flaky(ValueError("no such field"), busy())
    with pytest.raises(ValueError, match="no such field"):
        asyncio.run(Retry(**QUICK).call(flaky.get))
    assert flaky.calls == 1


def test_a_write_is_repeated_only_if_it_certainly_was_not_executed() -> None:
    lost, refused = Flaky(ConnectionResetError("reset")), Flaky(ConnectionRefusedError("refused"), busy())
    write = Retry("write", base_backoff_s=0.001)
    with pytest.raises(ConnectionResetError):
        asyncio.run(write.call(lost.get))
    with pytest.raises(RuntimeError):
        asyncio.run(write.call(refused.get))
    assert (lost.calls, refused.calls) == (1, 2)


def test_the_name_of_a_function_tells_its_effect() -> None:
    calls = {"get_issue": 0, "create_issue": 0}

    @retry(base_backoff_s=0.001)
    async def get_issue() -> None:
        calls["get_issue"] += 1
        raise ConnectionResetError("reset")

    @retry(base_backoff_s=0.001)
    async def create_issue() -> None:
        calls["create_issue"] += 1
        raise ConnectionResetError("reset")

    for function in (get_issue, create_issue):
        with pytest.raises(ConnectionResetError):
            asyncio.run(function())
    assert calls == {"get_issue": 3, "create_issue": 1}


def test_the_last_exception_is_the_very_one_with_its_traceback() -> None:
    error = busy()

    async def deep() -> None:
        raise error

    @Retry(**{**QUICK, "attempts": 2})
    async def outer() -> None:
        await deep()

    with pytest.raises(RuntimeError) as caught:
        asyncio.run(outer())
    assert caught.value is error
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)][-2:] == ["outer", "deep"]
    assert error.__cause__ is None


def test_retry_after_is_honoured() -> None:
    class Response:
        status_code, headers, text, url = 429, {"retry-after": "1"}, "slow down", "http://x"

    class Throttled(Exception):
        response = Response()

    flaky = Flaky(Throttled())
    began = time.monotonic()
    assert asyncio.run(Retry(**QUICK).call(flaky.get)) == "success!"
    assert 1.0 <= time.monotonic() - began < 3


def test_an_attempt_that_hangs_is_cut_off_and_tried_again() -> None:
    ended: list[int] = []

    async def get() -> str:
        if not ended:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(1)
        return "second"

    limited = Retry(**QUICK, attempt_timeout_s=0.02)
    assert asyncio.run(limited.call(get)) == "second"
    assert ended == [1]


def test_a_deadline_ends_a_call_whose_every_attempt_hangs() -> None:
    async def get() -> None:
        await asyncio.Event().wait()

    with pytest.raises(AttemptTimeout) as caught:
        asyncio.run(Retry(**QUICK, timeout_s=0.05).call(get))
    assert isinstance(caught.value, TimeoutError)


@pytest.mark.parametrize("limits", [{}, {"timeout_s": 30.0}])
def test_cancelling_the_caller_cancels_the_attempt_and_no_other_follows(limits: dict[str, Any]) -> None:
    seen: list[str] = []

    async def main() -> None:
        began = asyncio.Event()

        async def get() -> None:
            seen.append("began")
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        calling = asyncio.ensure_future(Retry(**QUICK, **limits).call(get))
        await began.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert seen == ["began", "cancelled"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_cancelling_the_caller_ends_a_backoff_at_once() -> None:
    async def main() -> None:
        failed = asyncio.Event()

        async def get() -> None:
            failed.set()
            raise busy()

        calling = asyncio.ensure_future(Retry("read_only", base_backoff_s=30).call(get))
        await failed.wait()
        await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < 5


def test_the_loop_runs_on_during_a_backoff() -> None:
    async def main() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.001)

        counting = asyncio.ensure_future(count())
        await Retry("read_only", base_backoff_s=0.05).call(Flaky(busy()).get)
        counting.cancel()
        return turns

    assert asyncio.run(main()) > 5


def test_a_block_is_repeated() -> None:
    async def main() -> tuple[list[int], str]:
        flaky, numbers = Flaky(busy(), busy()), []
        async for attempt in Retry(**QUICK):
            with attempt:
                numbers.append(attempt.number)
                value = await flaky.get()
        return numbers, value

    assert asyncio.run(main()) == ([1, 2, 3], "success!")


def test_a_block_that_fails_for_good_raises_its_own_exception() -> None:
    error, numbers = ValueError("no such field"), []
    with pytest.raises(ValueError) as caught:
        for attempt in Retry(**QUICK):
            with attempt:
                numbers.append(attempt.number)
                raise error
    assert caught.value is error and numbers == [1]


def test_plain_functions_are_retried_on_their_own_thread() -> None:
    flaky, threads = Flaky(busy()), set()

    @Retry(**QUICK)
    def get() -> str:
        threads.add(threading.get_ident())
        return flaky.answer()

    assert get() == "success!"
    assert threads == {threading.get_ident()}


def test_settings_that_cannot_work_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="attempts"):
        Retry(attempts=0)
    with pytest.raises(ValueError, match="effect"):
        Retry("reads")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout"):
        Retry(timeout_s=1, attempt_timeout_s=2)
    with pytest.raises(ValueError, match="base_backoff_s"):
        Retry(base_backoff_s=float("nan"))


def test_a_breaker_opens_after_its_failures_and_says_when_it_may_be_tried() -> None:
    async def main() -> None:
        breaker = CircuitBreaker(5, 30.0)

        async def fail() -> None:
            raise ConnectionError("fail")

        for _ in range(5):
            with pytest.raises(ConnectionError):
                await breaker.call("flaky", fail)
        with pytest.raises(CircuitOpenError) as caught:
            await breaker.call("flaky", fail)
        assert caught.value.name == "flaky" and 29 < caught.value.retry_after_s <= 30
        assert str(caught.value).startswith('Circuit breaker open for "flaky". Retry in ')
        assert breaker.all_status() == {"flaky": "open"}
        status = breaker.status("flaky")
        assert status is not None and (status.failures, status.trips) == (5, 1)
        assert await breaker.call("other", Flaky().get) == "success!"
        assert breaker.reset("flaky") and not breaker.reset("unknown")
        assert await breaker.call("flaky", Flaky().get) == "success!"

    asyncio.run(main())


def test_a_breaker_closes_again_after_a_probe_succeeds() -> None:
    breaker = CircuitBreaker(1, 0.02)
    with pytest.raises(RuntimeError):
        breaker.call_sync("flaky", Flaky(busy()).answer)
    # The breaker itself says how long: this is its time, not a guess.
    with pytest.raises(CircuitOpenError) as caught:
        breaker.call_sync("flaky", lambda: None)
    time.sleep(caught.value.retry_after_s)
    assert breaker.call_sync("flaky", lambda: 1) == 1
    assert breaker.all_status() == {"flaky": "closed"}


def test_a_guard_is_a_decorator_and_a_block() -> None:
    async def main() -> None:
        breaker = CircuitBreaker(2, 30.0)

        @breaker.guard("jira")
        async def get() -> None:
            raise busy()

        with pytest.raises(RuntimeError):
            await get()
        error = busy()
        with pytest.raises(RuntimeError) as caught:
            async with breaker.guard("jira"):
                raise error
        assert caught.value is error
        with pytest.raises(CircuitOpenError):
            with breaker.guard("jira"):
                pytest.fail("the block ran")

    asyncio.run(main())


def test_a_callers_mistake_and_a_cancellation_do_not_count() -> None:
    async def main() -> None:
        breaker = CircuitBreaker(1, 30.0)
        with pytest.raises(Exception, match="400"):
            await breaker.call("jira", Flaky(Exception("400 Bad Request")).get)
        hanging = asyncio.ensure_future(breaker.call("jira", asyncio.Event().wait))
        await asyncio.sleep(0)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        assert breaker.all_status() == {"jira": "closed"}

    asyncio.run(main())


def test_a_half_open_breaker_lets_one_of_many_through() -> None:
    async def main() -> None:
        breaker, made, gate = CircuitBreaker(1, 0.01), 0, asyncio.Event()

        async def probe() -> None:
            nonlocal made
            made += 1
            await gate.wait()

        with pytest.raises(RuntimeError):
            await breaker.call("x", Flaky(busy()).get)
        with pytest.raises(CircuitOpenError) as caught:
            await breaker.call("x", probe)
        await asyncio.sleep(caught.value.retry_after_s)
        calls = [asyncio.ensure_future(breaker.call("x", probe)) for _ in range(50)]
        await asyncio.sleep(0)
        gate.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert made == 1
        assert sum(isinstance(result, CircuitOpenError) for result in results) == 49

    asyncio.run(main())


def test_a_retry_stops_at_a_breaker_that_opened() -> None:
    breaker, flaky = CircuitBreaker(2, 30.0), Flaky(*(busy() for _ in range(9)))
    guarded = Retry(**QUICK, attempts=5, breaker=breaker.guard("jira"))
    with pytest.raises(RuntimeError):
        asyncio.run(guarded.call(flaky.get))
    assert flaky.calls == 2
    with pytest.raises(CircuitOpenError) as caught:
        asyncio.run(guarded.call(flaky.get))
    assert caught.value.name == "jira" and flaky.calls == 2


def test_a_chain_answers_with_the_first_step_that_can() -> None:
    chain: FallbackChain[str] = FallbackChain([("primary", Flaky(busy()).get), ("backup", lambda: "from the backup")])
    result = asyncio.run(chain.run())
    assert (result.value, result.final_step, result.attempts) == ("from the backup", "backup", 2)
    assert result.warnings == ["primary: 503 Service Unavailable"]


def test_an_exhausted_chain_says_so_and_keeps_the_last_exception() -> None:
    last = busy()
    chain: FallbackChain[str] = FallbackChain([("a", Flaky(busy()).answer), ("b", Flaky(last).answer)])
    with pytest.raises(FallbackExhaustedError) as caught:
        chain.run_sync()
    assert caught.value.__cause__ is last
    assert str(caught.value).startswith("All fallback steps exhausted. Warnings:\n")
    assert (len(caught.value.warnings), caught.value.attempts) == (2, 2)


def test_a_callers_mistake_stops_a_chain() -> None:
    mistake, backup = Exception("400 Bad Request"), Flaky()
    chain: FallbackChain[str] = FallbackChain([("primary", Flaky(mistake).answer), ("backup", backup.answer)])
    with pytest.raises(FallbackStoppedError) as caught:
        chain.run_sync()
    assert (caught.value.step, caught.value.__cause__, backup.calls) == ("primary", mistake, 0)


def test_a_chain_decorates_a_function_and_hands_its_arguments_on() -> None:
    @FallbackChain([("cached", lambda number: f"cached {number}")])
    async def get_issue(number: int) -> str:
        raise busy()

    assert asyncio.run(get_issue(7)) == "cached 7"


def test_a_step_that_hangs_takes_no_other_steps_time() -> None:
    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"

    chain: FallbackChain[str] = FallbackChain([("hangs", hang), ("backup", lambda: "backup")], timeout_s=0.1)
    assert asyncio.run(chain.run()).value == "backup"


def _in_child(answers: Any) -> None:
    answers.put(Retry(**QUICK).call_sync(Flaky(busy()).answer))


def test_a_forked_child_has_timers_of_its_own() -> None:
    Retry(**QUICK).call_sync(Flaky(busy()).answer)  # the parent's timers run
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_in_child, args=(answers,))
    child.start()
    assert answers.get(timeout=20) == "success!"
    child.join()


def test_many_calls_at_once_on_many_threads() -> None:
    breaker, results = CircuitBreaker(), []

    async def main() -> None:
        calls = (Retry(**QUICK, breaker=breaker.guard("x")).call(Flaky(busy()).get) for _ in range(100))
        results.extend(await asyncio.gather(*calls, return_exceptions=True))

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 400
